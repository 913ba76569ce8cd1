/*
 * train/trainer: a model with all a step needs around it: device buffers, memory plans, data. It knows how to
 * do one training step, one evaluation, and how to find where a non-finite value first appeared; when to do
 * which is train/loop's.
 */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "checkpoint/checkpoint.h"
#include "model/convert.h"
#include "model/run.h"
#include "tensor/group_host.h"
#include "train/feed.h"
#include "train/replay.h"
#include "train/stage.h"

typedef struct trainer_options {
    convert_options convert; /* its recipe is that of the first step */
    store_options store;
    optimizer_options optimizer;
    int64_t batch_size, seq_len, grad_accum;
    int64_t evaluation_batch, evaluation_length; /* a batch of evaluation */
    int64_t chunk;                               /* tokens per chunk of the loss head */
    float z_weight;                              /* of its z-loss */
    checkpointing checkpointing;
    int64_t checkpoint_every; /* every N-th block is checkpointed, 1: all */
    bool budgeted;            /* they are checkpointed as memory_budget says instead (train/budget.h) */
    double memory_budget;
    uint64_t data_seed;
    bool fp16_scaling; /* dynamic loss scale */
    bool graphs;       /* one rank records what it repeats, where the device can (train/replay.h) */
    /* All borrowed; NULL: this one alone. */
    /* all ranks of the run: they load a checkpoint together, and what is counted is of all */
    group *run_group;
    group *data_group; /* ranks that train this model on other rows of the data */
    group *
        replica_group; /* of them those that hold the same part of the parameters: their gradients are summed */
} trainer_options;

/* Matrix products of a step: in FP8, and all. */
typedef struct step_gemms {
    bool known;
    int64_t own[2], all[2]; /* of this rank; of all ranks */
} step_gemms;

typedef struct trainer {
    trainer_options options;
    const logger *log;
    mem *account;
    device *device;
    model *m;
    model_slot *slot;
    stage *stage; /* of a pipeline, where the model is one's; NULL: micro-batches run whole */
    exec cx;
    plan *train_plan, *evaluate_plan, *reduce_plan,
        *update_plan; /* of a micro-batch, an evaluation, store_reduce_once, the optimizer */
    replay replay;    /* of micro-batches and the optimizer's part */
    void *arena;
    const dataset *train_data, *validation_data; /* borrowed; the second may be NULL */
    void *device_block;                          /* batch, losses, step state */
    /* micro-batches that are on the device at once: those of a step where it is a stage's, else 1 */
    int64_t resident;
    batch *batches; /* [resident] */
    tensor *losses; /* [resident] */
    /* In the same memory, which a step writes anew. */
    batch evaluation_batch;
    tensor evaluation_losses;
    tensor grad_scale, pass_scale, nonfinite, state;
    /* of the step of routing biases, for the next training step: 1, or what their schedule says */
    double balance_factor;
    group_host host_exchange; /* what ranks tell each other; its group is the one that is spoken to */
    feed feed;
    int set;                      /* of its micro-batches: the step's that runs, or ran last */
    float *host_state;            /* staging of the step's state and of grad_scale */
    device_event *state_sent;     /* the device has it */
    int64_t gemms[2], counted[2]; /* in FP8, and all: of all ranks; of this one, as far as those have them */
    step_gemms step_gemms;        /* of each step since the last conversion */
    run_state run;
    bool is_consistent;   /* model and FP8 state are those after run.step steps: nothing failed inside one */
    const recipe *recipe; /* in force */
    void *delayed_before; /* device copy of m->delayed from when the step began; NULL: it has none */
    const hook *hook;     /* looks at the first micro-batch of each step; NULL: none */
    void (*micro_batch_done)(void *user, int64_t done,
                             int64_t total); /* inside a step; NULL: nobody looks on */
    void *micro_batch_user;
    convert_summary converted;
    int64_t planned_bytes; /* the most any conversion so far needs */
} trainer;

typedef struct step_result {
    double loss,
        z_loss; /* means over the label tokens: cross-entropy; z_weight times squared log-partition */
    double grad_norm;
    bool skipped;            /* loss or gradients were not finite: parameters stay */
    int64_t tokens, labels;  /* of all ranks: what was read, and what of it has a target */
    balance_figures balance; /* of a mixture of experts */
} step_result;

typedef struct evaluation {
    double loss; /* mean over the label tokens */
    int64_t batches, tokens, labels;
} evaluation;

/* Opens model and buffers on `device`, converts, plans memory. Weights are 0: they come from
   model_initialize, a folder or a checkpoint. data are borrowed. On a dry run (tensor/dry_run.h) it says
   what memory it would take, and does no step. */
ott_status trainer_open(mem *account, const logger *log, device *d, const model_options *shape,
                        const trainer_options *o, const dataset *train_data, const dataset *validation_data,
                        trainer **out);
void trainer_close(trainer *t); /* NULL is allowed */
/* Which blocks of a model are checkpointed, and how. */
void trainer_set_checkpointing(const trainer_options *o, model *m);
/* Takes parameters, moments, counters and FP8 state of a checkpoint; all ranks of the run do. */
ott_status trainer_load(trainer *t, const char *path);
ott_status trainer_load_part(trainer *t, const char *path, const checkpoint_exclusions *choice);
/* Between steps: goes on under another recipe, or converts anew under the same when layers have fallen back;
   plans memory again. The same, bit for bit, as saving, opening with that recipe and loading. */
ott_status trainer_convert(trainer *t, const recipe *r);
/* Which layers have fallen back, of all stages of a pipeline; before trainer_convert. All ranks of the run do. */
ott_status trainer_share_fallbacks(trainer *t);
/* One optimizer step at this learning rate. OTT_ERR_STOPPED when cx.watch ends it before the update: then
   nothing has changed. */
ott_status trainer_step(trainer *t, double learning_rate, step_result *out);
/* OTT_ERR_STOPPED when cx.watch ends it. The first `batches` batches of the validation data, or as many as there are. */
ott_status trainer_evaluate(trainer *t, int64_t batches, evaluation *out);
/* Runs the last step's micro-batches again and names the first module whose output or gradient is not finite:
   "output of model.layers.0.mlp.up_proj"; of several ranks the same on all, with " on rank 2" or " on rank 2, stage 1".
   "" if all are finite. */
ott_status trainer_find_nonfinite(trainer *t, char out[160]);
/* After a step, before trainer_find_nonfinite: names the parameter whose gradient was not finite first in backward,
   "model.layers.0.mlp.up_proj.weight"; with ranks as above. "" if all gradients are finite. */
ott_status trainer_find_gradient(trainer *t, char out[160]);
/* Between steps: makes the weights those that are evaluated and saved, or again those that train, where the optimizer tells them
   apart. */
ott_status trainer_use_average(trainer *t, bool average);
/* FP8 GEMMs and all GEMMs that the steps and evaluations so far took, on all ranks. */
void trainer_gemms(const trainer *t, int64_t *fp8, int64_t *all);

#endif
