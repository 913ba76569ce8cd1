/*
 * folders/hf/places: maps a model's parameters to the tensors of a Hugging Face folder. Model and folder
 * may differ: q, k and v (or gate and up) are fused or separate, the experts of a layer are one tensor or one
 * each, and some families store matrices transposed. A GGUF file has other names, and for some architectures
 * other values. Internal to src/folders.
 */
#ifndef FOLDERS_HF_PLACES_H
#define FOLDERS_HF_PLACES_H

#include "base/arena.h"
#include "folders/ranks.h"
#include "formats/gguf/gguf_arch.h"
#include "model/model.h"

/* The place where a folder stores rows of a parameter: a tensor and its rows. A vector has one column. */
typedef struct hf_place {
    const model_module *module;
    const parameter *parameter; /* weight or bias of the module */
    parameter_part owned;       /* the parameter's elements that this rank writes; 0 rows if none */
    int64_t first, count;       /* rows [first, first + count) of the parameter */
    int64_t columns;
    const char *name; /* name of the tensor */
    /* The name of the fused tensor if the family fuses this projection (q, k, v; gate, up), else `name`. */
    const char *fused;
    int64_t tensor_row;     /* the tensor's row at which these rows begin */
    int64_t tensor_rows;    /* rows of the full tensor, summed over its experts */
    int64_t experts;        /* experts in the tensor; 0 if it has no expert dimension */
    int64_t vector_columns; /* if the file stores this vector as a matrix, columns of the matrix; else 0 */
    /* The tensor is stored as [columns, rows]. hf_places_stream delivers elements in the tensor's order. */
    bool transposed;
    int64_t head_rows; /* GGUF: result of gguf_head_rows; else 0 */
    bool has_one;      /* GGUF: result of gguf_has_one */
} hf_place;

typedef struct hf_places {
    const model *m;
    const family *family;  /* family of the folder */
    bool are_packed;       /* all experts of a layer are one tensor */
    const gguf_arch *arch; /* architecture of the GGUF file; NULL: a Hugging Face folder */
    arena *memory;
    /* `count` places in the order of the parameters; places in one tensor are in the order of its rows */
    hf_place *items;
    int count;
} hf_places;

/* Lists the places of all parameters of m, also of other pipeline stages. packed: all experts of a layer are
   one tensor. Close with hf_places_close, even after an error. */
ott_status hf_places_open(const model *m, const family *f, bool packed, hf_places *out);
/* Lists the places in a GGUF file of this architecture, for loading. */
ott_status hf_places_open_gguf(const model *m, const gguf_arch *arch, hf_places *out);
void hf_places_close(hf_places *p);
/* If several ranks have the same elements, only one keeps `owned`, and the others get 0 rows. Collective. */
ott_status hf_places_agree(hf_places *p, const checkpoint_ranks *ranks);

/* The slice of the file tensor that this rank owns. */
typedef struct hf_slice {
    parameter_part part; /* rows and columns of the file tensor; 0 rows: this rank owns none */
    const tensor *shard; /* the parameter's shard on this rank */
    int64_t first;       /* offset of the slice in the shard, in elements */
} hf_slice;
hf_slice hf_place_slice(const hf_place *p);
/* Device address of element `at` of the slice. */
static inline void *hf_slice_at(const hf_slice *p, int64_t at) {
    return (char *)p->shard->data + (p->first + at) * dtype_bytes(p->shard->dtype);
}

/* Index of an element in the parameter minus its index in the tensor. Not for transposed tensors. */
static inline int64_t hf_place_shift(const hf_place *p) {
    return (p->first - p->tensor_row) * p->columns;
}

/* Receives elements [first, first + count) of a tensor, in row-major order. */
typedef ott_status (*hf_sink)(void *user, int64_t first, int64_t count, const float *values);
/* Reads this rank's elements of a tensor as fp32 and passes them to `sink` in ascending order. first: index
   of the tensor's first hf_place in p->items. Adapters are merged into the values (hf_merge.h). as_codes: if
   a weight is FP8 and has no adapter, passes its decoded codes without scales. buffer: HF_BUFFER elements. */
enum { HF_BUFFER = 1 << 16 };
ott_status hf_places_stream(const hf_places *p, int first, bool as_codes, float *buffer, hf_sink sink,
                            void *user);
/* Removes the leading "model." from the tensor names. Folders of models without a head do not have it. */
void hf_places_drop_root(hf_places *p);
/* Stores the shape that the tensor has in the file; returns the tensor's rank. */
int hf_place_shape(const hf_place *p, int64_t shape[PARAMETER_RANKS]);
/* True if the tensor is the matrix of a linear layer in a block, or of one expert there. */
bool hf_is_block_matrix(const hf_place *p);

#endif
