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
    int64_t bytes;
    bool on_host; /* else on the model's device */
} tensor_place;

typedef struct tensor_set {
    arena *memory;                /* of the tables, of names, and of small values */
    safetensors_tensor *declared; /* [capacity] */
    tensor_place *places;         /* [capacity] */
    int64_t count, capacity;
    safetensors_pair metadata; /* of the file; key NULL: none */
} tensor_set;

/* An empty set for at most `capacity` tensors. Closed with tensor_set_close, also when this fails. */
ott_status tensor_set_open(tensor_set *set, mem *account, int64_t capacity);
void tensor_set_close(tensor_set *set); /* an all-zero set is allowed */
/* `declared` is copied; its name must live as long as the set. Its format is fp32. */
ott_status tensor_set_add(tensor_set *set, const safetensors_tensor *declared, void *data, bool on_host);

/* Open a set and fill it: the fp32 masters; both moments of each. */
ott_status tensor_set_of_model(tensor_set *set, const model *m);
ott_status tensor_set_of_optimizer(tensor_set *set, const model *m);

#endif
