/* plan/work: counts the work of an operation: FLOP of GEMMs and attention, and bytes that an operation reads
   and writes. Takes the arguments of a dry run or of a real call. */
#ifndef PLAN_WORK_H
#define PLAN_WORK_H

#include "tensor/dry_run.h"

/* Format of a GEMM: FP8 if both operands are FP8. fp16 counts as bf16. */
typedef enum work_format { WORK_FP32, WORK_BF16, WORK_FP8, WORK_FORMATS } work_format;

/* Attention by its support in cuDNN (cuda/attention/attention_plans.h). */
typedef enum work_attention {
    ATTENTION_PLAIN,
    ATTENTION_PACKED, /* documents of different lengths */
    ATTENTION_CAPPED, /* a soft cap: only Ottava's kernels */
    ATTENTION_EXACT,  /* only Ottava's kernels without tensor cores */
} work_attention;

typedef struct work {
    enum op_index op;
    work_format format;
    double flops;              /* 0: the time depends only on `bytes` */
    double bytes;              /* bytes read and written; a second read counts again */
    double from_host, to_host; /* part of bytes in mapped host memory (device_allocate_mapped) */
    int64_t m, n, k;           /* sizes of a GEMM (work_of_product) */
    double row_sums;           /* bytes of fp32 sums, if another kernel multiplies them by scales of rows */
    work_attention attention;  /* of an attention op */
    double instructions;       /* of all threads of a GPU; 0: memory takes longer */
    double updated;            /* part of bytes, in device memory, that moves while these instructions run */
} work;

/* Work of one call of `op`; args: its argument struct (tensor/ops.h). */
work work_of(const exec *cx, enum op_index op, const void *args);
/* Work of C[m,n] = A[m,k] B[n,k]^T; c_bytes: bytes of an element of C. */
work work_of_product(work_format format, int64_t m, int64_t n, int64_t k, int c_bytes);
/* Bytes that an op reads and writes more if it also quantizes its output [rows, columns]: the codes and, if a
   scale depends on a full row, column or tensor, one read of the output. source: bytes of an element of the
   output. is_separate: a separate op quantizes, which adds another read. */
double work_cast_bytes(const backend_capabilities *can, const quant_spec *spec, int64_t rows, int64_t columns,
                       int source, bool is_separate);
/* Returns the op's FLOP, or its bytes if it has no FLOP. The estimated time is proportional to the result. */
static inline double work_units(const work *w) {
    return w->flops > 0 ? w->flops : w->bytes;
}

#endif
