/*
 * nn/linear/lora: a LoRA adapter of a linear layer (Hu et al. 2021): y += scale * B (A x), with A[r, in],
 * B[out, r] and rank r. Dropout applies to x, as in PEFT, or to B (A x), as AutoModel also offers. The GEMMs
 * are never FP8: A, B and scale * A x are converted to the activation format.
 *
 * Backward recomputes A x from x, because the gradient of A needs x anyway. If tensor parallelism splits the
 * layer's weight by rows, each rank has the matching rows of B and all of A. If it splits the weight by
 * columns, each rank has the matching columns of A and all of B. Ranks sum only tensors [T, r].
 */
#ifndef NN_LINEAR_LORA_H
#define NN_LINEAR_LORA_H

#include "nn/parameter.h"
#include "nn/tensor_ranks.h"

typedef struct dora_tables dora_tables;

typedef struct lora {
    parameter *a, *b; /* factors A and B; owned by the model */
    /* DoRA's magnitude[out]. If it is not NULL, nn/linear/dora replaces the GEMMs of nn/linear/lora. */
    parameter *magnitude;
    const dora_tables *tables; /* tables of nn/linear/dora; borrowed; not read for LoRA */
    float scale;
    float dropout;         /* probability of dropping an element in training */
    bool drops_output;     /* true: dropout applies to B A x; false: to x */
    uint64_t seed, stream; /* seed and stream of the dropout mask, which also depends on exec.token */
    tensor_ranks ranks;    /* the layer's tensor-parallel ranks */
    parameter_split split; /* how these ranks split the layer's weight */
    group *row_ranks;      /* context-parallel ranks; borrowed; NULL: none */
} lora;

/* True if dropout applies to x in this pass. */
static inline bool lora_drops_input(const exec *cx, const lora *l) {
    return l->dropout > 0 && !l->drops_output && cx->phase != PHASE_EVALUATE;
}

/* Requests in both specs that the high-precision tensor is kept, next to FP8 copies. The adapter reads it. */
void lora_connect(activation_specs *input, activation_specs *grad_output);
/* y += scale B A x. x[T,in] is in the activation format. y has only this rank's rows (nn/tensor_ranks.h). */
ott_status lora_forward(exec *cx, const lora *l, const tensor *x, const tensor *y);
/* dx[T,in] += scale A^T B^T g, from g[T,out]. If weight rows are split, the caller sums dx over the ranks. */
ott_status lora_grad_input(exec *cx, const lora *l, const tensor *g, const tensor *dx);
/* Accumulates the gradients of a and b. */
ott_status lora_grad_weight(exec *cx, const lora *l, const tensor *x, const tensor *g);

#endif
