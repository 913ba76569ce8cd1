/* tokenizer/text/text: text views: comparison, hashing, character classes, lists and indexes. */
#ifndef TOKENIZER_TEXT_TEXT_H
#define TOKENIZER_TEXT_TEXT_H

#include "base/mem.h"
#include "base/text/str.h"
#include <stdbool.h>
#include <string.h>

typedef struct text_view {
    const char *at; /* [bytes], borrowed */
    int64_t bytes;
} text_view;

/* Bytes of white space at the start or end. python: white space of Python's str.strip, else of Rust's regex,
   which does not have U+001C to U+001F. */
int64_t text_spaces_at_start(text_view text, bool python);
int64_t text_spaces_at_end(text_view text, bool python);
/* Tests for \w of Rust's regex. */
bool text_starts_with_word(text_view text);
bool text_ends_with_word(text_view text);

typedef enum text_case { TEXT_UPPER, TEXT_LOWER, TEXT_CAPITAL } text_case;
/* Appends the text with Unicode's simple case mappings: each character becomes exactly one character.
   TEXT_CAPITAL: like Python's str.capitalize, the first character in title case and the others in lower
   case. */
void text_change_case(text_view text, text_case to, str *out);

/* Texts by id; at[id].at is NULL if the id has no text. All texts are in one blob, each NUL-terminated. */
typedef struct text_list {
    text_view *at; /* [count] texts by id */
    int64_t count;
    char *blob;
    int64_t used;
} text_list;

ott_status text_list_open(mem *account, int64_t count, int64_t blob_bytes, text_list *out);
void text_list_close(mem *account, text_list *list);
/* Copies a text for `id` into the blob, which must have `bytes` + 1 free bytes. Returns the copy. */
char *text_list_set(text_list *list, int32_t id, const char *text, int64_t bytes);

/* Finds the id of a text in a list. */
typedef struct text_index {
    const text_list *list;
    int32_t *slots; /* [mask + 1] id + 1, 0: free */
    uint64_t mask;
} text_index;

/* Opens an index for `capacity` texts; free `slots` with mem_free. */
ott_status text_index_open(mem *account, const text_list *list, int64_t capacity, text_index *out);
int32_t text_index_find(const text_index *index, const char *text, int64_t bytes); /* -1: not found */
/* Adds text `id` of the list. Returns false if the index already has the text. */
bool text_index_add(text_index *index, int32_t id);

static inline bool text_starts_with(text_view text, text_view prefix) {
    return text.bytes >= prefix.bytes && memcmp(text.at, prefix.at, (size_t)prefix.bytes) == 0;
}

static inline bool text_view_same(text_view a, text_view b) {
    return a.bytes == b.bytes && memcmp(a.at, b.at, (size_t)a.bytes) == 0;
}

static inline text_view text_view_of(const char *text) {
    return (text_view){text, (int64_t)strlen(text)};
}

static inline bool text_is(text_view text, const char *word) {
    return text_view_same(text, text_view_of(word));
}

/* Returns the length of a UTF-8 character in bytes, from its first byte. */
static inline int text_character_bytes(unsigned char lead) {
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Returns the number of characters. */
static inline int64_t text_characters(text_view text) {
    int64_t count = 0;
    for (int64_t i = 0; i < text.bytes; i++) count += ((unsigned char)text.at[i] & 0xc0) != 0x80;
    return count;
}

static inline uint64_t text_hash_load(const char *p, int bytes) {
    uint64_t value = 0;
    if (bytes == 8)
        memcpy(&value, p, 8);
    else
        memcpy(&value, p, 4);
    return value;
}

static inline uint64_t text_hash_mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

/* Hashes 8 bytes at a time; the last 8 may overlap. */
static inline uint64_t text_hash(const char *p, int64_t n) {
    uint64_t h = (uint64_t)n * UINT64_C(0xd6e8feb86659fd93);
    if (n >= 8) {
        for (int64_t i = 0; i + 8 < n; i += 8) h = text_hash_mix(h, text_hash_load(p + i, 8));
        return text_hash_mix(h, text_hash_load(p + n - 8, 8));
    }
    if (n >= 4) return text_hash_mix(h, text_hash_load(p, 4) | text_hash_load(p + n - 4, 4) << 32);
    if (n == 0) return h;
    return text_hash_mix(h, (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 |
                                (unsigned char)p[n - 1]);
}

/* memcmp without a call, faster for short words. */
static inline bool text_same(const char *a, const char *b, int64_t n) {
    if (n >= 8) {
        for (int64_t i = 0; i + 8 < n; i += 8)
            if (text_hash_load(a + i, 8) != text_hash_load(b + i, 8)) return false;
        return text_hash_load(a + n - 8, 8) == text_hash_load(b + n - 8, 8);
    }
    if (n >= 4)
        return text_hash_load(a, 4) == text_hash_load(b, 4) &&
               text_hash_load(a + n - 4, 4) == text_hash_load(b + n - 4, 4);
    return n == 0 || (a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1]);
}

#endif
