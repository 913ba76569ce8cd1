/*
 * checkpoint/hf_places: where a model's parameters lie in the tensors of a Hugging Face folder. Families that
 * fuse store q, k and v, or gate and up, as one tensor; the model may have them together or apart, whatever
 * its files do. The matrices of a stack are tensors of their own, or one together. Some families' matrices lie transposed.
 * Internal to this floor.
 */
#ifndef CHECKPOINT_HF_PLACES_H
#define CHECKPOINT_HF_PLACES_H

#include "base/arena.h"
#include "checkpoint/ranks.h"
#include "model/model.h"

/* Rows that a parameter and a tensor of the folder have in common. A vector's elements count as rows of one
 * column. */
typedef struct hf_place {
    const model_module *module;
    const parameter *parameter; /* weight or bias of the module */
    parameter_part owned;       /* of the parameter; no rows: nothing */
    int64_t first, count;       /* rows [first, first + count) of it */
    int64_t columns;
    const char *name;  /* of the tensor */
    const char *fused; /* what a fusing family calls it: the same for q, k, v, and for gate, up */
    int64_t tensor_row,
        tensor_rows; /* the tensor's row they begin at; rows of the whole tensor, with all its matrices */
    int64_t experts; /* matrices in the tensor; 0: it is no stack */
    int64_t vector_columns; /* of a vector that files have as a matrix, its columns; 0: it is none */
    bool transposed;        /* the tensor is [columns, rows]; what streams from it comes in its own order */
} hf_place;

typedef struct hf_places {
    const model *m;
    const family *family; /* the folder's */
    bool are_packed;      /* a stack is one tensor in it */
    arena *memory;
    hf_place *of; /* [count], in the order of the parameters; those of one tensor in the order of its rows */
    int count;
} hf_places;

ott_status hf_places_open(const model *m, const family *f, bool packed, hf_places *out);
void hf_places_close(hf_places *p);
/* Leaves here what this rank has to write: of what several have, each its turn (tensor_set_agree). */
ott_status hf_places_agree(hf_places *p, const checkpoint_ranks *ranks);

/* What is here of a place: a part of the tensor, whose elements are these of the parameter's shard, from `first` on. */
typedef struct hf_slice {
    parameter_part part; /* no rows: nothing */
    const tensor *shard;
    int64_t first;
} hf_slice;
hf_slice hf_place_slice(const hf_place *p);
/* Where element `at` of it is on the device. */
static inline void *hf_slice_at(const hf_slice *p, int64_t at) {
    return (char *)p->shard->data + (p->first + at) * dtype_bytes(p->shard->dtype);
}

/* From an element of its tensor to the same one of its parameter. */
static inline int64_t hf_place_shift(const hf_place *p) {
    return (p->first - p->tensor_row) * p->columns;
}

/* Receives elements [first, first + count) of a tensor. */
typedef ott_status (*hf_sink)(void *user, int64_t first, int64_t count, const float *values);
/* All that is here of the tensor that begins with place `first`, in the order of its elements, with the adapter of its layer
   merged into it (hf_merge.h); buffer[HF_BUFFER]. as_codes: of what is kept in FP8, and has no adapter, the codes' values, without
   their scales. */
enum { HF_BUFFER = 1 << 16 };
ott_status hf_places_stream(const hf_places *p, int first, bool as_codes, float *buffer, hf_sink sink,
                            void *user);
/* Drops the first component of the tensors' names, "model.": folders of a model that was saved without its head lack it. */
void hf_places_drop_root(hf_places *p);
/* The shape of the tensor; returns its rank. */
int hf_place_shape(const hf_place *p, int64_t shape[PARAMETER_RANKS]);
/* Is it of a linear layer's matrix inside a block? */
bool hf_is_block_matrix(const hf_place *p);

#endif
