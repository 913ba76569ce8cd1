/* simd_probe for ISA level avx512. */
#define CPU_ISA_avx512 1
#if defined(__x86_64__)
#if defined(__clang__)
#include "fp8/cast.h"
#pragma clang attribute push(                                                                                \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi,bmi2,popcnt"))),    \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi,bmi2,popcnt")
#endif
#include "simd_probe_body.h"

static const simd_probe probe = PROBE("avx512");
const simd_probe *const simd_probe_avx512 = &probe;
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "simd_probe.h"
const simd_probe *const simd_probe_avx512 = 0;
#endif
