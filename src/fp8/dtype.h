/* fp8/dtype: properties of number formats, one row of OTT_DTYPE_MAP (ottava/types.h) each. */
#ifndef FP8_DTYPE_H
#define FP8_DTYPE_H

#include "base/anywhere.h"
#include "ottava/types.h"
#include <stdbool.h>
#include <stdint.h>

const char *dtype_name(ott_dtype d);             /* name, such as "bf16"; "unknown" for an invalid format */
const char *dtype_safetensors_name(ott_dtype d); /* name, such as "BF16" */
bool dtype_from_safetensors_name(const char *name, ott_dtype *out);
/* Returns the bytes of `count` elements. The last byte may be only partly used. */
int64_t dtype_count_bytes(ott_dtype d, int64_t count);
int64_t dtype_bytes(ott_dtype d);          /* bytes of one element, rounded up */
bool dtype_is_fp8(ott_dtype d);            /* true for E4M3 and E5M2 */
bool dtype_is_high_precision(ott_dtype d); /* true for F32, BF16 and F16 */
/* Returns the bits of one element. */
ANYWHERE int dtype_bits(ott_dtype d) {
    switch (d) {
#define X(constant, name, safetensors, bits, kind, largest)                                                  \
    case OTT_##constant: return bits;
        OTT_DTYPE_MAP(X)
#undef X
    case OTT_DTYPE_COUNT: break;
    }
    return 0;
}
/* Returns the format's largest finite value. */
ANYWHERE float dtype_max(ott_dtype d) {
    switch (d) {
#define X(constant, name, safetensors, bits, kind, largest)                                                  \
    case OTT_##constant: return largest;
        OTT_DTYPE_MAP(X)
#undef X
    case OTT_DTYPE_COUNT: break;
    }
    return 0.0f;
}

#endif
