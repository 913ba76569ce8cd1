/* cpu/quantize/scale: computes 16 scales together (fp8/scale.h), because a tensor has many block scales.
   Stores decode scales as E8M0 codes. */
#ifndef CPU_QUANTIZE_SCALE_H
#define CPU_QUANTIZE_SCALE_H

#include "cpu/quantize/quantize.h"

/* True if scale_neighbours supports these options. If not, scales are computed one by one. */
static inline bool scale_has_lanes(const scale_options *o) {
    return o->rule == SCALE_E8M0 || (o->rule == SCALE_TE && o->margin == 0);
}

/* SCALE_TE with margin 0. max / amax is never subnormal, so clearing its mantissa gives a power of two. */
SIMD v16 scale_te_lanes(v16 amax, float max, const scale_options *o) {
    const v16 one = v16_set1(1.0f), infinity = v16_set1(INFINITY);
    v16 epsilon = v16_set1(o->epsilon);
    amax = v16_select(v16_lt(amax, epsilon), epsilon, amax);
    v16 scale = v16_div(v16_set1(max), amax);
    scale = v16_select(v16_eq(scale, infinity), v16_set1(o->infinite), scale);
    if (o->power_of_two) scale = v16_from_bits(v16i_and(v16_bits(scale), v16i_set1(0x7f800000u)));
    scale = v16_select(v16_eq(amax, v16_zero()), one, scale);
    return v16_select(v16_lt(amax, infinity), scale, one);
}

/* SCALE_E8M0: 2^(127 - code). code: exponent field of amax / max, rounded up; 0 if amax / max <= 2^-127. */
SIMD v16 scale_e8m0_lanes(v16 amax, float max) {
    v16i bits = v16_bits(v16_mul(amax, v16_set1(1.0f / max)));
    v16i normal = v16i_set1(0x7fffff), subnormal = v16i_set1(0x3fffff);
    v16i code = v16i_shr(v16i_add(bits, v16i_select(v16i_gt(bits, normal), normal, subnormal)), 23);
    v16 scale = v16_from_bits(v16i_shl(v16i_sub(v16i_set1(254), code), 23));
    v16 of_infinity = v16_select(v16_isnan(amax), v16_set1(NAN), v16_set1(0x1p-127f));
    return v16_select(v16_lt(amax, v16_set1(INFINITY)), scale, of_infinity);
}

/* Computes scales and fp32 scale_invs of the consecutive groups [first, first + count) from their amaxes. */
static inline void scale_neighbours(const quantize_use *s, int64_t first, int64_t count) {
    const scale_options *o = &s->spec->scale;
    const float max = dtype_max(s->spec->format);
    for (int64_t g = first, end = first + count; g < end; g += 16) {
        v16 amax = v16_load_n(s->at->amax + g, end - g);
        v16 scale = o->rule == SCALE_TE ? scale_te_lanes(amax, max, o) : scale_e8m0_lanes(amax, max);
        v16_store_n(s->at->scale + g, scale, end - g);
        if (s->scale_inv) v16_store_n(s->scale_inv + g, v16_div(v16_set1(1.0f), scale), end - g);
    }
}

/* If scale_inv is E8M0, stores it for the blocks (mn, k) to (mn + count - 1, k). Their scales are known. */
static inline void scale_store_codes(const quantize_use *s, int64_t mn, int64_t k, int64_t count) {
    const qdata *at = s->at;
    const float *scale = at->scale + mn + k * at->k_step;
    if (s->scale_inv) return;
    for (int64_t i = 0, end; i < count; i = end) {
        uint8_t *code = (uint8_t *)at->scale_inv + scale_tiles_index(at->tiles, mn + i, k);
        int64_t run = SCALE_TILE_RUN - (at->tiles.mn + mn + i) % SCALE_TILE_RUN;
        end = run < count - i ? i + run : count;
        for (int64_t n = i; n < end; n++, code += SCALE_TILE_STEP) *code = scale_e8m0_code(scale[n]);
    }
}

#endif
