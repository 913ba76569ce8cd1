/* simd_probe for ISA level neon. */
#if defined(__aarch64__)
#define CPU_ISA_neon 1
#include "simd_probe_body.h"

static const simd_probe probe = PROBE("neon");
const simd_probe *const simd_probe_neon = &probe;
#else
#include "simd_probe.h"
const simd_probe *const simd_probe_neon = 0;
#endif
