/*
 * tensor/ops: the operations of ops.def as C: an argument struct and a checked call for each.
 *
 *     TRY(op_rmsnorm_forward(
 *         cx, &(rmsnorm_forward_args){.x = &x, .weight = &w, .y = &y, .rstd = &rstd, .eps = eps}));
 *
 * The call checks dtypes, shapes and missing tensors against the entry's text, asks the plan for the workspace that the
 * backend's function needs, does nothing more while the memory plan is being recorded, and otherwise runs the function.
 * Ops queue work and return no host value.
 *
 * An op marked MANY has op_<name>_many too, which takes a list of calls that touch nothing of each other's: one launch does
 * many of them where the backend can, with the bits of the calls one after the other.
 */
#ifndef TENSOR_OPS_H
#define TENSOR_OPS_H

#include "tensor/activate.h"
#include "tensor/attention.h"
#include "tensor/route.h"
#include "tensor/statistics.h"
#include "tensor/step_state.h"
#include "tensor/operand.h"
#include <stddef.h>

#define REDUCE_BLOCK 4096

/* Blocks of a reduction over so many elements (tensor/ops.def). */
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

/* OP_INDEX_gemm: the op's place in the table. */
enum op_index {
#define OP(name, fields) OP_INDEX_##name,
#include "tensor/ops.def"
#undef OP
    OP_COUNT
};

/* The op table: what a backend fills in. A NULL entry is an op the backend does not have. */
typedef struct op_table {
#define OP(name, fields) ott_status (*name)(exec * cx, const name##_args *a);
/* A list of calls, none of which needs workspace; NULL: they are made one by one. */
#define MANY(name) ott_status (*name##_many)(exec * cx, const name##_args *items, int64_t count);
#include "tensor/ops.def"
#undef OP
    /* Bytes of device memory that the backend's algorithm needs while it runs on these arguments (exec.workspace; nothing in
       it lives from one op to the next), the same for the same shapes and scalars. NULL: no op needs any. */
    int64_t (*workspace)(const device *d, enum op_index op, const void *args);
    /* op_packed_count; NULL: as many as b has. */
    int64_t (*packed_count)(const device *d, const operand *b);
} op_table;

bool op_is_there(const op_table *table, enum op_index op);
/* Elements of b's format that `pack` makes of b on the context's device. */
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
    const char *text; /* "act[T,D]"; for OP_SCALAR the C type */
    size_t offset;    /* of the pointer or value in the argument struct */
} op_field;

typedef struct op_info {
    const char *name;
    const op_field *fields;
    int field_count;
    size_t args_size;
} op_info;

int op_count(void);
const op_info *op_at(int index);          /* index in [0, op_count()) */
const op_info *op_find(const char *name); /* NULL when there is none */
/* Runs an op by its description: what the generated test and benchmark use. */
ott_status op_call(const op_table *table, exec *cx, const op_info *op, const void *args);
bool op_is_for_lists(const op_info *op); /* MANY */
/* The same for such an op; items are its argument structs side by side. */
ott_status op_call_many(const op_table *table, exec *cx, const op_info *op, const void *items, int64_t count);
/* Checks arguments against the entry. Names op, field, found and wanted. */
ott_status op_check(const op_info *op, const void *args);

/* One size or dtype group of an entry, parsed: "act[T,D]" -> act, T, D. A vector "f32[D]" has rows_fixed 1.
 */
typedef struct op_shape {
    char dtype[8];      /* "" for the quantized kinds */
    char rows, columns; /* a letter, or 0 when the fixed size counts */
    int64_t rows_fixed, columns_fixed;
} op_shape;
bool op_shape_parse(const char *text, op_shape *out);

#endif
