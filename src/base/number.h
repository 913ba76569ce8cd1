/* base/number: numbers as files want them, whatever the locale of the program. */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

/* The fewest digits that read back as the same double; "null" for NaN and infinity, which JSON does not have.
 * Returns out. */
const char *number_json(double x, char out[32]);
/* The same for what was measured in float (a loss, a norm): a double that is a float's value gets the fewest
   digits that read back as that float: 2.345, not 2.3450000286102295. Not for state that must come back
   exactly as a double. */
const char *number_metric(double x, char out[32]);
/* Like printf's %.*g, with a point. Returns out. */
const char *number_digits(double x, int digits, char out[32]);

#endif
