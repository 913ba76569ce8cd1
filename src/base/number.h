/* base/number: numbers as text for files, independent of the locale. */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

/* The shortest digits that read back as the same double. "null" for NaN and infinity, which JSON lacks.
   Returns out. */
const char *number_json(double x, char out[32]);
/* As number_json, for a value computed in float (a loss, a norm): if x is a float's value, the shortest
   digits that read back as this float: 2.345, not 2.3450000286102295. Not for state that must be restored
   exactly. */
const char *number_metric(double x, char out[32]);
/* As printf's %.*g, with a decimal point. Returns out. */
const char *number_digits(double x, int digits, char out[32]);

#endif
