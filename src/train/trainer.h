/* train/trainer: a model with everything a training step needs: device buffers, memory plans, data,
   optimizer. Runs one training step or one evaluation, changes the recipe, and finds where a non-finite value
   first appeared. run/loop calls its functions. With several ranks, all ranks make the same calls. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "model/convert.h"
#include "model/run.h"
#include "tensor/group/group_host.h"
#include "train/feed.h"
#include "train/replay.h"
#include "train/stage.h"

typedef struct trainer_options {
    convert_options convert; /* convert.recipe is the recipe of the first step */
    store_options store;
    optimizer_options optimizer;
    /* On one rank: sequences per micro-batch, tokens per sequence, micro-batches per step. seq_len is the
       length of the full sequence, also if context-parallel ranks divide the sequence. */
    int64_t batch_size, seq_len, grad_accum;
    /* Sequences in the evaluation batch of one data-parallel rank, and tokens per sequence; both >= 1. */
    int64_t evaluation_batch, evaluation_length;
    int64_t chunk;    /* tokens that the loss head processes in one chunk, >= 1 */
    float z_weight;   /* weight of the z-loss; 0: none */
    caller_loss loss; /* a caller's loss function; function NULL: cross-entropy */
    checkpointing checkpointing;
    int64_t checkpoint_every; /* apply `checkpointing` to every N-th block, N >= 1 */
    bool budgeted;            /* memory_budget selects the activation checkpointing (train/budget.h) */
    double memory_budget;     /* 0: memory with all blocks recomputed; 1: memory with no block recomputed */
    uint64_t data_seed;
    bool fp16_scaling; /* use a dynamic loss scale */
    /* Replay CUDA graphs (train/replay.h) if this is the only rank, the device has graphs, and the loss is
       cross-entropy: no graph can call a caller's function. */
    bool graphs;
    /* The groups are borrowed; NULL: this rank only. */
    group *run_group;     /* all ranks of the run: they load checkpoints together and sum counts */
    group *data_group;    /* ranks that train this model on different rows of the data */
    group *replica_group; /* subset of data_group: ranks that have the same shard and sum its gradients */
} trainer_options;

/* Numbers of GEMMs of one step: [0] in FP8, [1] in all formats. */
typedef struct step_gemms {
    bool known;             /* true after the first step that follows a conversion */
    int64_t own[2], all[2]; /* own: GEMMs of this rank; all: GEMMs of all ranks */
} step_gemms;

typedef struct trainer {
    trainer_options options;
    const logger *log;
    mem *account;
    device *device;
    model *m;
    model_slot *slot; /* NULL on a pipeline stage: the stage has slots */
    stage *stage;     /* NULL without pipeline parallelism */
    exec cx;
    plan *train_plan;    /* memory plan of a micro-batch; with a pipeline, of all micro-batches of a step */
    plan *evaluate_plan; /* plan of a batch of evaluation */
    plan *reduce_plan;   /* plan of store_reduce_once and stage_share_gradients */
    plan *update_plan;   /* plan of the optimizer */
    replay replay;
    void *arena;                                 /* device memory that all plans share */
    const dataset *train_data, *validation_data; /* borrowed; validation_data may be NULL */
    void *device_block;                          /* device memory of batches, losses and step state */
    int64_t resident; /* number of micro-batches on the device: grad_accum with a pipeline, else 1 */
    batch *batches;   /* `resident` micro-batches */
    tensor *losses;   /* losses of the `resident` micro-batches */
    /* Evaluations use the memory of `batches` and `losses`, which the next step overwrites. */
    batch evaluation_batch;
    tensor evaluation_losses;
    /* fp32[1] each, on the device: the loss scale divided by a step's labels; by a step's micro-batches. */
    tensor grad_scale, pass_scale;
    tensor nonfinite;         /* i32[1]: result of op_count_nonfinite */
    tensor state;             /* fp32[STEP_STATE_COUNT], on the device (tensor/step_state.h) */
    double balance_factor;    /* multiplies the update of MoE routing biases in the next step */
    group_host host_exchange; /* small host-side reductions; .group is set before each call */
    feed feed;
    int set;                  /* number of the feed set of the current or last step */
    float *host_state;        /* SENT_WORDS floats that are copied to state, grad_scale and pass_scale */
    device_event *state_sent; /* recorded after the copy of host_state to the device */
    int64_t gemms[2];         /* GEMMs of all ranks so far: [0] in FP8, [1] in all formats */
    int64_t counted[2];       /* this rank's GEMMs that are included in `gemms` */
    step_gemms step_gemms;    /* GEMMs of each step since the last conversion */
    run_state run;
    bool is_consistent;   /* true: model and FP8 state belong to step run.step; false: a step has failed */
    const recipe *recipe; /* the current recipe */
    void *delayed_before; /* device copy of m->delayed, to undo a stopped step; NULL: no delayed scaling */
    const hook *hook;     /* called in a step's first micro-batch (with a pipeline, in all); may be NULL */
    /* Called after each micro-batch of a step (with a pipeline once, after all of them); may be NULL. */
    void (*micro_batch_done)(void *user, int64_t done, int64_t total);
    void *micro_batch_user;
    convert_summary converted;
    int64_t planned_bytes; /* device memory of the conversion that needs most */
} trainer;

typedef struct step_result {
    double loss;   /* cross-entropy, mean over all ranks' tokens with a target */
    double z_loss; /* z_weight times the squared log-partition, mean as for `loss` */
    double grad_norm;
    bool skipped;            /* loss or gradients were not finite, so the parameters did not change */
    int64_t tokens, labels;  /* tokens: read by all ranks; labels: tokens with a target */
    balance_figures balance; /* load balance of the MoE layers */
} step_result;

typedef struct evaluation {
    double loss;                     /* mean over all ranks' tokens with a target */
    int64_t batches, tokens, labels; /* sums over all ranks; labels: tokens with a target */
} evaluation;

/* Opens the model and buffers on d, converts the model and plans memory. Weights are zero: fill them with
   model_initialize, a Hugging Face folder or a checkpoint. Copies *shape and *o, but borrows what they point
   to, and also log and the datasets. A dry run (tensor/dry_run.h) only counts the memory, and no step may be
   run. Close with trainer_close. */
ott_status trainer_open(mem *account, const logger *log, device *d, const model_options *shape,
                        const trainer_options *o, const dataset *train_data, const dataset *validation_data,
                        trainer **out);
void trainer_close(trainer *t); /* t may be NULL */
/* Sets the checkpointing of every block of m from o->checkpointing and o->checkpoint_every. */
void trainer_set_checkpointing(const trainer_options *o, model *m);
/* Loads parameters, moments, counters and FP8 state; trainer_load_part skips excluded parts. Also converts
   the model again if layers fell back in the saved run. Collective. */
ott_status trainer_load(trainer *t, const char *path);
ott_status trainer_load_part(trainer *t, const char *path, const checkpoint_exclusions *exclusions);
/* Between steps: continues with recipe r, which must outlive the trainer, and plans memory again. Also call
   it with the current recipe after layers have fallen back. The results are the same, bit for bit, as after
   saving, opening a trainer with recipe r and loading. */
ott_status trainer_convert(trainer *t, const recipe *r);
/* Shares the list of layers that fell back among pipeline stages. Collective; call before trainer_convert. */
ott_status trainer_share_fallbacks(trainer *t);
/* Runs one optimizer step. OTT_ERR_STOPPED if cx.cancellation stops the micro-batches; then weights, FP8
   state and counters are as before the step. After another error, check t->is_consistent. */
ott_status trainer_step(trainer *t, double learning_rate, step_result *out);
/* Evaluates the first `batches` (>= 1) batches of the validation data, or all batches if there are fewer. The
   data-parallel ranks divide the batches. With a schedule-free optimizer it uses the averaged weights and
   then restores the training weights. OTT_ERR_STOPPED if cx.cancellation stops it. */
ott_status trainer_evaluate(trainer *t, int64_t batches, evaluation *out);
/* After a skipped step: runs its micro-batches again with the current weights. Names the first module with an
   output or gradient that is not finite: "output of model.layers.0.mlp.up_proj". Overwrites the gradients.
   All ranks get the text of one rank, with " on rank 2" or " on rank 2, stage 1" if there are several. "" if
   all values are finite. Collective over run_group. */
ott_status trainer_find_nonfinite(trainer *t, char out[160]);
/* Names the first parameter, in backward order, with a gradient that is not finite:
   "model.layers.0.mlp.up_proj.weight". The rank is appended as in trainer_find_nonfinite. "" if all gradients
   are finite. Collective; call it after a step and before trainer_find_nonfinite. */
ott_status trainer_find_gradient(trainer *t, char out[160]);
/* Between steps: gives the model the averaged weights of a schedule-free optimizer, or the training weights
   again. No effect with other optimizers. trainer_evaluate and trainer_load call this function. */
ott_status trainer_use_average(trainer *t, bool average);
/* Numbers of GEMMs of all steps and evaluations so far, on all ranks: *fp8 in FP8, *all in all formats. */
void trainer_gemms(const trainer *t, int64_t *fp8, int64_t *all);

#endif
