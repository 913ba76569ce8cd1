/* cpu/table: the op table of one ISA level, with every op of tensor/ops.def. */
#include "cpu/simd/simd.h"
#include "cpu/isa.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static int64_t workspace(const device *d, enum op_index op, const void *args) {
    (void)d;
    return op == OP_INDEX_attention_backward ? ISA(attention_backward_workspace)(args) : 0;
}

static int64_t packed_count(const device *d, const operand *b) {
    (void)d;
    return ISA(packed_count)(b);
}

static const op_table ops = {
#define OP(name, fields) .name = ISA(name),
#include "tensor/ops.def"
#undef OP
    .workspace = workspace,
    .packed_count = packed_count,
};

const cpu_isa ISA(cpu_isa) = {
    .name = TEXT(CPU_ISA), .ops = &ops, .has_pairs = SIMD_HAS_PAIRS, .burst = ISA(burst)};
