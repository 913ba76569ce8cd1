/*
 * cpu/isa: private to the floor: what every file that is compiled once per ISA level shares.
 *
 * CPU_ISA names the ISA level (scalar, avx2, avx512, avx512bf16, amx, neon). A function of such a file that another file calls
 * is named ISA(name), which becomes name_avx512. Each op of tensor/ops.def is ISA(<op>), declared here for all of them.
 */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#include "base/pool.h"
#include "tensor/device.h"
#include "tensor/exec.h"
#include "tensor/group.h"

/* Bytes of packing and partial-sum buffers each thread owns for the device's whole life: gemm.c lays it out
   in the GEMM and any other op may use it as it likes while it runs, for nothing in it lives from one op to
   the next. Aligned to 64. */
#define CPU_SCRATCH_BYTES ((int64_t)(5 << 20))

/* An elementwise op over fewer values runs on one thread: waking one that sleeps takes longer than its share
 * would. */
#define CPU_WORTH_SPLITTING 16384

typedef struct cpu_device {
    device base; /* first: a device is cast to this */
    pool *pool;
    char *scratch; /* threads x CPU_SCRATCH_BYTES */
    const struct cpu_isa *isa;
    const struct cpu_tiles
        *tiles;          /* computes some of the products (cpu/tiles.h); NULL: the level has no tile unit */
    op_table ops;        /* isa's, with the products of tiles */
    char name[48];       /* "cpu avx512, 2 threads" */
    const char *warning; /* cpu_warning */
} cpu_device;

/* What backend.c knows of a ISA level. */
typedef struct cpu_isa {
    const char *name;
    const op_table *ops;
    bool
        has_pairs; /* its products of FP8 and BF16 operands use a unit for pairs of bf16 numbers (cpu_is_pair_format) */
    /* Keeps the level's multiply-add unit busy for `rounds` rounds: the unit that products of format d use. Returns the
       operations done, two for each multiply-add. */
    double (*burst)(ott_dtype d, int64_t rounds);
} cpu_isa;

extern const cpu_isa cpu_isa_scalar, cpu_isa_avx2, cpu_isa_avx512, cpu_isa_avx512bf16, cpu_isa_neon;

/* Formats whose numbers are all bf16 numbers, so that a unit for pairs can multiply them. */
static inline bool cpu_is_pair_format(ott_dtype d) {
    return d == OTT_BF16 || d == OTT_E4M3 || d == OTT_E5M2;
}

static inline cpu_device *cpu_of(const exec *cx) {
    return (cpu_device *)cx->device;
}
/* The CPU device; NULL if the device is no CPU. */
cpu_device *cpu_from(device *d);
static inline int cpu_threads(const exec *cx) {
    return cx->device->threads;
}
/* Runs task(argument, t, threads) on every thread of the context's device. */
static inline void cpu_run(const exec *cx, pool_task task, void *argument) {
    pool_run(cpu_of(cx)->pool, task, argument);
}
/* The same for an op over `elements` values, on the calling thread alone when waking others would take
 * longer. */
static inline void cpu_run_sized(const exec *cx, int64_t elements, pool_task task, void *argument) {
    if (elements < CPU_WORTH_SPLITTING)
        task(argument, 0, 1);
    else
        cpu_run(cx, task, argument);
}
/* CPU_SCRATCH_BYTES that belong to thread t while an op runs. */
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

/* quantize.c: makes every form of the list from the finished x. NULL or empty: nothing. Called outside pool
 * tasks. */
ott_status ISA(quantize_list)(exec *cx, const tensor *x, const qlist *q);
/* attention_backward.c: bytes of exec.workspace that it needs. */
int64_t ISA(attention_backward_workspace)(const attention_backward_args *a);
/* gemm/panels.c: elements that pack makes of b. */
int64_t ISA(packed_count)(const operand *b);
/* peak.c */
double ISA(burst)(ott_dtype d, int64_t rounds);
#endif

#endif
