/*
 * parallel/store: where parameters are while layers use them. Ranks that share a model's parameters hold a
 * shard of each (nn/parameter.h). Parameters that are used together are a unit: the embedding, a block, the
 * last norm and the head. Around its forward or backward a unit is gathered and released, and its gradients
 * are reduced to the shards; the gather of the next unit and the reduction of the one before run meanwhile.
 * Where one rank holds all, nothing is moved.
 *
 * What travels is what the layers read: a linear's weight in the activation format, or as FP8 codes: the
 * amaxes of the shards are reduced, so each rank has the scales of the whole, and casts its rows with them
 * from the master, once for each use that a pass makes of the weight. Every recipe's codes and scales have
 * the bits that one rank gives them: nothing is rounded twice, and scale blocks may be cut anywhere. Of a
 * frozen weight that is kept in FP8 its own codes travel; each rank has all its scales. The embedding's table
 * travels in the activation format, which its rows are rounded to anyway; norms and biases in fp32. A unit's
 * shards travel as one all-gather.
 *
 * A step's gradient is the sum over its micro-batches, or ranks, of each one's own sum, in their order: N
 * ranks with a micro-batch each give the bits of one rank with N. So a gradient that backward adds to more
 * than once in a micro-batch is summed apart from what is there already, and added to it once. What is apart,
 * or travels, is fp32; one that is kept in bf16 is rounded each time a micro-batch's, of all ranks, is added:
 * there N ranks round once, one rank with N micro-batches N times.
 */
#ifndef PARALLEL_STORE_H
#define PARALLEL_STORE_H

#include "base/arena.h"
#include "nn/linear.h"

/* What of a gathered unit waits for its backward (model/run.h), as torchtitan's
   fsdp_reshard_after_forward. */
typedef enum store_reshard {
    STORE_RESHARD_DEFAULT, /* the last block, which backward needs at once */
    STORE_RESHARD_ALWAYS,  /* none */
    STORE_RESHARD_NEVER    /* all blocks */
} store_reshard;

/* Zeroed: the defaults. */
typedef struct store_options {
    bool gather_masters;    /* of weights with one scale, instead of codes: every rank casts the whole */
    bool precompute_scales; /* of all units in one all-reduce, when the first is gathered after an update */
    /* a unit is gathered when it is needed, its gradients reduced before the next's begin */
    bool no_prefetch;
    bool reduce_bf16; /* gradients travel in bf16; summed in fp32, rounded once */
    /* a step's micro-batches are summed where they run, in memory of the whole gradient, and
       travel once; else each is reduced to the shards, in the order that one rank has */
    bool reduce_once;
    /* for backward, whatever `reshard` keeps; where one rank holds all: cast again (nn/linear.h) */
    bool regather_for_backward;
    store_reshard reshard;
} store_options;

/* For which uses of the weights a unit is gathered, a bit each: forward reads them rowwise, backward
   columnwise. */
enum { STORE_ROWWISE = 1, STORE_COLUMNWISE = 2 };

/* Bytes that this rank's collectives moved: of gathered wholes, of gradients before they are reduced. */
typedef struct store_traffic {
    int64_t fp8, bf16, f16, fp32; /* gathered in that format */
    int64_t amax, gradient;
} store_traffic;

typedef struct store_part store_part;

typedef struct store_unit {
    parameter **parameters; /* [parameter_count], whose gradients are reduced together; the model's */
    int parameter_count;
    linear **linears; /* [linear_count] that read its parameters, or another unit's */
    int linear_count;
    bool is_table;     /* its parameter is read by the embedding */
    store_part *parts; /* what travels */
    int part_count;
    int64_t scale_first, scale_count; /* its scales among those of all */
    int64_t full_first;               /* its gradients among the whole ones */
    /* gathered, or on the way */
    int uses; /* 0: neither */
    bool gathered;
    int64_t *rows; /* [ranks] bytes from each */
    tensor received;
    plan_buffer received_buffer;
    group_request request;
} store_unit;

typedef struct parameter_store {
    group *ranks; /* which share the parameters; borrowed; NULL: one rank holds all */
    /* of parameters that other ranks share: its units are those of the same numbers, its options these; every
       call but store_divide and store_open goes to both; borrowed; NULL: none */
    struct parameter_store *expert_store;
    store_options options;
    bool micro_batches; /* a step has several */
    store_unit *units;
    int unit_count;
    int64_t *shard_elements; /* [ranks] elements that each has of the parameters divided so far */
    /* [ranks] a heap of the ranks: first the one that holds the least, of several the lowest */
    int *rank_heap;
    void *scales; /* device memory: amax of all, scale of all, scale_inv of all; owned */
    int64_t scale_count;
    /* device memory: reduce_once: fp32 gradients of all that trains, of this rank; owned; else NULL */
    void *full_gradients;
    int64_t full_count;
    struct {
        const store_unit *unit; /* whose gradients are on the way; NULL: none's */
        int64_t *rows;          /* [ranks] elements for each */
        tensor sum;
        plan_buffer sent_buffer, sum_buffer;
        group_request request;
    } reduction;
    store_traffic traffic;
} parameter_store;

/* Says which part of p is here: p->shard, its tensors without memory and the value's in the format that it
   had; of parameter after parameter, in one order on all ranks. A shard begins at a multiple of REDUCE_BLOCK
   elements of the local part. How a matrix's rows, a vector's elements are cut comes from `memory`. */
ott_status store_divide(parameter_store *s, arena *memory, parameter *p);
/* Once s->units say their parameters and linears. */
ott_status store_open(parameter_store *s, arena *memory);
/* After the linears' specs have changed: what travels. table: the format in which the embedding's is read. */
ott_status store_set(parameter_store *s, device *d, ott_dtype table);
void store_close(parameter_store *s, device *d);

/* Around the forward or backward of a unit: its values, and its weights for `uses`, are whole in between. A
   unit that is gathered already stays. The buffers are the plan's. */
ott_status store_gather(exec *cx, parameter_store *s, int unit, int uses);
ott_status store_release(exec *cx, parameter_store *s, int unit);
/* Begins what store_gather of this unit with these uses will do next. */
ott_status store_prefetch(exec *cx, parameter_store *s, int unit, int uses);

/* Call these around a unit's backward. The first opens each gradient that is not open yet, at zero. The
   second sums them over the ranks and adds them to the shards' gradients; store_finish_gradients waits for
   that. */
ott_status store_open_gradients(exec *cx, const parameter_store *s, int unit);
ott_status store_reduce_gradients(exec *cx, parameter_store *s, int unit);
ott_status store_finish_gradients(exec *cx, parameter_store *s);

/* Before the first micro-batch of a step and after its last, for options.reduce_once: from zero, and reduced
   to the shards. */
ott_status store_zero_gradients(const parameter_store *s, device *d);
ott_status store_reduce_once(exec *cx, parameter_store *s);

/* After a pass that ended before its end: what is on the way is waited for, where the pass was stopped, and
   forgotten. */
void store_abandon(exec *cx, parameter_store *s, ott_status why);

/* ---- for the parts of the store ---- */

typedef enum store_content {
    STORE_VALUE,            /* p itself */
    STORE_COMPUTE,          /* the weight in the activation format */
    STORE_CODES,            /* FP8 codes of one use, or of both */
    STORE_CODES_COLUMNWISE, /* of the columnwise use, where its scales are its own */
    STORE_MASTER            /* cast when it is here */
} store_content;

/* What travels of one parameter, in one form. */
struct store_part {
    parameter *p;
    linear *l; /* whose weight p is; NULL: of none */
    store_content content;
    ott_dtype format;
    int uses;                              /* for which it is gathered */
    plan_buffer full, rowwise, columnwise; /* what is gathered; codes */
};

static inline int store_ranks(const parameter_store *s) {
    return s->ranks ? s->ranks->size : 1;
}
/* Elements of rank r's shard of p, and of those before it. */
int64_t store_count_at(const parameter *p, int rank);
int64_t store_first_at(const parameter *p, int rank);

/* The scales of the unit's weights belong to cx->step. */
ott_status store_refresh_scales(exec *cx, parameter_store *s, store_unit *u);
/* Casts this rank's rows of the weight to codes of one use, which lie in rows. */
ott_status store_cast(exec *cx, const linear *l, bool columnwise, void *codes);
/* To the hook, while this trains: a weight's rows and their codes; of two uses the rowwise ones. */
ott_status store_call_hook(exec *cx, const linear *l, const tensor *x, const qtensor *q);

#endif
