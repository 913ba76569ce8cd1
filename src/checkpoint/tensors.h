/*
 * checkpoint/tensors: the tensors of one file of a checkpoint: as the file names them, and where
 * they are, to be written from there or read to there. Internal to this floor.
 */
#ifndef CHECKPOINT_TENSORS_H
#define CHECKPOINT_TENSORS_H

#include "base/arena.h"
#include "checkpoint/ranks.h"
#include "formats/safetensors.h"
#include "model/model.h"

/* What is here of a tensor, dense. A vector is a matrix of one row. */
typedef struct tensor_slice {
    void *data; /* NULL: nothing is, another rank has it */
    parameter_part part;
    bool on_host;     /* else on the model's device */
    const char *note; /* NULL, or the key of the file's metadata that has `number` as its value */
    int64_t number;
} tensor_slice;

typedef struct tensor_set {
    arena *memory;                /* of the tables, of names, and of small values */
    safetensors_tensor *declared; /* [capacity] */
    tensor_slice *slices;         /* [capacity] */
    int64_t count, capacity;
    safetensors_pair *metadata; /* [metadata_count] of the file */
    int64_t metadata_count;
} tensor_set;

/* An empty set for at most `capacity` tensors and as many pairs of metadata. Closed with tensor_set_close, also when this fails. */
ott_status tensor_set_open(tensor_set *set, mem *account, int64_t capacity);
void tensor_set_close(tensor_set *set); /* an all-zero set is allowed */
/* `declared` is copied; its name must live as long as the set. Its format is fp32, bf16 or, of codes, E4M3. All of it is at `data`, or nothing. */
ott_status tensor_set_add(tensor_set *set, const safetensors_tensor *declared, void *data, bool on_host);

/* Metadata of the file; copied. */
ott_status tensor_set_note(tensor_set *set, const char *key, const char *value);
/* The master of a parameter that the file calls `name`, or its codes and their scales, "NAME_scale_inv"; the state that an optimizer has of it. */
ott_status tensor_set_add_parameter(tensor_set *set, const char *name, const parameter *p);
ott_status tensor_set_add_slots(tensor_set *set, const char *name, const parameter *p,
                                const optimizer_rule *rule);

/* Of sets that all ranks have alike, but for what is where: leaves what some rank has, with the shape and number that it
   has there, and here what is this rank's to write. What several have, they write in turns. */
ott_status tensor_set_agree(tensor_set *set, const checkpoint_ranks *r);

const tensor_slice *tensor_set_find(const tensor_set *set, const char *name); /* NULL: it has none */
/* Tensors that are here, or a part of them. Of the file's, those that the set has but not here. */
int64_t tensor_set_count_local(const tensor_set *set);
int64_t tensor_set_count_remote(const tensor_set *set, const safetensors *f);
/* Has the file these tensors, in fp32 or bf16, and none that the set has not? Else an error that names one that it lacks, or
   has beside them. */
ott_status tensor_set_check(const tensor_set *set, const safetensors *f);
ott_status tensor_set_check_local(const tensor_set *set,
                                  const safetensors *f); /* whatever else the file has */
/* Takes off the set an optimizer's state of a parameter; is a tensor a part of that? */
void tensor_set_drop_state(tensor_set *set, const char *owner);
bool tensor_is_state_of(const char *state, const char *owner);
/* Of a declared tensor: elements of a row. */
int64_t tensor_set_columns(const safetensors_tensor *t);
int64_t tensor_slice_elements(const tensor_slice *p); /* elements that are here */
int64_t tensor_set_bytes(const tensor_set *set);      /* of all that is here */
/* Of those that are here the first that the file has in the other format, in which it is converted; NULL: none. */
const safetensors_tensor *tensor_set_converted(const tensor_set *set, const safetensors *f);
/* Reads what belongs here, once checked, to where it is, through a small buffer. */
ott_status tensor_set_read(const tensor_set *set, const safetensors *f, device *d,
                           cancellation_progress *progress, int64_t *done);

/* Open a set and fill it: the masters, without_base but those of frozen parameters that came from a folder
   (model_options.base); the optimizer's state of each that is trained, nothing without one. Of all stages
   of a pipeline. */
ott_status tensor_set_of_model(tensor_set *set, const model *m, bool without_base);
ott_status tensor_set_of_optimizer(tensor_set *set, const model *m);

#endif
