/*
 * cpu/cpu: interface of the CPU backend. It opens a device that runs the op table on a thread pool, with the
 * best instruction set (ISA level) of this machine. All ISA levels and thread counts give the same bits.
 */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "tensor/device.h"

#define CPU_ISA_VARIABLE "OTTAVA_ISA" /* environment variable that names an ISA level */
#define CPU_ISAS_MAX     5

extern const backend_capabilities cpu_capabilities;

/* Opens a CPU device with `threads` threads (0: all cores). isa: "scalar", "avx2", "avx512", "avx512bf16",
   "amx" or "neon"; NULL uses OTTAVA_ISA if it is set and not empty, else the best level. Close the device
   with device_close; `account` must outlive the device. Returns OTT_ERR_ARGUMENT for an unknown level,
   OTT_ERR_UNSUPPORTED for a level that this machine or build does not have. */
ott_status cpu_open(mem *account, int threads, const char *isa, device **out);
/* Writes the ISA levels that cpu_open accepts to names[CPU_ISAS_MAX], slowest first. Returns their number. */
int cpu_isas(const char **names);
/* True if the device computes ACCUMULATE_TILE32 products with a tile unit. */
bool cpu_has_tiles(const device *d);
/* Measures for some milliseconds how much faster an FP8 product is with ACCUMULATE_TILE32 than with
   ACCUMULATE_FP32. *out is the ratio (above 1: the tile unit is faster); 0 on a device without tile unit. */
ott_status cpu_tiles_speed(device *d, double *out);
/* Returns why this process cannot use the processor's tile unit; NULL if it can or the processor has none. */
const char *cpu_tiles_refusal(void);
/* Returns a warning to print after cpu_open (the tile unit gives wrong bits, so it is not used), or NULL. */
const char *cpu_warning(const device *d);
/* Returns the operation that multiplies operands of this format, and that device_peak measures: "fp32
   multiply-add" or "bf16 dot product". NULL if the device is no CPU. */
const char *cpu_peak_unit(const device *d, ott_dtype format);

#endif
