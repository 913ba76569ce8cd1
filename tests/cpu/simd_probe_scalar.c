/* simd_probe for ISA level scalar. */
#define CPU_ISA_scalar 1
#include "simd_probe_body.h"

static const simd_probe probe = PROBE("scalar");
const simd_probe *const simd_probe_scalar = &probe;
