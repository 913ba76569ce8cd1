/* tokenizer/regex: runs the regular expressions of a tokenizer.json (Oniguruma's Ruby syntax) with PCRE2. */
#ifndef TOKENIZER_REGEX_H
#define TOKENIZER_REGEX_H

#include "tokenizer/text/text.h"

/* Characters that \w matches in both of Hugging Face's regular expression engines, for use in [...]. */
#define COMMON_WORDS                                                                                         \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{"     \
    "1f170}-\\x{1f189}"

/* Matches one of a few known expressions in ASCII text by plain code, without PCRE2 (ascii.c). */
typedef struct ascii_rule ascii_rule;
const ascii_rule *ascii_rule_find(text_view regex); /* NULL: this expression has no plain code */
/* Returns the end of the match that begins at `from` < text.bytes (these patterns match everywhere); -1 if
   the match depends on non-ASCII characters. */
int64_t ascii_match(const ascii_rule *rule, text_view text, int64_t from);

/* A regular expression, or a literal text if `code` is NULL. */
typedef struct pattern {
    /* counted: compiled with a callout before each item, by which steps are counted */
    struct pcre2_real_code_8 *code, *counted;
    const ascii_rule *ascii; /* NULL: no plain code for this expression */
    text_view source;        /* source of the expression; borrowed */
    text_view literal;
} pattern;

/* State for running patterns, one per thread. */
typedef struct matcher {
    int64_t budget, left; /* allowed steps for the text; remaining steps */
    int64_t searches;     /* searches so far in the text */
    struct pcre2_real_general_context_8 *memory;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_jit_stack_8 *stack;
} matcher;

/* Compiles `regex`, which must live as long as the pattern. OTT_ERR_UNSUPPORTED: not compilable, or PCRE2
   would interpret it differently. */
ott_status regex_compile(mem *account, text_view regex, pattern *out);
void regex_free(pattern *p);
ott_status regex_matcher_open(mem *account, matcher *out);
/* Call before searches in a text of `bytes` bytes. They share one budget of steps, so that no pattern can run
   forever. After regex_matcher_open, the budget is for a text of 0 bytes. */
void regex_matcher_begin(matcher *m, int64_t bytes);
void regex_matcher_close(matcher *m);

/* Iterates over the matches of a pattern, including empty matches, like Oniguruma's find_iter. */
typedef struct regex_walk {
    const pattern *pattern;
    matcher *matcher;
    text_view text;   /* text to search, in valid UTF-8 */
    int64_t from;     /* where the next search begins */
    int64_t last_end; /* end of the last match; -1: no match yet */
    int64_t begin, end;
} regex_walk;

regex_walk regex_walk_start(const pattern *p, matcher *m, text_view text);
/* Sets begin and end to the next match; begin is -1 if there is none. OTT_ERR_UNSUPPORTED: the budget is used
   up. */
ott_status regex_walk_next(regex_walk *w);

#endif
