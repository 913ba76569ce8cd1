/* tokenizer/regex: the regular expressions of a tokenizer.json, of Oniguruma's Ruby syntax, run by PCRE2. */
#ifndef TOKENIZER_REGEX_H
#define TOKENIZER_REGEX_H

#include "tokenizer/text.h"

/* The members of \w in both of the reference engine's regular expressions, for use in brackets. */
#define COMMON_WORDS                                                                                         \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{"     \
    "1f170}-\\x{1f189}"

/* One of a few known expressions, as plain code for ASCII (ascii.c). */
typedef struct ascii_rule ascii_rule;
const ascii_rule *ascii_rule_find(text_view regex); /* NULL: not a known one */
/* Where the match that begins at `from` < text.bytes ends: these patterns match everywhere. -1: characters
 * that are not ASCII have a say in it. */
int64_t ascii_match(const ascii_rule *rule, text_view text, int64_t from);

/* A regular expression of Oniguruma's Ruby syntax, or a literal text when `code` is NULL. */
typedef struct pattern {
    struct pcre2_real_code_8 *code, *counted; /* counted: the same, with a callout before each item */
    const ascii_rule *ascii;                  /* NULL: none */
    text_view source;                         /* of the expression; borrowed */
    text_view literal;
} pattern;

/* What running patterns needs, one per thread. */
typedef struct matcher {
    int64_t budget, left; /* steps: of the text, and what of them is left */
    int64_t searches;     /* in the text */
    struct pcre2_real_general_context_8 *memory;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_jit_stack_8 *stack;
} matcher;

/* `regex` need not be ended, and lives as long as the pattern. OTT_ERR_UNSUPPORTED: not compilable, or it would mean something else in PCRE2.
 */
ott_status regex_compile(mem *account, text_view regex, pattern *out);
void regex_free(pattern *p);
ott_status regex_matcher_open(mem *account, matcher *out);
/* A text of so many bytes begins: all searches in it share its budget of steps, so that no text and pattern
 * together run without end. regex_matcher_open: a text of none. */
void regex_matcher_begin(matcher *m, int64_t bytes);
void regex_matcher_close(matcher *m);

/* Walks over the matches of a pattern in a text, empty ones included, as Oniguruma's find_iter does. */
typedef struct regex_walk {
    const pattern *pattern;
    matcher *matcher;
    text_view text;   /* valid UTF-8 */
    int64_t from;     /* where the search goes on */
    int64_t last_end; /* of the last match; -1: none yet */
    int64_t begin, end;
} regex_walk;

regex_walk regex_walk_start(const pattern *p, matcher *m, text_view text);
/* Sets begin and end of the next match; begin == -1 when there is none. OTT_ERR_UNSUPPORTED: the budget is
 * used up. */
ott_status regex_walk_next(regex_walk *w);

#endif
