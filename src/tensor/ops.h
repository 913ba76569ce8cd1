/*
 * tensor/ops: an argument struct and a checked call for each op of ops.def, and the op table that backends
 * implement.
 *
 *     TRY(op_rmsnorm_forward(
 *         cx, &(rmsnorm_forward_args){.x = &x, .weight = &w, .y = &y, .rstd = &rstd, .eps = eps}));
 *
 * The call checks dtypes, shapes and missing tensors against ops.def, opens the workspace that the
 * backend needs, and runs the backend's function, except while the memory plan is recorded. Ops queue work
 * and return no value to the host.
 *
 * An op marked MANY also has op_<name>_many for a list of independent calls: no call may write memory that
 * another call uses. A backend may run many calls in one launch. The bits are the same as one by one.
 */
#ifndef TENSOR_OPS_H
#define TENSOR_OPS_H

#include "tensor/rules/activate.h"
#include "tensor/rules/attention.h"
#include "tensor/rules/route.h"
#include "tensor/rules/statistics.h"
#include "tensor/step_state.h"
#include "tensor/operand.h"
#include <stddef.h>

#define REDUCE_BLOCK 4096

/* Returns the number of blocks in a reduction over `elements` elements (tensor/ops.def). */
static inline int64_t op_reduce_blocks(int64_t elements) {
    return (elements + REDUCE_BLOCK - 1) / REDUCE_BLOCK;
}

typedef struct exec exec;
typedef struct device device;

#define IN(name, text)          const tensor *name;
#define IN_OPT(name, text)      const tensor *name;
#define OUT(name, text)         const tensor *name;
#define OUT_OPT(name, text)     const tensor *name;
#define INOUT(name, text)       const tensor *name;
#define INOUT_OPT(name, text)   const tensor *name;
#define QOUT(name, text)        const qlist *name;
#define QTENSOR(name, text)     const qtensor *name;
#define QTENSOR_OPT(name, text) const qtensor *name;
#define OPERAND(name, text)     const operand *name;
#define SCALAR(type, name)      type name;
#define OP(name, fields)                                                                                     \
    typedef struct name##_args {                                                                             \
        fields                                                                                               \
    } name##_args;
#include "tensor/ops.def"
#undef OP

/* OP_INDEX_gemm and so on: the op's index in the table. */
enum op_index {
#define OP(name, fields) OP_INDEX_##name,
#include "tensor/ops.def"
#undef OP
    OP_COUNT
};

/* times: about how many times as long a call takes as with the best implementation. what: the slow
   implementation; NULL: none. */
typedef struct op_slowness {
    double times;
    const char *what;
} op_slowness;

/* The op table of a backend: a function for each op, or NULL if the backend does not have the op. */
typedef struct op_table {
#define OP(name, fields) ott_status (*name)(exec * cx, const name##_args *a);
/* Runs a list of calls of an op, which must need no workspace; NULL: the calls run one by one. */
#define MANY(name) ott_status (*name##_many)(exec * cx, const name##_args *items, int64_t count);
#include "tensor/ops.def"
#undef OP
    /* Returns the bytes of device memory that the op needs while it runs (exec.workspace). They depend only
       on shapes and scalars. The workspace's contents do not survive the op. NULL: no op needs workspace. */
    int64_t (*workspace)(const device *d, enum op_index op, const void *args);
    /* Estimates how much slower a call is than on the GPUs and libraries that compute it best. NULL: not at
       all. */
    op_slowness (*slowness)(const device *d, enum op_index op, const void *args);
    /* Implements op_packed_count; NULL: the number of b's elements. */
    int64_t (*packed_count)(const device *d, const operand *b);
} op_table;

bool op_is_there(const op_table *table, enum op_index op); /* true if the table has the op */
/* Returns the number of elements, in b's format, of the output of the op `pack` on the context's device. */
int64_t op_packed_count(const exec *cx, const operand *b);

#define OP(name, fields) ott_status op_##name(exec *cx, const name##_args *a);
#define MANY(name)       ott_status op_##name##_many(exec *cx, const name##_args *items, int64_t count);
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

/* ---- the table of ops as data: for checks, tests and benchmarks ---- */

typedef enum op_field_kind {
    OP_IN,
    OP_OUT,
    OP_INOUT,
    OP_QOUT,
    OP_QTENSOR,
    OP_OPERAND,
    OP_SCALAR
} op_field_kind;

typedef struct op_field {
    const char *name;
    op_field_kind kind;
    bool optional;
    const char *text; /* such as "act[T,D]"; for OP_SCALAR the C type */
    size_t offset;    /* offset of the pointer or value in the argument struct */
} op_field;

typedef struct op_info {
    const char *name;
    const op_field *fields;
    int field_count;
    size_t args_size;
} op_info;

int op_count(void);
const op_info *op_at(int index);          /* index in [0, op_count()) */
const op_info *op_find(const char *name); /* NULL if no op has this name */
/* Runs any op, for tests and benchmarks of all ops. args: the op's argument struct. */
ott_status op_call(const op_table *table, exec *cx, const op_info *op, const void *args);
bool op_is_for_lists(const op_info *op); /* true if the op is marked MANY */
/* Runs a list of calls of an op that is marked MANY. items: an array of `count` argument structs. */
ott_status op_call_many(const op_table *table, exec *cx, const op_info *op, const void *items, int64_t count);
/* Checks arguments against ops.def. The message names the op, the field, the found and the expected value. */
ott_status op_check(const op_info *op, const void *args);

/* A field's text, parsed: "act[T,D]" gives act, T and D. "f32[D]", a vector, gives rows_fixed 1. */
typedef struct op_shape {
    char dtype[8];      /* "", "scales" or "codes" for QOUT and QTENSOR fields */
    char rows, columns; /* the size's letter; 0: the size is rows_fixed or columns_fixed */
    int64_t rows_fixed, columns_fixed;
} op_shape;
bool op_shape_parse(const char *text, op_shape *out); /* false if the text is malformed */

/* Runs op_gemm and adds 1 to its count in cx->gemms. OTT_ERR_STOPPED if cx->cancellation is canceled. */
ott_status op_counted_gemm(exec *cx, recipe_gemm role, const gemm_args *args);
/* Like op_counted_gemm, for op_grouped_gemm and op_grouped_gemm_weight. A call counts as one GEMM. */
ott_status op_counted_grouped_gemm(exec *cx, recipe_gemm role, const grouped_gemm_args *args);
ott_status op_counted_grouped_gemm_weight(exec *cx, const grouped_gemm_weight_args *args);

#endif
