/*
 * parallel/hf_places: where a model's parameters lie in the tensors of a Hugging Face folder. Families that
 * fuse store q, k and v, or gate and up, as one tensor; the model has them apart. Internal to this floor.
 */
#ifndef PARALLEL_HF_PLACES_H
#define PARALLEL_HF_PLACES_H

#include "base/arena.h"
#include "model/model.h"

/* Rows [row, row + the parameter's rows) of the tensor `name`. */
typedef struct hf_place {
    const char *name;
    const char *fused; /* what a fusing family calls it: the same for q, k, v, and for gate, up */
    int64_t row, rows; /* rows: of the whole tensor */
} hf_place;

typedef struct hf_places {
    const model *m;
    arena *memory;
    hf_place *of; /* [parameter_count] */
} hf_places;

/* fused: the folder is of a family that fuses. */
ott_status hf_places_open(const model *m, bool fused, hf_places *out);
void hf_places_close(hf_places *p);
/* Rows [row, row + count) of the tensor that begins with parameter `first`, into out[count, columns]. */
ott_status hf_places_read(const hf_places *p, int first, int64_t row, int64_t count, float *out);
/* Is parameter i a linear layer's matrix inside a block? */
bool hf_is_block_matrix(const model *m, int i);

#endif
