/* base/text/number: numbers as text for files, independent of the locale. */
#include "base/text/number.h"
#include "base/text/text.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

static const char *shortest(double x, bool as_float, char out[32]) {
    if (!isfinite(x)) return strcpy(out, "null");
    int digits = 1;
    for (; digits < 17; digits++) {
        text_format(out, 32, "%.*e", digits - 1, x);
        if (as_float ? text_to_float(out, NULL) == (float)x : text_to_double(out, NULL) == x) break;
    }
    /* %g would write 200 with few digits as 2e+02. */
    int exponent = x != 0 ? (int)floor(log10(fabs(x))) : 0;
    if (exponent >= digits && exponent < 16) digits = exponent + 1;
    text_format(out, 32, "%.*g", digits, x);
    return out;
}

const char *number_json(double x, char out[32]) {
    return shortest(x, false, out);
}

const char *number_metric(double x, char out[32]) {
    return shortest(x, fabs(x) < 3.4e38 && (double)(float)x == x, out);
}

const char *number_digits(double x, int digits, char out[32]) {
    text_format(out, 32, "%.*g", digits > 17 ? 17 : digits, x);
    return out;
}

int number_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
