/* tokenizer/ascii: the split patterns of Llama 3, Phi-4, Qwen 2.5 and Mistral Nemo as plain code, several
   times as fast as a regular expression. The regular expression is the definition: this code returns a match
   only if all bytes that determine it are ASCII. tests/tokenizer/test_tokenizer_ascii.c compares both on all
   short texts. */
#include "tokenizer/internal.h"

/* The options in which the patterns differ. In all patterns a word may begin with one character that is no
   letter, digit or line end. All patterns split white space in the same way. */
struct ascii_rule {
    const char *regex;
    bool contractions; /* 's 't 're 've 'm 'll 'd are separate pieces */
    bool cased;        /* a word ends between a small letter and a capital */
    bool slashes;      /* '/' may follow line ends after other characters */
    int digits;        /* maximum digits of a number */
};

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORD_START   "[^\\r\\n\\p{L}\\p{N}]?"
#define CAPITALS     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALLS       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define OTHERS       " ?[^\\s\\p{L}\\p{N}]+"

static const ascii_rule rules[] = {
    {.regex = CONTRACTIONS WORD_START "\\p{L}+|\\p{N}{1,3}|" OTHERS "[\\r\\n]*" SPACES,
     .contractions = true,
     .digits = 3},
    {.regex = CONTRACTIONS WORD_START "\\p{L}+|\\p{N}|" OTHERS "[\\r\\n]*" SPACES,
     .contractions = true,
     .digits = 1},
    {.regex = WORD_START CAPITALS "*" SMALLS "+|" WORD_START CAPITALS "+" SMALLS "*|\\p{N}|" OTHERS
                                  "[\\r\\n/]*" SPACES,
     .cased = true,
     .slashes = true,
     .digits = 1},
};

const ascii_rule *ascii_rule_find(text_view regex) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if ((int64_t)strlen(rules[i].regex) == regex.bytes &&
            text_starts_with(regex, (text_view){rules[i].regex, regex.bytes}))
            return &rules[i];
    return NULL;
}

static bool is_small(unsigned char c) {
    return c >= 'a' && c <= 'z';
}

static bool is_letter(unsigned char c) {
    return is_small(c | 0x20);
}

static bool is_digit(unsigned char c) {
    return c >= '0' && c <= '9';
}

static bool is_line_end(unsigned char c) {
    return c == '\r' || c == '\n';
}

static bool is_ascii_space(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_other(unsigned char c) {
    return c < 0x80 && !is_letter(c) && !is_digit(c) && !is_ascii_space(c);
}

/* ---- the alternatives in a pattern: a function returns the end of its match, or `from` without one ---- */

static int64_t end_contraction(const unsigned char *p, int64_t from, int64_t bytes) {
    if (p[from] != '\'' || bytes - from < 2) return from;
    unsigned char a = p[from + 1] | 0x20, b = bytes - from > 2 ? p[from + 2] | 0x20 : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return from + 2;
    bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? from + 3 : from;
}

static int64_t end_word(const ascii_rule *rule, const unsigned char *p, int64_t from, int64_t bytes) {
    int64_t at = from;
    if (!is_letter(p[at]) && !is_digit(p[at]) && !is_line_end(p[at])) at++;
    if (at == bytes || !is_letter(p[at])) return from;
    if (rule->cased) {
        while (at < bytes && p[at] >= 'A' && p[at] <= 'Z') at++;
        while (at < bytes && is_small(p[at])) at++;
    } else {
        while (at < bytes && is_letter(p[at])) at++;
    }
    return at;
}

static int64_t end_number(const ascii_rule *rule, const unsigned char *p, int64_t from, int64_t bytes) {
    int64_t at = from;
    while (at < bytes && at - from < rule->digits && is_digit(p[at])) at++;
    return at;
}

static int64_t end_others(const ascii_rule *rule, const unsigned char *p, int64_t from, int64_t bytes) {
    int64_t at = from + (p[from] == ' ');
    if (at == bytes || !is_other(p[at])) return from;
    while (at < bytes && is_other(p[at])) at++;
    while (at < bytes && (is_line_end(p[at]) || (rule->slashes && p[at] == '/'))) at++;
    return at;
}

/* Returns the end of a piece of white space: after its last line end or, without one, before its last space,
   which belongs to the next word. -1 before a non-ASCII character: it may be white space. */
static int64_t end_spaces(const unsigned char *p, int64_t from, int64_t bytes) {
    int64_t at = from, lines = from;
    for (; at < bytes && is_ascii_space(p[at]); at++)
        if (is_line_end(p[at])) lines = at + 1;
    if (at < bytes && p[at] >= 0x80) return -1;
    if (lines > from) return lines;
    return at < bytes && at - from > 1 ? at - 1 : at;
}

static int64_t end_of_match(const ascii_rule *rule, const unsigned char *p, int64_t from, int64_t bytes) {
    int64_t end = rule->contractions ? end_contraction(p, from, bytes) : from;
    if (end == from) end = end_word(rule, p, from, bytes);
    if (end == from) end = end_number(rule, p, from, bytes);
    if (end == from) end = end_others(rule, p, from, bytes);
    return end == from ? end_spaces(p, from, bytes) : end;
}

int64_t ascii_match(const ascii_rule *rule, text_view text, int64_t from) {
    const unsigned char *p = (const unsigned char *)text.at;
    if (p[from] >= 0x80) return -1;
    int64_t end = end_of_match(rule, p, from, text.bytes);
    /* -1 if a non-ASCII character may continue or change the match */
    return end < 0 || (end < text.bytes && p[end] >= 0x80) ? -1 : end;
}
