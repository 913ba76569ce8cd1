/*
 * cpu/table: one tier's op table: every op of tensor/ops.def, each from its file of this folder.
 */
#include "cpu/tier.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static int64_t workspace(const exec *cx, enum op_index op, const void *args) {
    (void)cx;
    return op == OP_INDEX_attention_backward ? TIER(attention_backward_workspace)(args) : 0;
}

static const op_table ops = {
#define OP(name, fields) .name = TIER(name),
#include "tensor/ops.def"
#undef OP
    .workspace = workspace,
};

const cpu_tier TIER(cpu_tier) = {.name = TEXT(CPU_TIER), .ops = &ops, .fma_burst = TIER(fma_burst)};
