/* config/parse/number: uses C++'s charconv, because the C library's conversions depend on the locale. */
#include "config/parse/number.h"
#include <charconv>
#include <cmath>
#include <cstring>

namespace {

constexpr size_t longest = 64;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Copies a number without underscores and leading plus. Returns the length; 0 if the text is no number. */
size_t strip(const char *text, char (&out)[longest]) {
    size_t length = 0;
    bool plus = *text == '+';
    text += plus;
    if (!is_digit(*text) && *text != '.' && (plus || *text != '-')) return 0;
    for (const char *at = text; *at; at++) {
        if (*at == '_') {
            if (at == text || !is_digit(at[-1]) || !is_digit(at[1])) return 0;
            continue;
        }
        if (length + 1 == longest) return 0;
        out[length++] = *at;
    }
    return length;
}

} // namespace

extern "C" bool number_parse_integer(const char *text, int64_t *out) {
    char digits[longest];
    size_t length = strip(text, digits);
    if (length == 0) return false;
    auto [end, error] = std::from_chars(digits, digits + length, *out);
    return error == std::errc() && end == digits + length;
}

extern "C" bool number_parse_real(const char *text, double *out) {
    char digits[longest];
    size_t length = strip(text, digits);
    if (length == 0) return false;
    auto [end, error] = std::from_chars(digits, digits + length, *out);
    return error == std::errc() && end == digits + length && std::isfinite(*out);
}

extern "C" const char *number_print_real(double value, char *out) {
    char *end = std::to_chars(out, out + 36, value).ptr;
    *end = '\0';
    if (std::strpbrk(out, ".en") == nullptr) std::strcpy(end, ".0");
    return out;
}
