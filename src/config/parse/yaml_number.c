/* config/parse/yaml_number: reads YAML 1.1's integers in other bases. config/parse/number reads decimal
   ones. */
#include "config/parse/yaml_number.h"
#include "config/parse/number.h"
#include <string.h>

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Reads all of `text` as digits in `base`. Ignores underscores. */
static bool read_base(const char *text, int base, int64_t *out) {
    int64_t value = 0;
    if (!*text || strspn(text, "_") == strlen(text)) return false;
    for (; *text; text++) {
        if (*text == '_') continue;
        int digit = digit_of(*text);
        if (digit >= base) return false;
        if (__builtin_mul_overflow(value, (int64_t)base, &value)) return false;
        if (__builtin_add_overflow(value, (int64_t)digit, &value)) return false;
    }
    *out = value;
    return true;
}

/* Reads 1:30:00 in base 60. Every number after the first must be below 60. */
static bool read_sexagesimal(const char *text, int64_t *out) {
    int64_t value = 0, part;
    if (*text == '0') return false;
    for (bool first = true;; first = false) {
        char digits[24];
        size_t span = strcspn(text, ":");
        if (span == 0 || span >= sizeof digits || (!first && span > 2)) return false;
        memcpy(digits, text, span);
        digits[span] = '\0';
        if (!read_base(digits, 10, &part) || (!first && part > 59)) return false;
        if (__builtin_mul_overflow(value, (int64_t)60, &value)) return false;
        if (__builtin_add_overflow(value, part, &value)) return false;
        if (!text[span]) return *out = value, true;
        text += span + 1;
    }
}

/* Reads 1e5, which is a text in PyYAML but a number in AutoModel. */
static bool read_exponent(const char *text, int64_t *out) {
    double real;
    if (!strpbrk(text, "eE") || !number_parse_real(text, &real)) return false;
    if (real < -9007199254740992.0 || real > 9007199254740992.0 || real != (double)(int64_t)real)
        return false;
    *out = (int64_t)real;
    return true;
}

static bool read_magnitude(const char *text, int64_t *out) {
    static const char letters[] = "bBoOxX";
    static const int bases[] = {2, 2, 8, 8, 16, 16};
    const char *letter = text[0] == '0' && text[1] ? strchr(letters, text[1]) : NULL;
    if (letter) return read_base(text + 2, bases[letter - letters], out);
    if (strchr(text, ':')) return read_sexagesimal(text, out);
    if (text[0] == '0' && text[1] && !strpbrk(text, ".eE")) return read_base(text + 1, 8, out);
    return number_parse_integer(text, out) || read_exponent(text, out);
}

bool yaml_integer(const char *text, int64_t *out) {
    bool minus = *text == '-', sign = minus || *text == '+';
    if (sign && digit_of(text[1]) > 9) return false;
    if (!read_magnitude(text + sign, out)) return false;
    if (minus) *out = -*out;
    return true;
}
