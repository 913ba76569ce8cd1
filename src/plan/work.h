/*
 * plan/work: what an operation of a step does: floating-point operations of matrix products and attention, bytes that all
 * others read and write. From the arguments as a dry run sees them, or as they are while the operation runs.
 */
#ifndef PLAN_WORK_H
#define PLAN_WORK_H

#include "tensor/dry_run.h"

/* Of the operands of a product: two FP8 operands make an FP8 product. fp16 counts as bf16. */
typedef enum work_format { WORK_FP32, WORK_BF16, WORK_FP8, WORK_FORMATS } work_format;

typedef struct work {
    enum op_index op;
    work_format format;
    double flops; /* 0: its work is bytes */
    double bytes; /* each once as read, once as written, and a source again that is passed over twice */
    double from_host, to_host; /* of them those in the host's memory, over the bus (device_allocate_mapped) */
    int64_t m, n, k;           /* of a product */
} work;

work work_of(const exec *cx, enum op_index op, const void *args);
/* Of C[m,n] = A[m,k] B[n,k]^T by itself. */
work work_of_product(work_format format, int64_t m, int64_t n, int64_t k, int c_bytes);
/* Bytes beside its own that a quantized form of [rows, columns] costs: codes written, and a source of `source` bytes an element
   read again where the scale follows from all of it. `alone`: the form is not made by the operation that made the source. */
double work_cast_bytes(const backend_capabilities *can, const quant_spec *spec, int64_t rows, int64_t columns,
                       int source, bool alone);
/* What its time is proportional to: operations, or else bytes. */
static inline double work_units(const work *w) {
    return w->flops > 0 ? w->flops : w->bytes;
}

#endif
