/*
 * model/model: a whole decoder: embedding, blocks, final norm, output head; its parameters. Passes through it:
 * model/run.
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

/* The Hugging Face folder that the frozen parameters beside adapters were read from, and a mark of its weights
   (checkpoint/hf_base.h). */
typedef struct model_base {
    char folder[PATH_MAX]; /* absolute */
    int64_t files, bytes;  /* 0 files: they came from none */
    int64_t hash;
} model_base;

struct model {
    model_options options;
    device *device;
    arena *names;
    module_list modules;
    module_list all_modules; /* those of all stages of a pipeline; only of `modules` are the layers bound */
    parameter *parameters;   /* of the modules, in the order they are used forward; a tied head adds none */
    int parameter_count;
    parameter **
        all_parameters; /* [all_parameter_count], the whole's; of another stage's nothing is here, and its shard is empty */
    int all_parameter_count, trained_count; /* of them, those that are trained */
    bool *
        freeze_matched; /* [patterns of options.freeze] while the model is opened: has it found a parameter? */
    void *
        frozen_scales; /* device block of the scales of frozen weights that are kept in FP8; NULL: there are none */
    void *values, *masters, *grads,
        *slot[PARAMETER_SLOTS]; /* device blocks the parameters view; NULL: nothing */
    int64_t block_bytes;        /* size of values, parameters padded to the alignment of the device */
    int64_t master_bytes;  /* size of masters, which has the matrices where they lie in the host's memory */
    int64_t trained_bytes; /* size of grads, which has the parameters that are not frozen: */
    int64_t trained_f32_bytes; /* first those in fp32, so many bytes, then those in bf16 */
    int64_t slot_bytes
        [PARAMETER_SLOTS]; /* size of each of the slots, of those of the same parameters that have it */
    parameter_store store;
    parameter_store experts;   /* of those that ranks divide among them; beside store; else nothing */
    expert_ranks expert_ranks; /* these */
    embedding embedding, position_embedding; /* weight NULL: rotary embedding */
    block *blocks;
    norm final_norm;
    activation_specs final_specs; /* of the final norm's output */
    loss_head loss;
    rope rope, local_rope; /* local_rope: of layers with a window, where theirs is another */
    delayed_store delayed; /* states of all linear layers */
    balance balance;
    ott_dtype activation;
    model_base base;            /* where options.base is given: what weights were read there */
    dora_tables adapter_tables; /* of decomposed adapters */
    ott_dtype masters_from; /* 16-bit format that a folder has for fp32 masters that train; OTT_F32: none */
    bool packed;            /* model_pack has let go of masters */
    const cancellation *
        cancellation; /* looks on while weights are made or loaded, and may end that; borrowed; NULL: nobody */
};

/* Units of a model's parameter store. */
enum { MODEL_TABLE_UNIT };
static inline int model_block_unit(int64_t layer) {
    return MODEL_TABLE_UNIT + 1 + (int)layer;
}
static inline int model_last_unit(const model *m) {
    return model_block_unit(m->options.layers);
}

typedef enum model_use { MODEL_INFERENCE, MODEL_TRAINING } model_use;

/* Allocates parameters (zero) and tables; weights come from model/init or a checkpoint, the numeric
   representation from model_convert. positions: rows of the rotary tables (the longest sequence that will
   run). */
ott_status model_open(device *d, const model_options *o, model_use use, int64_t positions, model **out);
void model_close(model *m); /* NULL is allowed */

int64_t model_parameter_count(const model *m); /* elements of the whole, each counted once */
int64_t model_shard_count(const model *m);     /* of them, those on this rank */
int64_t model_frozen_count(const model *m);    /* of them, those that are not trained */
/* Elements of matrices that take part in a GEMM for each token (tied embedding counted as the head). */
int64_t model_matmul_weights(const model *m);
/* Of a training step, as torchtitan counts: 6 for each of these weights, 6 layers heads seq_len for attention and
   each column of a head of q and of v. */
double model_flops_per_token(const model *m, int64_t seq_len);
/* Calls visit for every linear layer, in forward order. */
typedef ott_status (*model_linear_visit)(void *user, linear *l);
ott_status model_visit_linears(model *m, model_linear_visit visit, void *user);
/* Registers every activation's wants anew; after specs have changed. */
ott_status model_connect(model *m);
/* After a micro-batch: delayed scaling's amax of this step and all ranks of the group give the next scales.
 */
ott_status model_update_scales(exec *cx, model *m, group *g);
/* Compute weights are stale: masters were changed by other than the optimizer. */
void model_weights_changed(model *m);
/* Those that steps change are of this training step (-1: of none), whatever was seen of their making. */
void model_weights_made(model *m, int64_t step);
/* Until the next conversion the optimizer makes what it can of the weights' forms (nn/linear.h). */
void model_fuse_quantize(model *m);
/* The optimizer has: they are those of this training step. */
void model_mark_quantized(model *m, int64_t step);
/* Those that it has not made of the weights as they are. */
ott_status model_quantize_weights(exec *cx, model *m);

#endif
