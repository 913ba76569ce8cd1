/* cpu/peak: runs multiply-add instructions at their peak rate, which limits the speed of GEMMs. */
#include "cpu/simd/simd.h"
#include "cpu/isa.h"

/* Number of independent sums: enough to hide the latency of FMAs, few enough for the registers. */
#if defined(CPU_ISA_avx512)
enum { CHAINS = 24 };
#elif defined(CPU_ISA_avx2) || defined(CPU_ISA_neon)
enum { CHAINS = 6 };
#else
enum { CHAINS = 1 };
#endif

/* Hides a value from the compiler, which would else compute the sums at compile time or remove them. */
#if defined(CPU_ISA_avx512)
#define KEEP(x) __asm__ volatile("" : "+v"(x))
#elif defined(CPU_ISA_avx2)
#define KEEP(x) __asm__ volatile("" : "+x"((x).a), "+x"((x).b))
#elif defined(CPU_ISA_neon)
#define KEEP(x) __asm__ volatile("" : "+w"((x).a), "+w"((x).b), "+w"((x).c), "+w"((x).d))
#else
#define KEEP(x) __asm__ volatile("" : "+m"(x))
#endif

SIMD v16 multiply_add(v16 factor, v16 sum, bool pairs) {
#if SIMD_HAS_PAIRS
    if (pairs) return v16_pair_fma(factor, factor, sum);
#endif
    (void)pairs;
    return v16_fma(sum, factor, factor);
}

SIMD double multiply_adds(int64_t rounds, bool pairs) {
    v16 factor = v16_set1(0.5f), sum[CHAINS];
    KEEP(factor);
    SIMD_UNROLL for (int i = 0; i < CHAINS; i++) {
        sum[i] = v16_set1((float)i);
        KEEP(sum[i]);
    }
    for (int64_t round = 0; round < rounds; round++) {
        SIMD_UNROLL for (int i = 0; i < CHAINS; i++) sum[i] = multiply_add(factor, sum[i], pairs);
        SIMD_UNROLL for (int i = 0; i < CHAINS; i++) KEEP(sum[i]);
    }
    return 2.0 * (pairs ? 2 : 1) * 16 * CHAINS * (double)rounds;
}

double ISA(burst)(ott_dtype d, int64_t rounds) {
    return multiply_adds(rounds, SIMD_HAS_PAIRS && cpu_is_pair_format(d));
}
