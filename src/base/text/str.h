/* base/text/str: a growing text buffer, nearest-match search for messages, UTF-8 checks, numbers as text. */
#ifndef BASE_TEXT_STR_H
#define BASE_TEXT_STR_H

#include "base/mem.h"
#include <stdbool.h>

/* A growing text. Initialize with {.account = m}; free with str_free. `text` is NULL, or ends with NUL. */
typedef struct str {
    mem *account;
    char *text;
    int64_t length, capacity;
    bool failed; /* an append ran out of memory; str_finish reports it */
} str;

void str_append(str *s, const char *text);
void str_append_bytes(str *s, const void *bytes, int64_t count);
/* Appends the lowest `bytes` (1 to 8) bytes of `value`, lowest first (base/little.h). */
void str_append_little(str *s, uint64_t value, int bytes);
void str_printf(str *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends `text` as a JSON string with quotes. Invalid UTF-8 bytes become U+FFFD. */
void str_append_json(str *s, const char *text, int64_t length);
ott_status str_finish(const str *s); /* OTT_ERR_MEMORY if any append failed */
void str_free(str *s);
/* Formats a new text; free it with mem_free. *out is NULL on error. */
ott_status str_format(mem *account, char **out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A list of texts, which the code that filled it owns. */
typedef struct str_list {
    const char *const *items;
    int64_t count;
} str_list;

/* Edit distance, case-insensitive: insertions, deletions, replacements and swaps of neighbors. */
int str_distance(const char *a, const char *b);
/* Returns the candidate nearest to `word`; NULL if none is near. A candidate is near if its edit distance is
   at most (length of `word` + 1) / 4, or 1 if that is 0. It is also near if one text begins with the other,
   and the shorter text has at least 5 bytes and half of the longer text's length. */
const char *str_nearest(const char *word, const char *const *candidates, int count);
/* Returns the length of the UTF-8 character at `text`; 0 if it is invalid (RFC 3629, table 3-7); -1 if the
   `left` (> 0) bytes of the text only begin a character. */
int str_utf8_length(const char *text, int64_t left);
/* Returns the offset of the first byte that is not valid UTF-8; -1 if all bytes are valid. */
int64_t str_utf8_error(const char *text, int64_t length);
bool str_starts_with(const char *text, const char *prefix);
bool str_ends_with(const char *text, const char *suffix);
bool str_ends_with_any(const char *text, const char *const *suffixes); /* the array ends with NULL */
/* True if the full `text` matches a shell pattern with * and ?. */
bool str_glob(const char *pattern, const char *text);
/* Returns the number of bytes of the control character at `text`; 0 if `text` begins with no control
   character. U+0080 to U+009F also count, because they control terminals. */
int str_control(const char *text);
bool str_has_control(const char *text);
/* Replaces each byte of each control character by `with`. */
void str_replace_controls(char *text, char with);
/* The start of a text, for a message. No UTF-8 character is split, and control characters become "?". */
typedef struct str_shown {
    char text[96];
} str_shown;
str_shown str_show(const char *text);
/* Writes 1234567 as "1,234,567"; returns out. */
const char *str_commas(int64_t value, char out[32]);
/* Writes 3723.4 s as "1:02:03"; returns out. */
const char *str_duration(double seconds, char out[32]);

#endif
