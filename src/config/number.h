/*
 * config/number: numbers as text, both ways, the same in every locale.
 */
#ifndef CONFIG_NUMBER_H
#define CONFIG_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The whole of `text` is a decimal integer; an underscore may stand between two digits. */
bool number_parse_integer(const char *text, int64_t *out);
/* The whole of `text` is a finite decimal number: 1, 1.5, 1e-5, 5e5. */
bool number_parse_real(const char *text, double *out);
/* The shortest text that reads back to the same value, with a point or an exponent, into out[40]; returns
 * out. */
const char *number_print_real(double value, char *out);

#ifdef __cplusplus
}
#endif
#endif
