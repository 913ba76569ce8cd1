/*
 * devices: CPU devices for every instruction set of this machine, each with several numbers of threads, for
 * tests that compare their bits.
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

/* Opens devices of each instruction set with 1, 2, 3 and 5 threads. Aborts on failure. */
devices devices_open(void);
/* Adds the device amx_emulated, if available. cpu_isas does not list it. */
void devices_add_tiles(devices *d);
void devices_close(devices *d);

#endif
