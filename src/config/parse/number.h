/* config/parse/number: converts numbers from and to text, independent of the locale. */
#ifndef CONFIG_PARSE_NUMBER_H
#define CONFIG_PARSE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Parses a 64-bit decimal integer; underscores between digits are allowed. False for other text. */
bool number_parse_integer(const char *text, int64_t *out);
/* Parses a finite decimal number: 1, 1.5, 1e-5, 5e5. False if `text` is no such number. */
bool number_parse_real(const char *text, double *out);
/* Writes the shortest text that reads back to the same value, with a point or an exponent, into out[40].
   Returns out. */
const char *number_print_real(double value, char *out);

#ifdef __cplusplus
}
#endif
#endif
