/* nn/lora_parts: what the products of adapters are made of. Internal to nn/lora and nn/dora. */
#ifndef NN_LORA_PARTS_H
#define NN_LORA_PARTS_H

#include "nn/lora.h"

/* A tensor in a buffer of the plan, or another's: then there is none. */
typedef struct lora_part {
    tensor t;
    plan_buffer buffer;
} lora_part;

static inline ott_status lora_part_close(exec *cx, lora_part *p) {
    return plan_close(cx->plan, &p->buffer);
}

static inline operand lora_rowwise(tensor t) {
    return operand_rowwise(t, NULL);
}

static inline operand lora_columnwise(tensor t) {
    return operand_columnwise(t, NULL);
}

/* c = a b, or c += a b, in high precision. */
static inline ott_status lora_multiply(exec *cx, recipe_gemm role, operand a, operand b, const tensor *c,
                                       bool accumulate) {
    const gemm_args args = {.a = &a,
                            .b = &b,
                            .c = c,
                            .accumulate = accumulate,
                            .spec = recipe_high_precision(a.t.dtype)->gemm[role]};
    return exec_gemm(cx, role, &args);
}

#endif
