/*
 * nn/optimizer: update rules as rows of a table, and one update of all parameters by a row, on the device:
 * gradient norm, clipping, the rule's step for each parameter.
 */
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include "nn/parameter.h"

/* Factor of Muon's update of a matrix with so many rows and columns. */
typedef enum muon_scale {
    MUON_SCALE_ORIGINAL, /* sqrt(max(1, rows / columns)) */
    MUON_SCALE_RMS,      /* 0.2 sqrt(max(rows, columns)): elements as large as those of AdamW's update */
    MUON_SCALE_SPECTRAL, /* sqrt(rows / columns) */
    MUON_SCALE_ONE
} muon_scale;

/* Of all rules; each reads what it has. */
typedef struct optimizer_options {
    float beta1, beta2, epsilon, weight_decay;
    float max_norm; /* 0: no clipping */
    uint64_t seed;  /* of what is rounded stochastically */
    float momentum; /* SGD, Muon */
    bool nesterov;  /* SGD, Muon */
    /* Schedule-free: updates until its learning rate is the full one; an iterate's weight in the average is this power of its
       learning rate. */
    int64_t warmup;
    double weight_lr_power;
    /* Muon: steps of Newton and Schulz, format of their products, AdamW's learning rate as a multiple of Muon's. */
    int muon_steps;
    muon_scale muon_scale;
    ott_dtype muon_format;
    float adam_rate;
} optimizer_options;

/* The ranks that hold parameters between them. Borrowed; NULL: none. */
typedef struct optimizer_ranks {
    group *shard;   /* hold the other shards of the local parts */
    group *tensor;  /* hold the other local parts, or the same whole (nn/tensor_ranks.h) */
    group *experts; /* of shard: hold the other local parts of stacks (nn/expert_ranks.h) */
    group *stages;  /* of a pipeline: hold the other parameters */
    int trained;    /* parameters of all stages that are trained */
} optimizer_ranks;

enum { OPTIMIZER_LIST = 64 };

typedef struct optimizer_rows optimizer_rows; /* of one parameter's shard: nn/optimizer_rules.h */

typedef struct optimizer_rule {
    const char *name; /* optimizer.name */
    /* State tensors of a parameter, of its shape, 0 at first; what a checkpoint calls each: "exp_avg". */
    int slots;
    const char *slot[PARAMETER_SLOTS];
    int applied_slots; /* of these the parameters have that `takes` names; 0: all */
    /* Does its step make the form of p's shard, where one is asked for (parameter_shard.quantized)? NULL: of none. */
    bool (*can_quantize)(const parameter *p);
    /* Is p of the rule, or of AdamW, at adam_rate times the learning rate and in the same slots? NULL: all are. */
    bool (*applies_to)(const parameter *p);
    /* The rule's scalars for update number `update` (from 1), into the host's part of the step state. */
    void (*schedule)(const optimizer_options *o, int64_t update, float *host_state);
    /* Updates values and slots from gradients, nothing when state[STEP_SKIP] != 0; workspace is the plan's. A rule has one of
       the two. Element by element, of rows[count], at most OPTIMIZER_LIST: */
    ott_status (*update)(exec *cx, const optimizer_options *o, const optimizer_rows *rows, int count,
                         const tensor *state);
    /* Matrix by matrix, of trained[count], at most OPTIMIZER_LIST: */
    ott_status (*step)(exec *cx, const optimizer_options *o, const parameter *const *trained, int count,
                       const optimizer_ranks *ranks, const tensor *state);
    /* Makes the shard's value the average of iterates, which is evaluated and saved, or again what trains; NULL: they are one. */
    ott_status (*use_average)(exec *cx, const optimizer_options *o, const parameter *p, bool average);
} optimizer_rule;

/* The row of this name; NULL when there is none. */
const optimizer_rule *optimizer_find(const char *name);
/* How many slots p has. */
int optimizer_slots(const optimizer_rule *rule, const parameter *p);
/* The host's part of the step state for update number `update` (from 1). */
void optimizer_schedule(const optimizer_rule *rule, const optimizer_options *o, double learning_rate,
                        int64_t update, float *host_state);
/* The rule's step of trained[count], at most OPTIMIZER_LIST; only a rule that goes matrix by matrix reads ranks. */
ott_status optimizer_step(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                          const parameter *const *trained, int count, const optimizer_ranks *ranks,
                          const tensor *state);
/* One update from the accumulated gradients of parameters[count]; ranks may be NULL: all are here.
   state: fp32[STEP_STATE_COUNT]. Recorded like any other part of a step: its workspace is the plan's. */
ott_status optimizer_update(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                            const parameter *parameters, int count, const optimizer_ranks *ranks,
                            const tensor *state);

#endif
