/*
 * cpu/cpu: the door of the CPU backend: opens a device whose op table runs on this machine's threads with the
 * best instruction set it has. Every ISA level and every number of threads gives the same bits.
 */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "tensor/device.h"

#define CPU_ISA_VARIABLE "OTTAVA_ISA" /* environment variable that names a ISA level */
#define CPU_ISAS_MAX     5

extern const backend_capabilities cpu_capabilities;

/* `threads` as pool_open takes it: 0 is all cores. `isa`: "scalar", "avx2", "avx512", "avx512bf16", "amx" or "neon"; NULL takes
   OTTAVA_ISA if that is set and not empty, else the best available. The device is closed with device_close;
   `account` must outlive it. OTT_ERR_ARGUMENT for a ISA level that does not exist, OTT_ERR_UNSUPPORTED for one
   this machine or build does not have. */
ott_status cpu_open(mem *account, int threads, const char *isa, device **out);
/* ISA levels that cpu_open takes on this machine, worst first, into names[CPU_ISAS_MAX]; returns how many. */
int cpu_isas(const char **names);
/* Does the device compute products of ACCUMULATE_TILE32 with a tile unit? */
bool cpu_has_tiles(const device *d);
/* Measures for some milliseconds how many times as fast an FP8 product is in the order ACCUMULATE_TILE32 as in one chain, on a
   device with a tile unit. *out is 0 on any other device. */
ott_status cpu_tiles_speed(device *d, double *out);
/* Why this process cannot use the tile unit of this processor. Returns NULL if it can, or if there is none. */
const char *cpu_tiles_refusal(void);
/* What the user should know of an opened CPU device, or NULL: its tile unit gives wrong bits, so it is not used. */
const char *cpu_warning(const device *d);
/* The unit of a CPU device that multiplies operands of this format, and that device_peak measures: "fp32 multiply-add" or "bf16
   dot product". Returns NULL if the device is no CPU. */
const char *cpu_peak_unit(const device *d, ott_dtype format);

#endif
