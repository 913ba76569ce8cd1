/*
 * cpu/table: one tier's op table: every op of tensor/ops.def, each from its file of this folder.
 */
#include "cpu/tier.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static const op_table ops = {
#define OP(name, fields) .name = TIER(name),
#include "tensor/ops.def"
#undef OP
};

const cpu_tier TIER(cpu_tier) = {.name = TEXT(CPU_TIER), .ops = &ops, .fma_burst = TIER(fma_burst)};
