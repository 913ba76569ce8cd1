/* plan/measure: measures the rates of this machine's CPU. Times each operation in a few training steps of a
   small model with the configuration's formats, head size and sequence length. */
#ifndef PLAN_MEASURE_H
#define PLAN_MEASURE_H

#include "plan/machine.h"
#include "config/config.h"

/* Fills *out with the rates of device d. d must outlive *out. cfg is resolved. Takes a few seconds. */
ott_status measure_machine(mem *account, const config *cfg, device *d, machine *out);

#endif
