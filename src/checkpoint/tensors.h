/*
 * checkpoint/tensors: the tensors of one file of a checkpoint: as the file names them, and where
 * they are, to be written from there or read to there. Internal to this floor.
 */
#ifndef CHECKPOINT_TENSORS_H
#define CHECKPOINT_TENSORS_H

#include "base/arena.h"
#include "formats/safetensors.h"
#include "model/model.h"

typedef struct tensor_place {
    void *data;
    int64_t first, bytes; /* of the tensor's bytes, those that are here */
    bool on_host;         /* else on the model's device */
} tensor_place;

typedef struct tensor_set {
    arena *memory;                /* of the tables, of names, and of small values */
    safetensors_tensor *declared; /* [capacity] */
    tensor_place *places;         /* [capacity] */
    int64_t count, capacity;
    safetensors_pair *metadata; /* [metadata_count] of the file */
    int64_t metadata_count;
} tensor_set;

/* An empty set for at most `capacity` tensors and as many pairs of metadata. Closed with tensor_set_close, also when this fails. */
ott_status tensor_set_open(tensor_set *set, mem *account, int64_t capacity);
void tensor_set_close(tensor_set *set); /* an all-zero set is allowed */
/* `declared` is copied; its name must live as long as the set. Its format is fp32. */
ott_status tensor_set_add(tensor_set *set, const safetensors_tensor *declared, void *data, bool on_host);

/* Metadata of the file; copied. */
ott_status tensor_set_note(tensor_set *set, const char *key, const char *value);
/* The master of a parameter that the file calls `name`; the state that an optimizer has of it. */
ott_status tensor_set_add_parameter(tensor_set *set, const char *name, const parameter *p);
ott_status tensor_set_add_slots(tensor_set *set, const char *name, const parameter *p,
                                const optimizer_rule *rule);

/* Has the file exactly these tensors? Else an error that names one that it lacks, or has beside them. */
ott_status tensor_set_check(const tensor_set *set, const safetensors *f);
int64_t tensor_set_bytes(const tensor_set *set);
/* Reads all of them, once checked, to where they are on the device, through a small buffer. */
ott_status tensor_set_read(const tensor_set *set, const safetensors *f, device *d, watched *progress,
                           int64_t *done);

/* Open a set and fill it: the fp32 masters; the optimizer's state of each that is trained. */
ott_status tensor_set_of_model(tensor_set *set, const model *m);
ott_status tensor_set_of_optimizer(tensor_set *set, const model *m);

#endif
