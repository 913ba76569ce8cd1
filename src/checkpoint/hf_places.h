/*
 * checkpoint/hf_places: where a model's parameters lie in the tensors of a Hugging Face folder. Families that
 * fuse store q, k and v, or gate and up, as one tensor; the model may have them together or apart, whatever
 * its files do. The matrices of a stack are tensors of their own, or one together. Internal to this floor.
 */
#ifndef CHECKPOINT_HF_PLACES_H
#define CHECKPOINT_HF_PLACES_H

#include "base/arena.h"
#include "model/model.h"

/* Rows that a parameter and a tensor of the folder have in common. A vector's elements count as rows of one
 * column. */
typedef struct hf_place {
    const model_module *module;
    const parameter *parameter; /* weight or bias of the module */
    int64_t first, count;       /* rows [first, first + count) of it */
    int64_t columns;
    const char *name;  /* of the tensor */
    const char *fused; /* what a fusing family calls it: the same for q, k, v, and for gate, up */
    int64_t row, rows; /* the tensor's row they begin at; rows of the whole tensor, with all its matrices */
    int64_t stack;     /* matrices in the tensor; 0: it is no stack */
} hf_place;

typedef struct hf_places {
    const model *m;
    bool are_fused;  /* the folder is of a family that fuses */
    bool are_packed; /* a stack is one tensor in it */
    arena *memory;
    hf_place *of; /* [count], in the order of the parameters; those of one tensor in the order of its rows */
    int count;
} hf_places;

ott_status hf_places_open(const model *m, bool fused, bool packed, hf_places *out);
void hf_places_close(hf_places *p);
/* Rows [row, row + count) of the tensor that begins with place `first`, into out[count, columns]. */
ott_status hf_places_read(const hf_places *p, int first, int64_t row, int64_t count, float *out);
/* The shape of the tensor; returns its rank. */
int hf_place_shape(const hf_place *p, int64_t shape[PARAMETER_RANKS]);
/* Is it of a linear layer's matrix inside a block? */
bool hf_is_block_matrix(const hf_place *p);

#endif
