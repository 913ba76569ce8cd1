/*
 * cpu/tiles: private to the floor: levels with a tile unit. Such a level replaces the products of ACCUMULATE_TILE32 of
 * another level, and gives the same bits.
 */
#ifndef CPU_TILES_H
#define CPU_TILES_H

#include "cpu/isa.h"

typedef struct cpu_tiles {
    const char *name;
    void (*take)(op_table *ops); /* replaces the ops that multiply */
    /* Keeps the tile unit busy for `rounds` rounds. Returns the operations done, two for each multiply-add. */
    double (*burst)(int64_t rounds);
} cpu_tiles;

extern const cpu_tiles cpu_tiles_amx, cpu_tiles_amx_emulated;

/* Can this process use AMX? Asks the kernel for permission, which holds for all threads. */
bool cpu_tiles_amx_is_usable(void);

/* Compares products of the device's tiles with products of its level without tiles. *same: all bits are equal. */
ott_status cpu_tiles_compare(cpu_device *c, bool *same);

/* cpu_tiles_speed of a device with a tile unit. */
ott_status cpu_tiles_measure(cpu_device *c, double *out);

/* Not defined here. A test program that defines it, and sets it, gets wrong bits from the level amx_emulated. */
extern bool cpu_tiles_fault __attribute__((weak));

#endif
