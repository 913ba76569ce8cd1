/* plan/doctor: implements `ottava doctor`: lists the CPU, GPU, driver and libraries found on this machine,
   and how to get missing ones. Part of the program, not of the library. */
#ifndef PLAN_DOCTOR_H
#define PLAN_DOCTOR_H

#include "ottava/ottava.h"

/* Writes one line per finding. *missing = number of findings that are not ok. */
ott_status doctor_run(ott_context *context, ott_text_fn write, void *user, int *missing);

#endif
