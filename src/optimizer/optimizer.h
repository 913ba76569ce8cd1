/*
 * optimizer/optimizer: a table of optimizers, and one update of all parameters: gradient norm, clipping,
 * step.
 */
#ifndef OPTIMIZER_OPTIMIZER_H
#define OPTIMIZER_OPTIMIZER_H

#include "nn/parameter.h"

/* Factor of Muon's update of a matrix [rows, columns]. */
typedef enum muon_scale {
    MUON_SCALE_ORIGINAL, /* factor sqrt(max(1, rows / columns)) */
    MUON_SCALE_RMS,      /* factor 0.2 sqrt(max(rows, columns)): updates have about AdamW's RMS */
    MUON_SCALE_SPECTRAL, /* factor sqrt(rows / columns) */
    MUON_SCALE_ONE
} muon_scale;

/* Options of all rules. A rule ignores the options of other rules. */
typedef struct optimizer_options {
    float beta1, beta2, epsilon, weight_decay;
    float max_norm; /* gradients are clipped to this global norm; 0: no clipping */
    uint64_t seed;  /* seed of stochastic rounding */
    float momentum; /* SGD, Muon */
    bool nesterov;  /* SGD, Muon */
    /* Schedule-free: number of warmup updates; iterates are averaged with the weight rate^weight_lr_power. */
    int64_t warmup;
    double weight_lr_power;
    /* Muon: steps and format of Newton-Schulz; adam_rate: AdamW's learning rate divided by Muon's. */
    int muon_steps;
    muon_scale muon_scale;
    ott_dtype muon_format;
    float adam_rate;
} optimizer_options;

/* The groups over which parameters are distributed; borrowed. A group is NULL if there is only one rank. */
typedef struct optimizer_ranks {
    group *shard;   /* data-parallel ranks, which shard the parameters */
    group *tensor;  /* tensor-parallel ranks, which have the other local parts */
    group *experts; /* ranks of `shard` that have other experts (nn/moe/expert_ranks.h) */
    group *stages;  /* pipeline stages, which have other layers */
    int trained;    /* number of trained parameters of all stages; read only if `stages` is not NULL */
} optimizer_ranks;

enum { OPTIMIZER_LIST = 64 }; /* maximum length of a list of parameters or rows */

typedef struct optimizer_rows optimizer_rows; /* contiguous rows of a shard: optimizer/rules.h */

typedef struct optimizer_rule {
    const char *name; /* value of optimizer.name */
    /* State tensors: each has a parameter's shape and starts at 0. Number, and names in checkpoints. */
    int slots;
    const char *slot[PARAMETER_SLOTS];
    int applied_slots; /* number of state tensors of parameters that applies_to accepts; 0: `slots` */
    /* True if the step can also quantize p's shard into p->shard.quantized. NULL: true for no parameter. */
    bool (*can_quantize)(const parameter *p);
    /* True if the rule updates p, false if AdamW does (at adam_rate). NULL: the rule updates all. */
    bool (*applies_to)(const parameter *p);
    /* Writes the scalars of update number `update` (from 1) to host_state (tensor/step_state.h). */
    void (*schedule)(const optimizer_options *o, int64_t update, float *host_state);
    /* A rule has either `update` or `step`. They update masters and state tensors from gradients, but change
       nothing if state[STEP_SKIP] != 0. count <= OPTIMIZER_LIST. `update` is for element-wise rules. */
    ott_status (*update)(exec *cx, const optimizer_options *o, const optimizer_rows *rows, int count,
                         const tensor *state);
    /* `step` works matrix by matrix, as Muon does. */
    ott_status (*step)(exec *cx, const optimizer_options *o, const parameter *const *trained, int count,
                       const optimizer_ranks *ranks, const tensor *state);
    /* Writes averaged weights to p, or with `average` false the training weights. NULL: no averages. */
    ott_status (*use_average)(exec *cx, const optimizer_options *o, const parameter *p, bool average);
} optimizer_rule;

/* Returns the rule with this name; NULL if there is none. */
const optimizer_rule *optimizer_find(const char *name);
/* Number of state tensors of p. */
int optimizer_slots(const optimizer_rule *rule, const parameter *p);
/* Writes the part of the step state that the host computes, for update number `update` (from 1). */
void optimizer_schedule(const optimizer_rule *rule, const optimizer_options *o, double learning_rate,
                        int64_t update, float *host_state);
/* Runs only the rule's step on trained[count], without norm and clipping. count <= OPTIMIZER_LIST. */
ott_status optimizer_step(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                          const parameter *const *trained, int count, const optimizer_ranks *ranks,
                          const tensor *state);
/* One update of parameters[count] from their accumulated gradients. ranks NULL: one rank. state:
   fp32[STEP_STATE_COUNT] on the device. Temporary tensors are in the memory plan. */
ott_status optimizer_update(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                            const parameter *parameters, int count, const optimizer_ranks *ranks,
                            const tensor *state);

#endif
