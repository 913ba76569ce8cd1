/*
 * folders/tensors: the tensors of one safetensors file of a checkpoint: their names in the file, and the
 * memory that they are written from or read into. Internal to src/folders.
 */
#ifndef FOLDERS_TENSORS_H
#define FOLDERS_TENSORS_H

#include "base/arena.h"
#include "folders/ranks.h"
#include "formats/safetensors/safetensors.h"
#include "model/model.h"

/* The slice of a tensor that this rank has, in contiguous memory. A vector is a matrix with one row. */
typedef struct tensor_slice {
    void *data; /* elements of the slice; NULL if another rank has the slice */
    parameter_part part;
    bool on_host;     /* data is in host memory; else in the model's device memory */
    const char *note; /* key of the file's metadata that stores `number`; NULL: none */
    int64_t number;
} tensor_slice;

typedef struct tensor_set {
    arena *memory;                /* memory of the tables, names and small values */
    safetensors_tensor *declared; /* `capacity` tensors */
    tensor_slice *slices;         /* `capacity` slices */
    int64_t count, capacity;
    safetensors_pair *metadata; /* metadata_count key-value pairs of the file */
    int64_t metadata_count;
} tensor_set;

/* Opens an empty set with space for `capacity` tensors and metadata pairs. Close it even after an error. */
ott_status tensor_set_open(tensor_set *set, mem *account, int64_t capacity);
void tensor_set_close(tensor_set *set); /* an all-zero set is allowed */
/* Adds a tensor in fp32, bf16 or E4M3. `declared` is copied, but its name must outlive the set. `data` has
   the tensor's elements; NULL if only another rank has them. */
ott_status tensor_set_add(tensor_set *set, const safetensors_tensor *declared, void *data, bool on_host);

/* Adds metadata; key and value are copied. */
ott_status tensor_set_note(tensor_set *set, const char *key, const char *value);
/* Adds a parameter's value under `name`. If it is kept in FP8, adds its codes, and its scales as
   "NAME_scale_inv". tensor_set_add_slots adds its optimizer state instead. */
ott_status tensor_set_add_parameter(tensor_set *set, const char *name, const parameter *p);
ott_status tensor_set_add_slots(tensor_set *set, const char *name, const parameter *p,
                                const optimizer_rule *rule);

/* All ranks list the same tensors before this collective call. It removes tensors that no rank has. It copies
   shape and `number` of a tensor from a rank that has it. If several ranks have the same slice, it keeps the
   data on one of them, which writes it. */
ott_status tensor_set_agree(tensor_set *set, const checkpoint_ranks *r);

const tensor_slice *tensor_set_find(const tensor_set *set, const char *name); /* NULL if the set has none */
/* Check that the file has all tensors of the set with data on this rank: in equal shape, in fp32, bf16, fp16
   or the set's format. tensor_set_check also fails if the set lacks a tensor of the file. */
ott_status tensor_set_check(const tensor_set *set, const safetensors *f);
ott_status tensor_set_check_local(const tensor_set *set, const safetensors *f);
/* tensor_set_drop_state removes the optimizer state of parameter `owner`. tensor_is_state_of is true if
   `state` is the name of a tensor of that state. */
void tensor_set_drop_state(tensor_set *set, const char *owner);
bool tensor_is_state_of(const char *state, const char *owner);
/* Elements per row of a declared tensor. */
int64_t tensor_set_columns(const safetensors_tensor *t);
int64_t tensor_slice_elements(const tensor_slice *p); /* elements of this rank's slice */
int64_t tensor_set_bytes(const tensor_set *set);      /* bytes of all slices on this rank */
/* Returns the first tensor with data on this rank that has another format in the file, or NULL. */
const safetensors_tensor *tensor_set_converted(const tensor_set *set, const safetensors *f);
/* Reads all local slices from a checked file, through a small buffer. *done counts bytes, for `progress`. */
ott_status tensor_set_read(const tensor_set *set, const safetensors *f, device *d,
                           cancellation_progress *progress, int64_t *done);

/* Writes the set to the file `path` in a staging folder. Collective: each rank writes its slices. */
ott_status tensors_write(mem *account, const checkpoint_ranks *ranks, const tensor_set *set,
                         const char *path);

/* Opens a set and adds the parameters of all pipeline stages. tensor_set_of_model: the masters; without_base
   leaves out frozen parameters that came from a folder (model_options.base). tensor_set_of_optimizer: the
   state of trained parameters and the token counts of experts; empty without an optimizer. */
ott_status tensor_set_of_model(tensor_set *set, const model *m, bool without_base);
ott_status tensor_set_of_optimizer(tensor_set *set, const model *m);

#endif
