/* base/text/str: growing texts, UTF-8, nearest matches, shell patterns, numbers for people. */
#include "base/text/str.h"
#include "base/little.h"
#include "base/text/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CAPACITY = 128 };

/* Reserves memory for `extra` more bytes and the final NUL. */
static bool reserve_bytes(str *s, int64_t extra) {
    if (s->failed) return false;
    if (extra < s->capacity - s->length) return true;
    int64_t need, doubled = s->capacity ? s->capacity : FIRST_CAPACITY;
    s->failed = __builtin_add_overflow(s->length + 1, extra, &need) || need > INT64_MAX / 2;
    if (s->failed) return false;
    while (doubled < need) doubled *= 2;
    void *memory = s->text;
    s->failed = mem_grow(s->account, MEM_OTHER, doubled, "a text", &memory) != OTT_OK;
    if (s->failed) return false;
    s->text = memory;
    s->capacity = doubled;
    return true;
}

void str_append_bytes(str *s, const void *bytes, int64_t count) {
    if (!reserve_bytes(s, count)) return;
    if (count > 0) memcpy(s->text + s->length, bytes, (size_t)count);
    s->length += count;
    s->text[s->length] = '\0';
}

void str_append(str *s, const char *text) {
    str_append_bytes(s, text, (int64_t)strlen(text));
}

void str_append_little(str *s, uint64_t value, int bytes) {
    unsigned char raw[8];
    little_store(raw, value, bytes);
    str_append_bytes(s, raw, bytes);
}

static void append_formatted(str *s, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = text_vformat(NULL, 0, format, arguments);
    if (length < 0) s->failed = true;
    if (reserve_bytes(s, length)) {
        text_vformat(s->text + s->length, (size_t)length + 1, format, again);
        s->length += length;
    }
    va_end(again);
}

void str_printf(str *s, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    append_formatted(s, format, arguments);
    va_end(arguments);
}

ott_status str_finish(const str *s) {
    if (!s->failed) return OTT_OK;
    return status_fail(OTT_ERR_MEMORY, "out of memory: a text of more than %" PRId64 " bytes", s->length);
}

void str_free(str *s) {
    mem_free(s->account, s->text);
    *s = (str){.account = s->account};
}

ott_status str_format(mem *account, char **out, const char *format, ...) {
    str s = {.account = account};
    va_list arguments;
    va_start(arguments, format);
    append_formatted(&s, format, arguments);
    va_end(arguments);
    ott_status status = str_finish(&s);
    if (status != OTT_OK) str_free(&s);
    *out = s.text;
    return status;
}

int str_utf8_length(const char *text, int64_t left) {
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) return 1;
    int length = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    /* range of the second byte: no overlong encoding, no surrogate, nothing above U+10FFFF */
    unsigned least = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned most = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (length > 1 && left > 1 && (p[1] < least || p[1] > most)) return 0;
    for (int i = 2; i < length && i < left; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return left < length ? -1 : length;
}

/* Returns the number of leading ASCII bytes, rounded down to a multiple of eight. */
static int64_t ascii_length(const char *text, int64_t length) {
    int64_t at = 0;
    for (uint64_t eight; at + 8 <= length; at += 8) {
        memcpy(&eight, text + at, 8);
        if (eight & UINT64_C(0x8080808080808080)) return at;
    }
    return at;
}

int64_t str_utf8_error(const char *text, int64_t length) {
    for (int64_t at = 0, step; at < length; at += step) {
        at += ascii_length(text + at, length - at);
        if (at == length) break;
        step = str_utf8_length(text + at, length - at);
        if (step <= 0) return at;
    }
    return -1;
}

/* Appends an ASCII character that JSON requires to be escaped. */
static void append_escaped(str *s, unsigned char c) {
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *found = c ? strchr(plain, c) : NULL;
    if (found)
        str_printf(s, "\\%c", letter[found - plain]);
    else
        str_printf(s, "\\u%04x", c);
}

void str_append_json(str *s, const char *text, int64_t length) {
    const unsigned char *p = (const unsigned char *)text;
    str_append(s, "\"");
    for (int64_t at = 0, step; at < length; at += step) {
        step = str_utf8_length(text + at, length - at);
        if (step <= 0) {
            str_append(s, "\xef\xbf\xbd");
            step = 1;
        } else if (p[at] < 0x20 || p[at] == '"' || p[at] == '\\') {
            append_escaped(s, p[at]);
        } else {
            str_append_bytes(s, p + at, step);
        }
    }
    str_append(s, "\"");
}

static int lower_letter(char c) {
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : (unsigned char)c;
}
static int smaller_of(int a, int b) {
    return a < b ? a : b;
}

/* Keeps only three rows of the edit-distance matrix. Its columns are the bytes of the shorter text. If this
   text has more than 255 bytes and the texts differ, returns the length of the longer text. */
int str_distance(const char *a, const char *b) {
    enum { LONGEST = 255 };
    int row[3][LONGEST + 1];
    size_t rows = strlen(a), columns = strlen(b);
    if (columns > rows) return str_distance(b, a);
    if (columns > LONGEST) return strcmp(a, b) == 0 ? 0 : rows < INT32_MAX ? (int)rows : INT32_MAX;
    for (int j = 0; j <= (int)columns; j++) row[0][j] = j;
    for (size_t i = 0; i < rows; i++) {
        const int *before = row[(i + 2) % 3], *last = row[i % 3];
        int *now = row[(i + 1) % 3];
        now[0] = (int)i + 1;
        for (size_t j = 0; j < columns; j++) {
            int replaced = last[j] + (lower_letter(a[i]) != lower_letter(b[j]));
            now[j + 1] = smaller_of(replaced, 1 + smaller_of(last[j + 1], now[j]));
            if (i > 0 && j > 0 && lower_letter(a[i]) == lower_letter(b[j - 1]) &&
                lower_letter(a[i - 1]) == lower_letter(b[j]))
                now[j + 1] = smaller_of(now[j + 1], before[j - 1] + 1);
        }
    }
    return row[rows % 3][columns];
}

/* True if one text begins with the other, and the shorter has at least 5 bytes and half of the longer's. */
static bool shares_prefix(const char *a, const char *b) {
    enum { ENOUGH = 5 };
    size_t x = strlen(a), y = strlen(b), common = x < y ? x : y;
    if (common < ENOUGH || 2 * common < (x > y ? x : y)) return false;
    for (size_t i = 0; i < common; i++)
        if (lower_letter(a[i]) != lower_letter(b[i])) return false;
    return true;
}

const char *str_nearest(const char *word, const char *const *candidates, int count) {
    int quarter = ((int)strlen(word) + 1) / 4, limit = quarter > 1 ? quarter : 1;
    int best = limit + 1;
    const char *nearest = NULL;
    for (int i = 0; i < count; i++) {
        int distance = str_distance(word, candidates[i]);
        if (distance > limit && shares_prefix(word, candidates[i])) distance = limit;
        if (distance >= best) continue;
        best = distance;
        nearest = candidates[i];
    }
    return nearest;
}

bool str_starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_ends_with(const char *text, const char *suffix) {
    size_t length = strlen(text), tail = strlen(suffix);
    return tail <= length && memcmp(text + length - tail, suffix, tail) == 0;
}

bool str_ends_with_any(const char *text, const char *const *suffixes) {
    while (*suffixes && !str_ends_with(text, *suffixes)) suffixes++;
    return *suffixes;
}

/* On a mismatch, the last star of the pattern so far takes one more byte. This needs no recursion. */
bool str_glob(const char *pattern, const char *text) {
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            resume = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

str_shown str_show(const char *text) {
    str_shown s;
    size_t length = strlen(text), kept_limit = sizeof s.text - 4; /* room for 3 dots and a NUL */
    size_t kept = length > kept_limit ? kept_limit : length;
    while (kept < length && kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80) kept--;
    snprintf(s.text, sizeof s.text, "%.*s%s", (int)kept, text, kept < length ? "..." : "");
    str_replace_controls(s.text, '?');
    return s;
}

const char *str_commas(int64_t value, char out[32]) {
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%" PRId64, value), at = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0 && digits[i - 1] != '-') out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

const char *str_duration(double seconds, char out[32]) {
    if (!(seconds >= 0 && seconds < 1e15)) return strcpy(out, "-:--:--"); /* NaN, infinity: no estimate yet */
    int64_t total = (int64_t)seconds;
    snprintf(out, 32, "%" PRId64 ":%02d:%02d", total / 3600, (int)(total / 60 % 60), (int)(total % 60));
    return out;
}
