/* base/str: strings: a growing buffer, nearest-match search for messages, UTF-8 check, number formatting. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base/mem.h"
#include <stdbool.h>

/* A growing text. Zero-initialise with {.account = m}; free with str_free. `text` is NULL or NUL-terminated.
 */
typedef struct str {
    mem *account;
    char *text;
    int64_t length, capacity;
    bool failed; /* an append ran out of memory; checked once at the end by str_finish */
} str;

void str_append(str *s, const char *text);
void str_append_bytes(str *s, const void *bytes, int64_t count);
void str_printf(str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends `text` as a JSON string literal, quotes included. Invalid UTF-8 bytes become U+FFFD. */
void str_append_json(str *s, const char *text, int64_t length);
ott_status str_finish(const str *s); /* OTT_ERR_MEMORY if any append failed */
void str_free(str *s);
/* A text made at once, to be given back with mem_free; NULL when this fails. */
ott_status str_format(mem *account, char **out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Edits between two texts, case-insensitive: a letter more, less or other, or two neighbours swapped. */
int str_distance(const char *a, const char *b);
/* The candidate nearest to `word`, or NULL when none is near: within a quarter of its length (at least 1
 * edit), or one of the two the beginning of the other. */
const char *str_nearest(const char *word, const char *const *candidates, int count);
/* First byte offset that is not UTF-8, or -1 when all of it is. */
int64_t str_utf8_error(const char *text, int64_t length);
bool str_starts_with(const char *text, const char *prefix);
bool str_ends_with(const char *text, const char *suffix);
/* Shell pattern with * and ?, the whole of `text`. */
bool str_glob(const char *pattern, const char *text);
/* The bytes of the control character at `text`: of ASCII, or of Unicode's second range (U+0080 to U+009F), which
   steer terminals too; 0: it is none. */
int str_control(const char *text);
bool str_has_control(const char *text);
/* Puts `with` in the place of every byte of a control character. */
void str_replace_controls(char *text, char with);
/* The beginning of a text from outside on one line, for messages: whole characters, those that control become "?". */
typedef struct str_shown {
    char text[96];
} str_shown;
str_shown str_show(const char *text);
/* 1234567 -> "1,234,567" into out[32]; returns out. */
const char *str_commas(int64_t value, char out[32]);
/* 3723.4 s -> "1:02:03"; returns out. */
const char *str_duration(double seconds, char out[32]);

#endif
