/*
 * cpu/tiles: private to src/cpu. A tile unit (AMX) computes the GEMMs with ACCUMULATE_TILE32, with the same
 * bits as every ISA level. An ISA level without tile unit computes all other ops.
 */
#ifndef CPU_TILES_H
#define CPU_TILES_H

#include "cpu/isa.h"

typedef struct cpu_tiles {
    const char *name;
    void (*replace_ops)(op_table *ops); /* replaces the GEMM ops in an op table */
} cpu_tiles;

extern const cpu_tiles cpu_tiles_amx, cpu_tiles_amx_emulated;

/* True if this process can use AMX. Asks the Linux kernel for permission, for all threads. */
bool cpu_tiles_amx_is_usable(void);

/* Computes a few products with and without the tile unit. *same: true if all bits are equal. */
ott_status cpu_tiles_compare(cpu_device *c, bool *same);

/* Implements cpu_tiles_speed for a device with a tile unit. */
ott_status cpu_tiles_measure(cpu_device *c, double *out);

/* Only a test program defines this variable: if true, the level amx_emulated computes wrong bits. */
extern bool cpu_tiles_fault __attribute__((weak));

#endif
