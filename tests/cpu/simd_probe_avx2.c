/* simd_probe for ISA level avx2. */
#define CPU_ISA_avx2 1
#if defined(__x86_64__)
#if defined(__clang__)
#include "fp8/cast.h"
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,popcnt")
#endif
#include "simd_probe_body.h"

static const simd_probe probe = PROBE("avx2");
const simd_probe *const simd_probe_avx2 = &probe;
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "simd_probe.h"
const simd_probe *const simd_probe_avx2 = 0;
#endif
