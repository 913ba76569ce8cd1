/*
 * reference_ops: every operation of tensor/ops.def as plain loops over single numbers, written from its text
 * alone. It is what each backend is compared with, so it is never fast and never shares code with a backend.
 */
#ifndef REFERENCE_OPS_H
#define REFERENCE_OPS_H

#include "tensor/device.h"
#include "tensor/ops.h"

extern const op_table reference_ops;

/* A device in host memory that runs reference_ops. Closed with device_close. */
ott_status reference_device_open(mem *account, device **out);

#endif
