/*
 * reference_ops: every operation of tensor/ops.def as plain loops over single numbers, written from the text
 * of ops.def. Tests compare each backend with it. It is slow on purpose and shares no code with a backend.
 */
#ifndef REFERENCE_OPS_H
#define REFERENCE_OPS_H

#include "tensor/device.h"
#include "tensor/ops.h"

extern const op_table reference_ops;

/* Opens a device with host memory that runs reference_ops. Close it with device_close. */
ott_status reference_device_open(mem *account, device **out);

#endif
