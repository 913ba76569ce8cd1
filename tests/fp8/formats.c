/* formats: computes the values and codes of the FP8 formats from their definition. */
#include "formats.h"

double format_value(int code, ott_dtype d) {
    int mantissa_bits = d == OTT_E4M3 ? 3 : 2, bias = d == OTT_E4M3 ? 7 : 15;
    int exponent = code >> mantissa_bits;
    double fraction = ldexp(code & ((1 << mantissa_bits) - 1), -mantissa_bits);
    return exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1.0 + fraction, exponent - bias);
}

int format_top(ott_dtype d) {
    return d == OTT_E4M3 ? 0x7e : 0x7b;
}

uint8_t format_search(float x, ott_dtype d, cast_mode mode) {
    if (isnan(x)) return 0x7f;
    uint8_t sign = signbit(x) ? 0x80 : 0;
    int top = format_top(d), best = top + 1;
    double magnitude = fabs((double)x);
    /* for larger numbers, differences would be rounded in double */
    if (magnitude < format_value(top + 1, d)) {
        for (int code = top; code >= 0; code--) {
            double now = fabs(magnitude - format_value(code, d)),
                   before = fabs(magnitude - format_value(best, d));
            if (now < before || (now == before && code % 2 == 0)) best = code;
        }
    }
    if (best > top && mode == CAST_SATURATE) best = top;
    return (uint8_t)(sign | best);
}
