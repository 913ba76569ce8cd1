/*
 * cpu/simd/tiles: AMX's tile unit: eight registers per thread, each of 16 rows of 64 bytes. Only the levels
 * amx and amx_emulated have it, in addition to cpu/simd/avx512bf16.h.
 *
 *   tile_configure()              sets all registers to full tiles of zeros; a thread must call it first
 *   tile_release()                empties the registers, so that the operating system need not save them
 *   tile_zero(t)                  sets a register to zeros
 *   tile_load(t, p, step)         loads 16 rows of 16 floats or pairs, `step` floats apart
 *   tile_store(t, p, step)        stores 16 rows
 *   tile_multiply(c, a, b)        TDPBF16PS: c[16][16] += a[16][16 pairs] * b[16 pairs][16]
 *
 * Registers are literal digits (0 to 7), because GCC pastes them into the names of operands. TDPBF16PS (Intel
 * SDM) adds the products of the low halves of the pairs by fused multiply-adds from 0, and separately the
 * products of the high halves. It adds these two sums, and adds the result to c. It rounds to nearest even
 * and treats subnormal operands and results as zero. So for ACCUMULATE_TILE32 one half of a pair must be an
 * even term and the other an odd term.
 */
#ifndef CPU_SIMD_TILES_H
#define CPU_SIMD_TILES_H

#include <stdint.h>
#include <string.h>

enum { TILE_SIDE = 16, TILE_FLOATS = TILE_SIDE * TILE_SIDE, TILE_REGISTERS = 8 };

#ifdef CPU_ISA_amx
#include <immintrin.h>

/* The operand of LDTILECFG in memory. */
typedef struct tile_configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_configuration;
_Static_assert(sizeof(tile_configuration) == 64, "the layout of LDTILECFG");

static inline void tile_configure(void) {
    static const _Alignas(64) tile_configuration full = {.palette = 1,
                                                         .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                                         .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&full);
}
static inline void tile_release(void) {
    _tile_release();
}
#define tile_zero(t)           _tile_zero(t)
#define tile_store(t, p, step) _tile_stored(t, p, (step) * (int64_t)sizeof(float))
#define tile_multiply(c, a, b) _tile_dpbf16ps(c, a, b)
/* The asm statement is needed because GCC 12's _tile_loadd does not declare that it reads memory. */
#define tile_load(t, p, step)                                                                                \
    do {                                                                                                     \
        __asm__ volatile("" ::: "memory");                                                                   \
        _tile_loadd(t, p, (step) * (int64_t)sizeof(float));                                                  \
    } while (0)

#else /* emulation: the documented operation in plain C */

#include "base/fmath.h"
#include "cpu/tiles.h"

typedef float tile_register[TILE_SIDE][TILE_SIDE];

/* A thread's registers. Without tile_configure every result is NaN; a real tile unit would raise a fault. */
static _Thread_local struct {
    bool is_configured;
    tile_register of[TILE_REGISTERS];
} tile_state;

static inline void tile_configure(void) {
    memset(&tile_state, 0, sizeof tile_state);
    tile_state.is_configured = true;
}
static inline void tile_release(void) {
    memset(&tile_state, 0, sizeof tile_state);
}
static inline void tile_zero(int t) {
    memset(tile_state.of[t], 0, sizeof(tile_register));
}
static inline void tile_load(int t, const float *p, int64_t step) {
    for (int i = 0; i < TILE_SIDE; i++) memcpy(tile_state.of[t][i], p + i * step, sizeof tile_state.of[t][i]);
}
static inline void tile_store(int t, float *p, int64_t step) {
    for (int i = 0; i < TILE_SIDE; i++)
        for (int j = 0; j < TILE_SIDE; j++)
            p[i * step + j] = tile_state.is_configured ? tile_state.of[t][i][j] : NAN;
}
/* Returns x, or a zero with x's sign if x is subnormal. */
static inline float tile_flushed(float x) {
    uint32_t bits = fmath_bits(x);
    return fmath_from_bits(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}
/* Return the bf16 number in the low, or the high, half of a pair. */
static inline float tile_low(float pair) {
    return tile_flushed(fmath_from_bits(fmath_bits(pair) << 16));
}
static inline float tile_high(float pair) {
    return tile_flushed(fmath_from_bits(fmath_bits(pair) & 0xffff0000u));
}
static __attribute__((noinline, unused)) void tile_multiply(int c, int a, int b) {
    for (int m = 0; m < TILE_SIDE; m++) {
        float low[TILE_SIDE] = {0}, high[TILE_SIDE] = {0};
        for (int k = 0; k < TILE_SIDE; k++) {
            float pair = tile_state.of[a][m][k];
            for (int n = 0; n < TILE_SIDE; n++) {
                float other = tile_state.of[b][k][n];
                low[n] = tile_flushed(fmaf(tile_low(pair), tile_low(other), low[n]));
                high[n] = tile_flushed(fmaf(tile_high(pair), tile_high(other), high[n]));
            }
        }
        for (int n = 0; n < TILE_SIDE; n++) {
            float *sum = &tile_state.of[c][m][n], before = tile_flushed(*sum);
            /* for a test only: a wrong order of the two additions, which gives other bits */
            bool wrong = &cpu_tiles_fault && cpu_tiles_fault;
            *sum =
                tile_flushed(wrong ? (before + low[n]) + high[n] : before + tile_flushed(low[n] + high[n]));
        }
    }
}

#endif

#endif
