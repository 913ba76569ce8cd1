/* plan/measure: measures the rates of this machine's CPU. Times each operation in a few training steps of a
   small model with the configuration's formats, head size and sequence length. */
#ifndef PLAN_MEASURE_H
#define PLAN_MEASURE_H

#include "plan/machine.h"
#include "config/config.h"

/* Fills *out with measured rates of device d, which must outlive *out. Takes seconds. cfg is resolved. */
ott_status measure_machine(mem *account, const config *cfg, device *d, machine *out);

#endif
