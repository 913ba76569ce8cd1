/*
 * nn/parameter: a trained tensor: its fp32 master, its fp32 gradient, its optimizer's state. All are views of
 * blocks the model owns; state and gradient are NULL where nothing trains.
 */
#ifndef NN_PARAMETER_H
#define NN_PARAMETER_H

#include "tensor/exec.h"

enum { PARAMETER_SLOTS = 2 }; /* state tensors an optimizer has of a parameter, at most */

typedef struct parameter {
    const char
        *name; /* Hugging Face's, "model.layers.0.self_attn.q_proj.weight"; borrowed from the model's arena */
    int rank;  /* 1: a vector of `columns`, 2: a matrix, as in the file */
    int64_t rows, columns;
    bool decay;  /* takes part in weight decay */
    bool frozen; /* is not trained: no gradient, no state, whatever else trains */
    tensor value, grad;
    tensor slot[PARAMETER_SLOTS]; /* of the optimizer's state, in its row's order (nn/optimizer.h) */
} parameter;

static inline int64_t parameter_count(const parameter *p) {
    return p->rows * p->columns;
}

#endif
