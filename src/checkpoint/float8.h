/*
 * checkpoint/float8: the FP8 state of linear layers, in float8.safetensors: amax histories and scales of
 * delayed scaling, and the counters of float8.fallback. Used by src/checkpoint and the public API.
 *
 *     "<module>.<tensor>.<format>.amax_history"   fp32[length], newest last; "...scale": fp32[1]
 *     "<module>.below"                            fp32[1]: linear.low_sqnr_count, if it is not 0
 *     metadata "<module>.<tensor>.margin"         margin of the scale; old files lack it and fit any margin
 *     metadata "recipe", or "<module>.recipe"     name of the current recipe, for messages
 */
#ifndef CHECKPOINT_FLOAT8_H
#define CHECKPOINT_FLOAT8_H

#include "base/log.h"
#include "folders/tensors.h"

extern const char *const float8_tensor_names[TENSOR_COUNT]; /* the names "input", "weight", "grad_output" */

/* A linear layer and its name in the file. Both are borrowed. */
typedef struct float8_layer {
    const char *name;
    linear *linear; /* NULL if another rank has the layer */
} float8_layer;

/* Opens a tensor set with the FP8 state of layers[count]. all: also with names of state that only other ranks
   have, as tensor_set_agree requires. Close the set with tensor_set_close, even after an error. */
ott_status float8_describe(mem *account, const float8_layer *layers, int64_t count, bool all,
                           tensor_set *set);

/* The state of one tensor of a layer in a file. history is NULL if the file has no state of this tensor. */
typedef struct float8_found {
    ott_dtype format;
    bool has_margin;
    int margin; /* margin of the scale; 0 if has_margin is false */
    const safetensors_entry *history, *scale;
} float8_found;
/* Looks up tensor `which` (index in float8_tensor_names) of a layer in file f. f NULL: finds nothing. */
ott_status float8_find(mem *account, const safetensors *f, const char *layer, int which, float8_found *out);

/* Checks all entries: positive scales, valid amaxes and counters. Fails with OTT_ERR_SHAPE or _FORMAT. */
ott_status float8_check(mem *account, const safetensors *f);

/* Result for one tensor of a layer. TAKEN: read. RESIZED: read, with another history length. FRESH:
   initialized, because the file has no matching state. DROPPED: ignored; the layer does not need it. */
typedef enum float8_event { FLOAT8_TAKEN, FLOAT8_RESIZED, FLOAT8_FRESH, FLOAT8_DROPPED } float8_event;
typedef void (*float8_callback)(void *user, const float8_layer *layer, int which, float8_event event);

/* Reads the state of all layers from a file that float8_check accepted; f NULL: initializes the state. Set
   each layer's linear_spec before this call. Saved state is used if it has the layer's format and margin. If
   its history has another length, the newest entries are used. */
ott_status float8_read(device *d, const safetensors *f, const float8_layer *layers, int64_t count,
                       float8_callback listener, void *user);

/* ---- all linear layers of a model ---- */

ott_status checkpoint_float8_describe(const model *m, const char *recipe_name, bool all, tensor_set *set);
/* Checks and reads the file, and logs how many states were initialized or ignored. *fell_back is true if a
   layer of the file fell back but the model still runs it in FP8. */
ott_status checkpoint_float8_read(model *m, const logger *log, const safetensors *f, bool *fell_back);

#endif
