/*
 * nn/parameter: a trained tensor: its fp32 master, its fp32 gradient, its optimizer moments. All are views of
 * blocks the model owns; the moments and gradient are NULL where nothing trains.
 */
#ifndef NN_PARAMETER_H
#define NN_PARAMETER_H

#include "tensor/exec.h"

typedef struct parameter {
    const char
        *name; /* Hugging Face's, "model.layers.0.self_attn.q_proj.weight"; borrowed from the model's arena */
    int rank;  /* 1: a vector of `columns`, 2: a matrix, as in the file */
    int64_t rows, columns;
    bool decay;  /* takes part in weight decay */
    bool frozen; /* is not trained: no gradient, no moments, whatever else trains */
    tensor value, grad, moment1, moment2;
} parameter;

static inline int64_t parameter_count(const parameter *p) {
    return p->rows * p->columns;
}

#endif
