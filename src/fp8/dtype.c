/* fp8/dtype: the table of number formats. */
#include "fp8/dtype.h"

#include <string.h>

typedef struct format_facts {
    const char *safetensors;
    int bits;
} format_facts;

static const format_facts facts[OTT_DTYPE_COUNT] = {
#define X(name, safetensors, bits) [OTT_##name] = {safetensors, bits},
    OTT_DTYPE_MAP(X)
#undef X
};

const char *dtype_name(ott_dtype d) {
    switch (d) {
    case OTT_F32: return "fp32";
    case OTT_BF16: return "bf16";
    case OTT_F16: return "fp16";
    case OTT_E4M3: return "e4m3";
    case OTT_E5M2: return "e5m2";
    case OTT_E8M0: return "e8m0";
    case OTT_U8: return "u8";
    case OTT_I32: return "i32";
    case OTT_I64: return "i64";
    case OTT_DTYPE_COUNT: break;
    }
    return "unknown"; /* messages print invalid values too */
}

const char *dtype_safetensors_name(ott_dtype d) {
    return facts[d].safetensors;
}

bool dtype_from_safetensors_name(const char *name, ott_dtype *out) {
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) {
        if (strcmp(facts[d].safetensors, name) == 0) return *out = (ott_dtype)d, true;
    }
    return false;
}

int64_t dtype_bytes(ott_dtype d) {
    return facts[d].bits / 8;
}

bool dtype_is_fp8(ott_dtype d) {
    return d == OTT_E4M3 || d == OTT_E5M2;
}

bool dtype_is_high_precision(ott_dtype d) {
    return d == OTT_F32 || d == OTT_BF16 || d == OTT_F16;
}
