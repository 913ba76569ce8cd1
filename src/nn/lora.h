/*
 * nn/lora: an adapter beside a linear layer (LoRA; Hu et al. 2021): y += scale * B (A x), with A[rank, in] and B[out, rank]; and
 * its dropout, of x as PEFT has it or of B (A x) as AutoModel has it too. Its products are never FP8: A and B are read in the
 * activation format, converted where they are used, for they are small. scale * A x is rounded to that format once more.
 *
 * Backward makes A x again from x, which it needs anyway for the gradient of A. Where ranks share the layer's weight by
 * rows, they have the same rows of B, and all of A; by columns the same columns of A, and all of B. What they add up is
 * [tokens, rank].
 */
#ifndef NN_LORA_H
#define NN_LORA_H

#include "nn/parameter.h"
#include "nn/tensor_ranks.h"

typedef struct dora_tables dora_tables;

typedef struct lora {
    parameter *a, *b;
    parameter *
        magnitude; /* of a decomposed adapter, whose products are the layer's own (nn/dora.h): then none of the products here is
                             made; NULL: it is none */
    const dora_tables *tables; /* of it; borrowed */
    float scale;
    float dropout;         /* share that is dropped in training */
    bool drops_output;     /* of B A x; else of x */
    uint64_t seed, stream; /* of its draws (tensor/dropout.h); they go by exec.token */
    tensor_ranks ranks;    /* those of the layer, */
    parameter_split split; /* and how they share its weight */
    group *row_ranks;      /* have other tokens of the micro-batch; borrowed; NULL: all are here */
} lora;

/* Does this pass drop some of its input? */
static inline bool lora_drops_input(const exec *cx, const lora *l) {
    return l->dropout > 0 && !l->drops_output && cx->phase != PHASE_EVALUATE;
}

/* It reads the layer's input, and the gradient of its output, in high precision. */
void lora_connect(activation_specs *input, activation_specs *grad_output);
/* y += scale B A x; x[T,in] in the activation format, y the rows that are here between layers (nn/tensor_ranks.h). */
ott_status lora_forward(exec *cx, const lora *l, const tensor *x, const tensor *y);
/* dx[T,in] += scale A^T B^T g, from g[T,out]; where the weight's rows are cut, this rank's part of a sum. */
ott_status lora_grad_input(exec *cx, const lora *l, const tensor *g, const tensor *dx);
/* a.grad and b.grad +=. */
ott_status lora_grad_weight(exec *cx, const lora *l, const tensor *x, const tensor *g);

#endif
