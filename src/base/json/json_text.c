/* base/json/json_text: parses JSON, and checks its grammar without allocating memory. */
#include "base/json/json_text.h"
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 2048 }; /* deepest nesting, jansson's JSON_PARSER_MAX_DEPTH */

/* ---- grammar: functions skip an element at `at` and return its end, or NULL if it is invalid ---- */

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    return at;
}

static const char *skip_digits(const char *at, const char *end) {
    const char *begin = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at > begin ? at : NULL;
}

static const char *skip_number(const char *at, const char *end) {
    if (at < end && *at == '-') at++;
    bool zero = at < end && *at == '0';
    at = zero ? at + 1 : skip_digits(at, end);
    if (at && at < end && *at == '.') at = skip_digits(at + 1, end);
    if (!at || at >= end || (*at != 'e' && *at != 'E')) return at;
    at++;
    if (at < end && (*at == '+' || *at == '-')) at++;
    return skip_digits(at, end);
}

/* Reads "uXXXX" with four hexadecimal digits. *out: their number. */
static const char *skip_unit(const char *at, const char *end, unsigned *out) {
    static const char hex[] = "0123456789abcdef";
    *out = 0;
    if (at >= end || *at != 'u') return NULL;
    for (int i = 1; i <= 4; i++) {
        const char *found = at + i < end && at[i] ? strchr(hex, at[i] | (at[i] >= 'A' ? 0x20 : 0)) : NULL;
        if (!found) return NULL;
        *out = *out * 16 + (unsigned)(found - hex);
    }
    return at + 5;
}

/* Skips an escape, from the character after the backslash. A surrogate must be part of a pair. */
static const char *skip_escape(const char *at, const char *end) {
    unsigned high, low;
    if (at < end && *at && strchr("\"\\/bfnrt", *at)) return at + 1;
    at = skip_unit(at, end, &high);
    if (!at || high < 0xd800 || high > 0xdfff) return at;
    if (high > 0xdbff || end - at < 2 || *at != '\\') return NULL;
    at = skip_unit(at + 1, end, &low);
    return at && low >= 0xdc00 && low <= 0xdfff ? at : NULL;
}

static const char *skip_string(const char *at, const char *end) {
    if (at >= end || *at != '"') return NULL;
    for (at++; at && at < end && *at != '"';) {
        if ((unsigned char)*at < 0x20) return NULL;
        at = *at == '\\' ? skip_escape(at + 1, end) : at + 1;
    }
    return at && at < end ? at + 1 : NULL;
}

static const char *skip_word(const char *at, const char *end, const char *word) {
    size_t length = strlen(word);
    return (size_t)(end - at) >= length && memcmp(at, word, length) == 0 ? at + length : NULL;
}

static const char *skip_value(const char *at, const char *end, int depth);

/* Reads an object's members or an array's elements, up to `close`. */
static const char *skip_items(const char *at, const char *end, char close, int depth) {
    at = skip_blanks(at + 1, end);
    if (at < end && *at == close) return at + 1;
    for (;; at++) {
        at = skip_blanks(at, end);
        if (close == '}') {
            at = skip_string(at, end);
            if (!at) return NULL;
            at = skip_blanks(at, end);
            if (at >= end || *at++ != ':') return NULL;
        }
        at = skip_value(at, end, depth + 1);
        if (!at) return NULL;
        at = skip_blanks(at, end);
        if (at < end && *at == close) return at + 1;
        if (at >= end || *at != ',') return NULL;
    }
}

static const char *skip_value(const char *at, const char *end, int depth) {
    at = skip_blanks(at, end);
    if (at >= end || depth > DEEPEST) return NULL;
    switch (*at) {
    case '{': return skip_items(at, end, '}', depth);
    case '[': return skip_items(at, end, ']', depth);
    case '"': return skip_string(at, end);
    case 't': return skip_word(at, end, "true");
    case 'f': return skip_word(at, end, "false");
    case 'n': return skip_word(at, end, "null");
    default: return skip_number(at, end);
    }
}

bool json_text_is_valid(const char *text, int64_t bytes) {
    const char *end = text + bytes, *after = skip_value(text, end, 1);
    return after && skip_blanks(after, end) == end;
}

/* True if parsing failed because memory ran out. jansson has an error code for this, but does not always set
   it: it may also report a syntax error in valid text, or leave error->text empty. */
static bool memory_ran_out(const char *text, int64_t bytes, size_t flags, const json_error_t *error) {
    enum json_error_code code = json_error_code(error);
    const char *begin = skip_blanks(text, text + bytes);
    bool allowed = (flags & JSON_DECODE_ANY) || (begin < text + bytes && (*begin == '{' || *begin == '['));
    if (code == json_error_out_of_memory || !error->text[0]) return true;
    return code == json_error_invalid_syntax && allowed && json_text_is_valid(text, bytes);
}

ott_status json_text_parse(const char *text, int64_t bytes, size_t flags, json_t **out, json_error_t *error) {
    *out = json_loadb(text, (size_t)bytes, flags, error);
    if (*out || !memory_ran_out(text, bytes, flags, error)) return OTT_OK;
    return status_fail(OTT_ERR_MEMORY, "out of memory: reading %lld bytes of JSON", (long long)bytes);
}

/* Copies JSON text to `to` and appends ".0" to each integer that does not fit in 64 bits (not in strings).
   Returns the number of bytes written, at most bytes + 2 * (bytes / 19 + 1). */
static int64_t widen_integers(const char *text, int64_t bytes, char *to) {
    int64_t used = 0;
    bool inside = false;
    for (int64_t i = 0, from; i < bytes; i++) {
        to[used++] = text[i];
        if (inside && text[i] == '\\' && i + 1 < bytes)
            to[used++] = text[++i];
        else if (text[i] == '"')
            inside = !inside;
        if (inside || text[i] < '0' || text[i] > '9') continue;
        for (from = i; i + 1 < bytes && text[i + 1] >= '0' && text[i + 1] <= '9';) to[used++] = text[++i];
        const char *most = from > 0 && text[from - 1] == '-' ? "9223372036854775808" : "9223372036854775807";
        bool fits = i + 1 - from < 19 || (i + 1 - from == 19 && memcmp(text + from, most, 19) <= 0);
        bool part = from > 0 && strchr(".eE+", text[from - 1]); /* digits of a floating-point number */
        bool real = i + 1 < bytes && strchr(".eE", text[i + 1]) && text[i + 1];
        if (part || real || fits) continue;
        to[used++] = '.';
        to[used++] = '0';
    }
    return used;
}

ott_status json_row_parse(const char *text, int64_t bytes, json_t **out, json_error_t *error) {
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    TRY(json_text_parse(text, bytes, flags, out, error));
    if (*out || json_error_code(error) != json_error_numeric_overflow) return OTT_OK;
    char *wide = malloc((size_t)(bytes + 2 * (bytes / 19 + 1)));
    if (!wide)
        return status_fail(OTT_ERR_MEMORY, "out of memory: reading %lld bytes of JSON", (long long)bytes);
    ott_status status = json_text_parse(wide, widen_integers(text, bytes, wide), flags, out, error);
    free(wide);
    return status;
}

bool json_text_is_blank(const char *text, int64_t bytes) {
    return skip_blanks(text, text + bytes) == text + bytes;
}
