/*
 * devices: one CPU device for every ISA level this machine has and several numbers of threads, for tests that want
 * the same bits from all of them.
 */
#ifndef TESTS_CPU_DEVICES_H
#define TESTS_CPU_DEVICES_H

#include "cpu/cpu.h"

#define DEVICES_MAX (4 * CPU_ISAS_MAX + 2)

typedef struct devices {
    mem *account;
    int count;
    device *list[DEVICES_MAX];
} devices;

/* 1, 2, 3 and 5 threads of each ISA level. Aborts when one cannot be opened. */
devices devices_open(void);
/* Adds the level amx_emulated, which no list has, where it is available. */
void devices_add_tiles(devices *d);
void devices_close(devices *d);

#endif
