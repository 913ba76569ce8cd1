/* plan/doctor: `ottava doctor`: what of a GPU and its libraries is on this machine, what is missing, and what brings it. Part of the
   program, not of the library. */
#ifndef PLAN_DOCTOR_H
#define PLAN_DOCTOR_H

#include "ottava/ottava.h"

/* Writes a line a finding. *missing: how many things a GPU needs are not as they should be. */
ott_status doctor_run(ott_context *context, ott_text_fn write, void *user, int *missing);

#endif
