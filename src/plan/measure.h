/*
 * plan/measure: how fast this machine's CPU works: a few training steps of a small model that has the configuration's formats,
 * head size and sequence length, timed operation by operation.
 */
#ifndef PLAN_MEASURE_H
#define PLAN_MEASURE_H

#include "plan/machine.h"
#include "config/config.h"

/* Fills *out with the device's rates. cfg: resolved. Takes a second or a few. */
ott_status measure_machine(mem *account, const config *cfg, device *d, machine *out);

#endif
