/* base/text/size: sizes in bytes and elements. Sizes from a configuration or file are multiplied and added
   with these functions, so that they cannot overflow. Also writes sizes as text. */
#ifndef BASE_TEXT_SIZE_H
#define BASE_TEXT_SIZE_H

#include "base/status.h"
#include <stdbool.h>

/* Set *out to a * b, or a + b, for a, b >= 0. Return false, and keep *out, if a or b is negative or on
   overflow. */
bool size_multiply(int64_t a, int64_t b, int64_t *out);
bool size_add(int64_t a, int64_t b, int64_t *out);
/* Sets *out to the product of factors[count]. On overflow returns OTT_ERR_CONFIG with `what` in its text. */
ott_status size_product(const char *what, const int64_t *factors, int count, int64_t *out);

/* Greatest common divisor. a and b must be 0 or more, and not both 0. */
static inline int64_t size_common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline int64_t size_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t size_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

enum { SIZE_TEXT = 32 };
/* Writes a size, "29.92 GiB", "60.0 MiB", "512 bytes"; returns out. */
const char *size_text(int64_t bytes, char out[SIZE_TEXT]);

#endif
