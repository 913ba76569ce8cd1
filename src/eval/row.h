/* eval/row: a row of HellaSwag as texts, in lm-eval's form and in llm.c's. Internal to eval/eval. */
#ifndef EVAL_ROW_H
#define EVAL_ROW_H

#include "base/str.h"
#include <jansson.h>

enum { EVAL_ENDINGS = 4 };

typedef struct eval_text {
    const char *text; /* UTF-8, not NUL-terminated */
    int64_t bytes;
} eval_text;

typedef struct eval_row {
    json_t *object; /* owns what `raw...` point to */
    int label;
    /* as llm.c reads them: as they stand */
    eval_text raw_context, raw_ending[EVAL_ENDINGS];
    /* as lm-eval makes them; text in `memory` */
    str memory;
    eval_text context, ending[EVAL_ENDINGS];
    int64_t characters[EVAL_ENDINGS]; /* Unicode characters of the ending */
} eval_row;

/*
 * Reads a line. A raw row has activity_label, ctx_a and ctx_b, of which lm-eval makes its context; where one
 * of them is absent, ctx is cleaned instead. OTT_ERR_FORMAT names the field. Free with eval_row_free, also
 * when it failed.
 */
ott_status eval_row_read(mem *account, const char *line, int64_t bytes, eval_row *out);
void eval_row_free(eval_row *row);

/* lm-eval's preprocess: strip, " [title]" -> ". ", no [...], one pass of "  " -> " ". */
void eval_clean(const char *text, int64_t bytes, str *out);
/* Python's str.capitalize, characters one to one: the first in its title form, the rest small. */
void eval_capitalize(const char *text, int64_t bytes, str *out);
int64_t eval_characters(const char *text, int64_t bytes);
/* Bytes of white space at the end (Python's str.rstrip). */
int64_t eval_trailing_space(const char *text, int64_t bytes);

#endif
