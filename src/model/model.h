/*
 * model/model: a decoder with its parameters: embedding, blocks, final norm and output head. model/run runs a
 * micro-batch through it.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/arena.h"
#include <limits.h>
#include "model/balance.h"
#include "model/block.h"
#include "model/modules.h"
#include "nn/loss.h"
#include "parallel/store.h"

/* The Hugging Face folder that an adapter model's frozen base weights were read from, and a fingerprint of
   the folder's weights (folders/hf/base.h). */
typedef struct model_base {
    char folder[PATH_MAX]; /* absolute path */
    int64_t files, bytes;  /* number and size of the weight files; 0 files: no weights were loaded */
    int64_t hash;
} model_base;

struct model {
    model_options options;
    device *device;
    arena *names;            /* memory of the names, lists, parameters and blocks */
    module_list modules;     /* this pipeline stage's modules, bound to layers */
    module_list all_modules; /* modules of all pipeline stages; layers of other stages are NULL */
    parameter *parameters;   /* [parameter_count] parameters of `modules`, in order; a tied head has none */
    int parameter_count;
    /* [all_parameter_count] parameters of all stages; shards of other stages' parameters are empty */
    parameter **all_parameters;
    int all_parameter_count, trained_count; /* trained_count: number of trained parameters on all stages */
    bool *freeze_matched; /* [options.freeze->count] whether each pattern matched; used by model_open */
    void *frozen_scales;  /* device memory: scales of frozen weights stored in FP8; NULL: none */
    /* device memory that the parameters view; NULL: none */
    void *values, *masters, *grads, *slot[PARAMETER_SLOTS];
    int64_t block_bytes;       /* size of `values`, parameters padded to the device's alignment */
    int64_t master_bytes;      /* size of `masters`: mapped host memory of offloaded master weights */
    int64_t trained_bytes;     /* size of `grads`: first the fp32 gradients, then the bf16 gradients */
    int64_t trained_f32_bytes; /* size of the fp32 gradients in `grads` */
    int64_t slot_bytes[PARAMETER_SLOTS]; /* size of each `slot`: a state tensor of every trained parameter */
    parameter_store store;
    parameter_store experts;                 /* store of expert weights with expert parallelism; else empty */
    expert_ranks expert_ranks;               /* used if options.expert_ranks is not NULL */
    embedding embedding, position_embedding; /* position_embedding.weight NULL: no learned positions */
    block *blocks;                           /* [options.layers] */
    norm final_norm;
    activation_specs final_specs; /* specs of the final norm's output, which the head reads */
    loss_head loss;
    rope rope, local_rope; /* local_rope: for sliding-window layers, if options.local_theta > 0 */
    delayed_store delayed; /* delayed-scaling state of all linear layers */
    balance balance;
    ott_dtype activation;             /* high-precision format of activations; set by model_convert */
    model_base base;                  /* the base weights' folder, if options.base is not NULL */
    dora_tables adapter_tables;       /* shared by the DoRA adapters */
    ott_dtype masters_from;           /* 16-bit format of the files of trained weights; OTT_F32: none */
    bool packed;                      /* model_pack has freed the masters */
    device_arena packed_weights;      /* weights that model_pack has packed */
    const cancellation *cancellation; /* cancels loading and initialization; borrowed; NULL: none */
};

/* Units of the parameter store, in order: embeddings; one unit for each block; final norm and head. */
enum { MODEL_TABLE_UNIT };
static inline int model_block_unit(int64_t layer) {
    return MODEL_TABLE_UNIT + 1 + (int)layer;
}
static inline int model_last_unit(const model *m) {
    return model_block_unit(m->options.layers);
}

/* How the model's linear layers are split over the tensor-parallel ranks. */
static inline tensor_ranks model_tensor_ranks(const model *m) {
    return (tensor_ranks){.group = m->options.tensor_ranks,
                          .sequence = m->options.sequence_parallel,
                          .codes_alike = !m->device->can->contiguous_contraction};
}

typedef enum model_use { MODEL_INFERENCE, MODEL_TRAINING } model_use;

/* Allocates zeroed parameters and rotary tables. Afterwards model/init or a checkpoint sets the weights, and
   model_convert sets the formats of GEMMs. positions: rows of the rotary tables, at least the longest
   sequence. MODEL_INFERENCE allocates no gradients and no optimizer state. OTT_ERR_CONFIG for options that
   contradict each other, or patterns that match no parameter. */
ott_status model_open(device *d, const model_options *o, model_use use, int64_t positions, model **out);
void model_close(model *m); /* m may be NULL */

int64_t model_parameter_count(const model *m); /* number of elements; tied weights count once */
int64_t model_shard_count(const model *m);     /* number of elements of this rank's shards */
int64_t model_frozen_count(const model *m);    /* number of elements of the full model that are frozen */
/* Number of weights that GEMMs multiply each token with. A tied embedding counts once, as the head. */
int64_t model_matmul_weights(const model *m);
/* FLOPs per token of a training step, as torchtitan counts: 6 for each weight of model_matmul_weights, plus
   model_mixer_flops. */
double model_flops_per_token(const model *m, int64_t seq_len);
/* FLOPs per token of all mixers without their linear layers. An attention layer has 6 x heads x seq_len x
   (width of a q head + width of a v head). */
double model_mixer_flops(const model_options *o, int64_t seq_len);
/* Returns the next linear layer of this stage, in forward order; NULL after the last. Begin with *at = 0. */
linear *model_next_linear(const model *m, int *at);
/* Sets which quantized copies each activation needs, by the specs of its readers. Call it if specs change. */
ott_status model_connect(model *m);
/* Delayed scaling: reduces amaxes over g and computes the next scales. Call it after a micro-batch. */
ott_status model_update_scales(exec *cx, model *m, group *g);
/* Marks all compute weights as out of date. Call it if anything but the optimizer changed the masters. */
void model_weights_changed(model *m);
/* Marks all compute weights as made in step `step`. */
void model_weights_made(model *m, int64_t step);
/* Makes the optimizer step also quantize the weights, until the next model_convert (nn/weight/weight.h). */
void model_fuse_quantize(model *m);
/* Call after optimizer step `step`: marks the weights that it quantizes as quantized in this step. */
void model_mark_quantized(model *m, int64_t step);
/* Before the replay of a graph that makes compute weights: marks them as out of date, except those that never
   change. Quantizes the weights that no optimizer step has quantized for cx->step, as after loading. */
ott_status model_prepare_replay(exec *cx, model *m);

#endif
