/* base/text/number: numbers as text for files, independent of the locale, and the order of numbers. */
#ifndef BASE_TEXT_NUMBER_H
#define BASE_TEXT_NUMBER_H

/* Writes the shortest decimal number that reads back as the same double. NaN and infinity become "null",
   because JSON has neither. Returns out. */
const char *number_json(double x, char out[32]);
/* Like number_json, for a value that was computed in float (a loss, a norm). If x is the value of a float,
   writes the shortest number that reads back as this float: 2.345, not 2.3450000286102295. Not for state that
   must be restored exactly. */
const char *number_metric(double x, char out[32]);
/* Like printf's %.*g, but always with a decimal point. Returns out. */
const char *number_digits(double x, int digits, char out[32]);
int number_compare(const void *a, const void *b); /* compares two doubles, for qsort */

#endif
