/* fp8/dtype: looks up the properties of number formats. */
#include "fp8/dtype.h"

#include <string.h>

typedef enum format_kind { FORMAT_HIGH, FORMAT_FP8, FORMAT_SCALE, FORMAT_INTEGER } format_kind;

typedef struct format {
    const char *name, *safetensors;
    format_kind kind;
} format;

static const format formats[OTT_DTYPE_COUNT] = {
#define X(constant, name, safetensors, bits, kind, largest)                                                  \
    [OTT_##constant] = {name, safetensors, FORMAT_##kind},
    OTT_DTYPE_MAP(X)
#undef X
};

const char *dtype_name(ott_dtype d) {
    bool known = (unsigned)d < OTT_DTYPE_COUNT;
    return known ? formats[d].name : "unknown"; /* messages print invalid values too */
}

const char *dtype_safetensors_name(ott_dtype d) {
    return formats[d].safetensors;
}

bool dtype_from_safetensors_name(const char *name, ott_dtype *out) {
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) {
        if (strcmp(formats[d].safetensors, name) == 0) return *out = (ott_dtype)d, true;
    }
    return false;
}

int64_t dtype_count_bytes(ott_dtype d, int64_t count) {
    return (count * dtype_bits(d) + 7) / 8;
}

int64_t dtype_bytes(ott_dtype d) {
    return dtype_count_bytes(d, 1);
}

bool dtype_is_fp8(ott_dtype d) {
    return (unsigned)d < OTT_DTYPE_COUNT && formats[d].kind == FORMAT_FP8;
}

bool dtype_is_high_precision(ott_dtype d) {
    return (unsigned)d < OTT_DTYPE_COUNT && formats[d].kind == FORMAT_HIGH;
}
