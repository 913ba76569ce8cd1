/* nn/linear/lora_parts: helpers of nn/linear/lora and nn/linear/dora; internal to them. */
#ifndef NN_LINEAR_LORA_PARTS_H
#define NN_LINEAR_LORA_PARTS_H

#include "nn/linear/lora.h"

/* A tensor with its buffer of the memory plan; the buffer is PLAN_NONE if the tensor is borrowed. */
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

/* Returns l->ranks with `sequence` cleared if they split the layer's weight by `split`, else no ranks. */
static inline tensor_ranks lora_ranks_of_sum(const lora *l, parameter_split split) {
    return (tensor_ranks){.group = l->split == split ? l->ranks.group : NULL};
}

/* Opens the adapter's input: dropout(x)[T,in] if lora_drops_input is true, and x itself if not. */
ott_status lora_open_input(exec *cx, const lora *l, const tensor *x, lora_part *out);
/* dx += dropout(v a), with the dropout mask that lora_open_input applied to x. */
ott_status lora_add_input_gradient(exec *cx, const lora *l, const tensor *v, const tensor *a,
                                   const tensor *dx);

/* c = a b, or c += a b, in high precision. */
static inline ott_status lora_multiply(exec *cx, recipe_gemm role, operand a, operand b, const tensor *c,
                                       bool accumulate) {
    const gemm_args args = {.a = &a,
                            .b = &b,
                            .c = c,
                            .accumulate = accumulate,
                            .spec = recipe_high_precision(a.t.dtype)->gemm[role]};
    return op_counted_gemm(cx, role, &args);
}

#endif
