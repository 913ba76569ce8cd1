/* base/text/text: formatted text and numbers in the C locale. */
#include "base/text/text.h"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Sets the C locale for this thread and returns the previous locale. In glibc and musl the locale "C" is a
   constant, so it needs no memory and is not freed. */
static locale_t use_c_locale(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

int text_vformat(char *out, size_t size, const char *format, va_list arguments) {
    locale_t before = use_c_locale();
    int length = vsnprintf(out, size, format, arguments);
    uselocale(before);
    return length;
}

int text_format(char *out, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = text_vformat(out, size, format, arguments);
    va_end(arguments);
    return length;
}

size_t text_strftime(char *out, size_t size, const char *format, const struct tm *time) {
    locale_t before = use_c_locale();
    size_t length = strftime(out, size, format, time);
    uselocale(before);
    return length;
}

double text_to_double(const char *text, char **end) {
    locale_t before = use_c_locale();
    double x = strtod(text, end);
    uselocale(before);
    return x;
}

float text_to_float(const char *text, char **end) {
    locale_t before = use_c_locale();
    float x = strtof(text, end);
    uselocale(before);
    return x;
}
