/*
 * tensor/device: memory and order of work on a device: the small table beside the op table. On the CPU every
 * call completes before it returns; on a GPU copies and ops are queued on the context's stream.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include "base/mem.h"
#include "tensor/backend.h"
#include "tensor/ops.h"

typedef struct device device;

typedef struct device_table {
    ott_status (*allocate)(device *d, mem_kind kind, int64_t bytes, const char *what,
                           void **out); /* zero-filled */
    void (*release)(device *d, void *data);
    ott_status (*copy_in)(device *d, void *to_device, const void *from_host, int64_t bytes);
    ott_status (*copy_out)(device *d, void *to_host, const void *from_device,
                           int64_t bytes);                                    /* waits for queued work */
    ott_status (*copy)(device *d, void *to, const void *from, int64_t bytes); /* both on the device */
    ott_status (*zero)(device *d, void *data, int64_t bytes);
    ott_status (*synchronize)(device *d);
    double (*peak)(device *d, ott_dtype format);
    void (*close)(device *d);
} device_table;

/* A device with its two tables; a backend makes one with its own state behind it. */
struct device {
    const device_table *table;
    const op_table *ops;
    const backend_capabilities *can;
    mem *account;
    const char *name; /* "cpu avx512, 2 threads" */
    int threads;      /* of the host that compute; 0: it is no part of the host */
    bool dry_run;     /* nothing is behind its memory (tensor/dry_run.h) */
};

ott_status device_allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
void device_release(device *d, void *data); /* NULL is allowed */
ott_status device_copy_in(device *d, void *to_device, const void *from_host, int64_t bytes);
ott_status device_copy_out(device *d, void *to_host, const void *from_device, int64_t bytes);
/* From one place of the device to another; they do not overlap. */
ott_status device_copy(device *d, void *to, const void *from, int64_t bytes);
ott_status device_zero(device *d, void *data, int64_t bytes);
ott_status device_synchronize(device *d);
/* The most FLOP/s (a multiply-add is two) that its products of operands of this format can reach, or 0 where that is
   not known. The CPU measures it anew each time, for some milliseconds; it computes in fp32 whatever the format. */
double device_peak(device *d, ott_dtype format);
void device_close(device *d);

#endif
