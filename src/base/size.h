/* base/size: sizes in bytes and elements. What comes from outside (a configuration, a file) is multiplied and
   added by these functions, so that no product wraps around; and sizes as a person reads them. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include "base/status.h"
#include <stdbool.h>

/* *out = a b, or a + b, for a, b >= 0; false, and *out untouched, when one is negative or the result is more
 * than INT64_MAX. */
bool size_multiply(int64_t a, int64_t b, int64_t *out);
bool size_add(int64_t a, int64_t b, int64_t *out);
/* *out = the product of factors[count]. OTT_ERR_CONFIG names `what` and the factors when it is not to be had.
 */
ott_status size_product(const char *what, const int64_t *factors, int count, int64_t *out);

/* The largest number that divides both, of which one is positive and none negative. */
static inline int64_t size_common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

enum { SIZE_TEXT = 32 };
/* "29.92 GiB", "60.0 MiB", "512 bytes"; returns out. */
const char *size_text(int64_t bytes, char out[SIZE_TEXT]);

#endif
