/* eval/row: the texts of a row of HellaSwag, as lm-eval and as llm.c use them. Internal to eval/eval. */
#ifndef EVAL_ROW_H
#define EVAL_ROW_H

#include "tokenizer/text/text.h"
#include <jansson.h>

enum { EVAL_ENDINGS = 4 };

typedef struct eval_row {
    json_t *object; /* the JSON object; owns the texts of raw_context and raw_ending */
    int label;      /* index of the right ending */
    /* for llm.c's scores: the texts of the file, unchanged */
    text_view raw_context, raw_ending[EVAL_ENDINGS];
    /* for lm-eval's scores: cleaned texts, which are in `memory` */
    str memory;
    text_view context, ending[EVAL_ENDINGS];
    int64_t characters[EVAL_ENDINGS]; /* number of Unicode characters of each ending */
} eval_row;

/* Parses a line of JSON. lm-eval makes the context from activity_label, ctx_a and ctx_b. If the row lacks one
   of these, the context is ctx, cleaned. OTT_ERR_FORMAT names the field. Call eval_row_free in any case. */
ott_status eval_row_read(mem *account, const char *line, int64_t bytes, eval_row *out);
void eval_row_free(eval_row *row);

/* lm-eval's preprocess: strips white space; " [title]" becomes ". "; drops [...]; two spaces become one. */
void eval_clean(text_view text, str *out);

#endif
