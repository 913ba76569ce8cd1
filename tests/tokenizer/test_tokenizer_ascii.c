/*
 * Compares hand-written ASCII code for known split patterns with the regular expressions. Every match must be
 * the same, in all short texts of the relevant characters and in long random texts.
 */
#include "support/folder.h"
#include "tokenizer/internal.h"
#include "base/rng.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static const char *const regexes[] = {
    /* Pattern of Llama 3 and Phi-4. */
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    /* Pattern of Qwen 2.5. */
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    /* Pattern of Mistral Nemo. */
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};
enum { REGEXES = sizeof regexes / sizeof *regexes };

/* One character of each kind that the patterns distinguish. Some are not ASCII: letters of both cases and of
   title case, the long s that (?i:s) matches, a numeral, spaces, a mark, and U+180E. */
static const char *const characters[] = {"a",           "s",        "r",
                                         "e",           "l",        "L",
                                         "E",           "S",        "1",
                                         "'",           " ",        "\t",
                                         "\n",          "\r",       "/",
                                         ".",           "\x01",     "\x7f",
                                         "\xc3\xa9",    "\xc3\x89", "\xc7\x85",
                                         "\xc5\xbf",    "\xc2\xb2", "\xc2\xa0",
                                         "\xc2\x85",    "\xcc\x81", "\xe1\xa0\x8e",
                                         "\xe4\xb8\xad"};
/* The most important characters, for longer texts. */
static const char *const few[] = {"a", "S", "l", "'", " ", "\n", "/", "1", "\xc3\xa9"};

typedef struct pair {
    /* plain: the regex of `known` in brackets, which PCRE2 matches instead of hand-written code */
    pattern known, plain;
    matcher matcher;
} pair;

static void compare(pair *p, const char *text, int64_t bytes) {
    regex_matcher_begin(&p->matcher, bytes);
    regex_walk known = regex_walk_start(&p->known, &p->matcher, (text_view){text, bytes});
    regex_walk plain = regex_walk_start(&p->plain, &p->matcher, (text_view){text, bytes});
    do {
        if (regex_walk_next(&known) != OTT_OK || regex_walk_next(&plain) != OTT_OK)
            fail_msg("%s", status_text());
        if (known.begin != plain.begin || known.end != plain.end)
            fail_msg("\"%.*s\": %d to %d instead of %d to %d", (int)bytes, text, (int)known.begin,
                     (int)known.end, (int)plain.begin, (int)plain.end);
    } while (plain.begin >= 0);
}

/* Compares the matches in all texts of `length` characters from the set. */
static void compare_all(pair *p, const char *const *set, int count, int length) {
    int digit[8] = {0};
    for (int at = 0; at < length;) {
        char text[64] = "";
        for (int i = 0; i < length; i++) strcat(text, set[digit[i]]);
        compare(p, text, (int64_t)strlen(text));
        for (at = 0; at < length && ++digit[at] == count; at++) digit[at] = 0;
    }
}

static void compare_random(pair *p) {
    enum { COUNT = sizeof characters / sizeof *characters };
    for (uint64_t n = 0; n < 20000; n++) {
        char text[600] = "";
        uint64_t length = 1 + rng_u32(7, 1, n) % 150, ascii = rng_u32(7, 2, n) % 4;
        for (uint64_t i = 0; i < length; i++)
            strcat(text, characters[rng_u32(7, 3 + n, i) % (ascii ? 18 : COUNT)]);
        compare(p, text, (int64_t)strlen(text));
    }
}

static void pair_open(mem *account, const char *regex, pair *p) {
    char brackets[512];
    snprintf(brackets, sizeof brackets, "(?:%s)", regex);
    assert_int_equal(regex_compile(account, (text_view){regex, (int64_t)strlen(regex)}, &p->known), OTT_OK);
    assert_int_equal(regex_compile(account, (text_view){brackets, (int64_t)strlen(brackets)}, &p->plain),
                     OTT_OK);
    assert_non_null(p->known.ascii);
    assert_null(p->plain.ascii);
    assert_int_equal(regex_matcher_open(account, &p->matcher), OTT_OK);
}

static void pair_close(pair *p) {
    regex_matcher_close(&p->matcher);
    regex_free(&p->known);
    regex_free(&p->plain);
}

static void matches_as_the_regular_expression(void **state) {
    folder *f = *state;
    for (int i = 0; i < REGEXES; i++) {
        pair p;
        pair_open(f->account, regexes[i], &p);
        for (int length = 1; length <= 4; length++)
            compare_all(&p, characters, sizeof characters / sizeof *characters, length);
        for (int length = 5; length <= 6; length++) compare_all(&p, few, sizeof few / sizeof *few, length);
        compare_random(&p);
        pair_close(&p);
    }
}

/* Compares matches in long runs of one character, over which a regular expression would backtrack
   repeatedly. */
static void long_runs(void **state) {
    folder *f = *state;
    static const char *const ends[] = {"", "a", "\n", ".", "\xc3\xa9", "\xc2\xa0"};
    static const char runs[] = " \n.a1'\t/A";
    static char text[5010];
    for (int i = 0; i < REGEXES; i++) {
        pair p;
        pair_open(f->account, regexes[i], &p);
        for (size_t r = 0; r < sizeof runs - 1; r++)
            for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
                memset(text, runs[r], 5000);
                strcpy(text + 5000, ends[e]);
                compare(&p, text, (int64_t)strlen(text));
            }
        pair_close(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(matches_as_the_regular_expression, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(long_runs, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
