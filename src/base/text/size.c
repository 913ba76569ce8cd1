/* base/text/size: checked products and sums, and sizes as text. */
#include "base/text/size.h"
#include <inttypes.h>
#include <stdio.h>

bool size_multiply(int64_t a, int64_t b, int64_t *out) {
    int64_t product;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}

bool size_add(int64_t a, int64_t b, int64_t *out) {
    int64_t sum;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

ott_status size_product(const char *what, const int64_t *factors, int count, int64_t *out) {
    int64_t product = 1;
    bool good = true;
    for (int i = 0; i < count && good; i++) good = size_multiply(product, factors[i], &product);
    if (good) return *out = product, OTT_OK;
    char list[256] = "";
    size_t length = 0;
    for (int i = 0; i < count && length + 32 < sizeof list; i++)
        length +=
            (size_t)snprintf(list + length, sizeof list - length, "%s%" PRId64, i ? " x " : "", factors[i]);
    return status_fail(OTT_ERR_CONFIG, "%s = %s is too large for any memory: lower these values", what, list);
}

const char *size_text(int64_t bytes, char out[SIZE_TEXT]) {
    double kib = (double)bytes / 1024.0, mib = kib / 1024.0, gib = mib / 1024.0;
    if (gib >= 1.0)
        snprintf(out, SIZE_TEXT, "%.2f GiB", gib);
    else if (mib >= 1.0)
        snprintf(out, SIZE_TEXT, "%.1f MiB", mib);
    else
        snprintf(out, SIZE_TEXT, "%" PRId64 " bytes", bytes);
    return out;
}
