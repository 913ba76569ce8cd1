/*
 * checkpoint/float8: the FP8 state of linear layers in a file of its own: delayed scaling's histories and
 * scales, and what float8.fallback has counted and decided. Internal to this floor and the public API.
 *
 *     "<module>.<tensor>.<format>.amax_history"   fp32[length], the newest last; "...scale" fp32[1]
 *     "<module>.below"                            fp32[1]: linear.below where it is not 0
 *     metadata "<module>.<tensor>.margin"         of its scale; older files have none, which fits any
 *     metadata "recipe", or "<module>.recipe"     the name of the one in force, kept for messages
 */
#ifndef CHECKPOINT_FLOAT8_H
#define CHECKPOINT_FLOAT8_H

#include "base/log.h"
#include "checkpoint/tensors.h"

extern const char *const float8_tensor_names[TENSOR_COUNT]; /* "input", "weight", "grad_output" */

/* A linear layer and what the file calls it; both borrowed. */
typedef struct float8_layer {
    const char *name;
    linear *linear; /* NULL: another rank has it */
} float8_layer;

/* Opens the set and fills it with the state of layers[count]; `all`: with what they could have but have not here, for
   tensor_set_agree. */
ott_status float8_describe(mem *account, const float8_layer *layers, int64_t count, bool all,
                           tensor_set *set);

/* What a file (NULL: there is none) has of one tensor of a layer; history NULL: nothing. */
typedef struct float8_found {
    ott_dtype format;
    bool has_margin;
    int margin; /* 0: none is said */
    const safetensors_entry *history, *scale;
} float8_found;
ott_status float8_find(mem *account, const safetensors *f, const char *layer, int which, float8_found *out);

/* Looks at every entry of a file: scales multiply, magnitudes and counts are what they say. OTT_ERR_SHAPE, OTT_ERR_FORMAT. */
ott_status float8_check(mem *account, const safetensors *f);

/* What becomes of the state of one tensor of a layer: taken, with another length of its history, anew because the file
   has none that fits, or left in the file because the layer has no use for it. */
typedef enum float8_event { FLOAT8_TAKEN, FLOAT8_RESIZED, FLOAT8_FRESH, FLOAT8_DROPPED } float8_event;
typedef void (*float8_callback)(void *user, const float8_layer *layer, int which, float8_event event);

/* Puts what a checked file (NULL: there is none) has into the layers, whose specs are set. A state fits one of the same format and margin; an
   amax history of another length keeps its newest members. */
ott_status float8_read(device *d, const safetensors *f, const float8_layer *layers, int64_t count,
                       float8_callback listener, void *user);

/* ---- of a model ---- */

ott_status checkpoint_float8_describe(const model *m, const char *recipe_name, bool all, tensor_set *set);
/* Checks, reads, and lets the log say what starts anew or was dropped. *fallen: some layer of the file has fallen back
   and the model does not run it so. */
ott_status checkpoint_float8_read(model *m, const logger *log, const safetensors *f, bool *fell_back);

#endif
