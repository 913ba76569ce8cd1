/*
 * cpu/isa: private to src/cpu. Declarations for the files that are compiled once for each ISA level.
 *
 * CPU_ISA is the ISA level (scalar, avx2, avx512, avx512bf16, amx, neon). A function that other files call is
 * named ISA(name), which becomes for example name_avx512. Each op of tensor/ops.def is implemented as
 * ISA(<op>), declared below.
 */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#include "base/pool.h"
#include "tensor/device.h"
#include "tensor/exec.h"
#include "tensor/group/group.h"

/* Bytes of each thread's scratch memory, aligned to 64. Any op may use it; GEMMs keep packed blocks and
   partial sums in this memory (gemm.c). Its contents are undefined when an op starts. */
#define CPU_SCRATCH_BYTES ((int64_t)(5 << 20))

/* Elementwise ops on fewer values run on one thread, because waking a second thread takes too long. */
#define CPU_WORTH_SPLITTING 16384

typedef struct cpu_device {
    device base; /* must be first: a device * is cast to cpu_device * */
    pool *pool;
    char *scratch; /* CPU_SCRATCH_BYTES for each thread */
    const struct cpu_isa *isa;
    const struct cpu_tiles *tiles; /* the tile unit's ops, which replace ops of isa; NULL: no tile unit */
    op_table ops;                  /* the ops of isa; `tiles` replaces some of them */
    char name[48];                 /* name, such as "cpu avx512, 2 threads" */
    const char *warning;           /* the warning that cpu_warning returns */
} cpu_device;

/* An ISA level: what cpu/backend.c needs to choose and open it. */
typedef struct cpu_isa {
    const char *name;
    const op_table *ops;
    /* True if GEMMs multiply FP8 and BF16 operands (cpu_is_pair_format) by bf16 dot-product instructions. */
    bool has_pairs;
    /* Runs `rounds` rounds of the multiply-add instructions that products of format d use. Returns the number
       of operations (2 for each multiply-add). */
    double (*burst)(ott_dtype d, int64_t rounds);
} cpu_isa;

extern const cpu_isa cpu_isa_scalar, cpu_isa_avx2, cpu_isa_avx512, cpu_isa_avx512bf16, cpu_isa_neon;

/* True if bf16 represents every number of the format, so that bf16 dot products can multiply it exactly. */
static inline bool cpu_is_pair_format(ott_dtype d) {
    return d == OTT_BF16 || d == OTT_E4M3 || d == OTT_E5M2;
}

static inline cpu_device *cpu_of(const exec *cx) {
    return (cpu_device *)cx->device;
}
static inline int cpu_threads(const exec *cx) {
    return cx->device->threads;
}
/* Runs task(argument, t, threads) on every thread of the context's device. */
static inline void cpu_run(const exec *cx, pool_task task, void *argument) {
    pool_run(cpu_of(cx)->pool, task, argument);
}
/* Like cpu_run, for an op on `elements` values. Small ops run on the calling thread only. */
static inline void cpu_run_sized(const exec *cx, int64_t elements, pool_task task, void *argument) {
    if (elements < CPU_WORTH_SPLITTING)
        task(argument, 0, 1);
    else
        cpu_run(cx, task, argument);
}
/* Returns the thread's scratch memory, CPU_SCRATCH_BYTES. */
static inline void *cpu_scratch(const exec *cx, int thread) {
    return cpu_of(cx)->scratch + (int64_t)thread * CPU_SCRATCH_BYTES;
}

#ifdef CPU_ISA
#define ISA_PASTE_(name, isa) name##_##isa
#define ISA_PASTE(name, isa)  ISA_PASTE_(name, isa)
#define ISA(name)             ISA_PASTE(name, CPU_ISA)

#define IN(name, text)
#define IN_OPT(name, text)
#define OUT(name, text)
#define OUT_OPT(name, text)
#define INOUT(name, text)
#define INOUT_OPT(name, text)
#define QOUT(name, text)
#define QTENSOR(name, text)
#define QTENSOR_OPT(name, text)
#define OPERAND(name, text)
#define SCALAR(type, name)
#define OP(name, fields) ott_status ISA(name)(exec * cx, const name##_args *a);
#include "tensor/ops.def"
#undef OP
#undef IN
#undef IN_OPT
#undef OUT
#undef OUT_OPT
#undef INOUT
#undef INOUT_OPT
#undef QOUT
#undef QTENSOR
#undef QTENSOR_OPT
#undef OPERAND
#undef SCALAR

/* quantize.c: makes the quantized copies of x that are listed in q. All of x must have been computed. Does
   nothing if q is NULL or empty. Must not be called in a pool task. */
ott_status ISA(quantize_list)(exec *cx, const tensor *x, const qlist *q);
/* attention_backward.c: returns the bytes of workspace (exec.h) that the op attention_backward needs. */
int64_t ISA(attention_backward_workspace)(const attention_backward_args *a);
/* gemm/panels.c: returns the number of elements, in b's format, that the op `pack` writes for b. */
int64_t ISA(packed_count)(const operand *b);
/* peak.c: implements cpu_isa.burst */
double ISA(burst)(ott_dtype d, int64_t rounds);
#endif

#endif
