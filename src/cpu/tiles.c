/*
 * cpu/tiles: GEMMs on a tile unit, for FP8 and BF16 operands in the order ACCUMULATE_TILE32. All other
 * ops, and GEMMs with an operand that the op `pack` has packed, use the kernels of cpu_device.isa, an ISA
 * level without tile unit.
 */
#include "cpu/simd/simd.h"
#include "cpu/tiles.h"

static bool supports_product(const operand *a, const operand *b, const gemm_spec *spec) {
    return spec->accumulate == ACCUMULATE_TILE32 && cpu_is_pair_format(a->t.dtype) &&
           cpu_is_pair_format(b->t.dtype) && !a->packed && !b->packed;
}

#define TILES_OP(name)                                                                                       \
    static ott_status name(exec *cx, const name##_args *a) {                                                 \
        return supports_product(a->a, a->b, &a->spec) ? ISA(name)(cx, a)                                     \
                                                      : cpu_of(cx)->isa->ops->name(cx, a);                   \
    }
TILES_OP(gemm)
TILES_OP(grouped_gemm)
TILES_OP(grouped_gemm_weight)

static void replace_ops(op_table *ops) {
    ops->gemm = gemm;
    ops->grouped_gemm = grouped_gemm;
    ops->grouped_gemm_weight = grouped_gemm_weight;
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const cpu_tiles ISA(cpu_tiles) = {.name = TEXT(CPU_ISA), .replace_ops = replace_ops};
