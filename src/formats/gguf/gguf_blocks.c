/* formats/gguf/gguf_blocks: decodes blocks. The layouts are documented in ggml's ggml-common.h. */
#include "formats/gguf/gguf_blocks.h"
#include "base/little.h"
#include "fp8/cast.h"
#include <stddef.h>

static float load_f16(const uint8_t *at) {
    return cast_from_f16((uint16_t)little_load(at, 2));
}

static void decode_q8_0(const uint8_t *b, float *out) {
    float d = load_f16(b);
    for (int i = 0; i < 32; i++) out[i] = (float)(int8_t)b[2 + i] * d;
}

/* Byte i % 16 of `low` has the low 4 bits of code i: the lower half if i < 16. Bit i of `high` is bit 4. */
static void unpack_codes(const uint8_t *low, uint64_t high, int code[32]) {
    for (int i = 0; i < 16; i++) {
        code[i] = (low[i] & 15) | (int)(high >> i & 1) << 4;
        code[i + 16] = low[i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
    }
}

/* out = d * (code - zero) */
static void decode_scaled(const uint8_t *b, const uint8_t *low, uint64_t high, int zero, float *out) {
    float d = load_f16(b);
    int code[32];
    unpack_codes(low, high, code);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(code[i] - zero);
}

/* out = d * code + m */
static void decode_shifted(const uint8_t *b, const uint8_t *low, uint64_t high, float *out) {
    float d = load_f16(b), m = load_f16(b + 2);
    int code[32];
    unpack_codes(low, high, code);
    for (int i = 0; i < 32; i++) out[i] = d * (float)code[i] + m;
}

static void decode_q4_0(const uint8_t *b, float *out) {
    decode_scaled(b, b + 2, 0, 8, out);
}

static void decode_q4_1(const uint8_t *b, float *out) {
    decode_shifted(b, b + 4, 0, out);
}

static void decode_q5_0(const uint8_t *b, float *out) {
    decode_scaled(b, b + 6, little_load(b + 2, 4), 16, out);
}

static void decode_q5_1(const uint8_t *b, float *out) {
    decode_shifted(b, b + 8, little_load(b + 4, 4), out);
}

/* Scale (or minimum, if `at` is 4) of group g of a block of 256, from its 12 bytes of 6-bit numbers. */
static float group_scale(const uint8_t *scales, int at, int g) {
    if (g < 4) return (float)(scales[at + g] & 63);
    int low = at == 0 ? scales[4 + g] & 15 : scales[4 + g] >> 4;
    return (float)(low | (scales[at + g - 4] >> 2 & 48));
}

/* Eight groups of 32 elements. `high` has a fifth bit per code, or is NULL. */
static void decode_groups(const uint8_t *b, const uint8_t *high, const uint8_t *low, float *out) {
    float d = load_f16(b), dmin = load_f16(b + 2);
    for (int g = 0; g < 8; g++) {
        float scale = d * group_scale(b + 4, 0, g), least = dmin * group_scale(b + 4, 4, g);
        for (int i = 0; i < 32; i++) {
            int code = low[g / 2 * 32 + i] >> g % 2 * 4 & 15;
            if (high) code |= (high[i] >> g & 1) << 4;
            out[g * 32 + i] = scale * (float)code - least;
        }
    }
}

static void decode_q4_k(const uint8_t *b, float *out) {
    decode_groups(b, NULL, b + 16, out);
}

static void decode_q5_k(const uint8_t *b, float *out) {
    decode_groups(b, b + 16, b + 48, out);
}

/* Sixteen groups of 16 elements. The halves of the block have 64 bytes of low bits and 32 of high bits. */
static void decode_q6_k(const uint8_t *b, float *out) {
    const uint8_t *high = b + 128, *scales = b + 192;
    float d = load_f16(b + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, quarter = i / 32 % 4;
        int low = b[half * 64 + i % 64] >> quarter / 2 * 4 & 15;
        int code = low | (high[half * 32 + i % 32] >> quarter * 2 & 3) << 4;
        out[i] = d * (float)(int8_t)scales[i / 16] * (float)(code - 32);
    }
}

const gguf_format gguf_formats[GGUF_FORMAT_COUNT] = {
    {"F32", GGUF_F32, 1, 4, OTT_F32, NULL},
    {"F16", GGUF_F16, 1, 2, OTT_F16, NULL},
    {"BF16", GGUF_BF16, 1, 2, OTT_BF16, NULL},
    {"Q4_0", GGUF_Q4_0, 32, 18, OTT_DTYPE_COUNT, decode_q4_0},
    {"Q4_1", GGUF_Q4_1, 32, 20, OTT_DTYPE_COUNT, decode_q4_1},
    {"Q5_0", GGUF_Q5_0, 32, 22, OTT_DTYPE_COUNT, decode_q5_0},
    {"Q5_1", GGUF_Q5_1, 32, 24, OTT_DTYPE_COUNT, decode_q5_1},
    {"Q8_0", GGUF_Q8_0, 32, 34, OTT_DTYPE_COUNT, decode_q8_0},
    {"Q4_K", GGUF_Q4_K, 256, 144, OTT_DTYPE_COUNT, decode_q4_k},
    {"Q5_K", GGUF_Q5_K, 256, 176, OTT_DTYPE_COUNT, decode_q5_k},
    {"Q6_K", GGUF_Q6_K, 256, 210, OTT_DTYPE_COUNT, decode_q6_k}};

const gguf_format *gguf_format_find(uint32_t type) {
    for (int i = 0; i < GGUF_FORMAT_COUNT; i++)
        if ((uint32_t)gguf_formats[i].type == type) return &gguf_formats[i];
    return NULL;
}
