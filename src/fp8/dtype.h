/* fp8/dtype: names, sizes and ranges of number formats. */
#ifndef FP8_DTYPE_H
#define FP8_DTYPE_H

#include "base/anywhere.h"
#include "ottava/types.h"
#include <float.h>
#include <stdbool.h>
#include <stdint.h>

const char *dtype_name(ott_dtype d);             /* name, such as "bf16" */
const char *dtype_safetensors_name(ott_dtype d); /* name, such as "BF16" */
bool dtype_from_safetensors_name(const char *name, ott_dtype *out);
int64_t dtype_bytes(ott_dtype d);          /* bytes of one element */
bool dtype_is_fp8(ott_dtype d);            /* true for E4M3 and E5M2 */
bool dtype_is_high_precision(ott_dtype d); /* true for F32, BF16 and F16 */
/* Returns the format's largest finite value. */
ANYWHERE float dtype_max(ott_dtype d) {
    switch (d) {
    case OTT_F32: return FLT_MAX;
    case OTT_BF16: return 0x1.fep127f;
    case OTT_F16: return 65504.0f;
    case OTT_E4M3: return 448.0f;
    case OTT_E5M2: return 57344.0f;
    case OTT_E8M0: return 0x1p127f;
    case OTT_U8: return 255.0f;
    case OTT_I32: return 0x1p31f; /* INT32_MAX and INT64_MAX, rounded to fp32 */
    case OTT_I64: return 0x1p63f;
    case OTT_DTYPE_COUNT: break;
    }
    return 0.0f;
}

#endif
