/* base/text/text: printf and number parsing in the C locale, so that the decimal separator is always a point,
   whatever locale the program has set. */
#ifndef BASE_TEXT_TEXT_H
#define BASE_TEXT_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/* Like snprintf and vsnprintf, in the C locale. */
int text_format(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
int text_vformat(char *out, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));
struct tm;
size_t text_strftime(char *out, size_t size, const char *format, const struct tm *time)
    __attribute__((format(strftime, 3, 0)));
/* Like strtod and strtof, in the C locale. end may be NULL. */
double text_to_double(const char *text, char **end);
float text_to_float(const char *text, char **end);

#endif
