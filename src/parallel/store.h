/*
 * parallel/store: sharded data parallelism, as FSDP (ZeRO-3). Each rank holds a shard of every parameter
 * (nn/parameter.h). Parameters that are used together form a unit: the embedding, a block, or the last norm
 * with the head. A unit is gathered before its forward or backward and released after it; its gradients are
 * reduce-scattered to the shards. The next unit's gather and the previous unit's reduction overlap with
 * computation. On one rank nothing is moved.
 *
 * Ranks send parameters in the format that the layers read. A linear weight is sent in the activation format
 * or as FP8 codes. DoRA weights, and expert weights of FP8 grouped GEMMs, are sent as masters. To make FP8
 * codes, the ranks first reduce the amaxes. Then each rank casts its rows of the master with the scales of
 * the full weight. The codes and scales of every recipe are the same as on one rank, bit for bit, even where
 * shards split a scale block. Frozen weights that are stored as FP8 codes are sent as codes; every rank has
 * all scales of these weights. The embedding table is sent in the activation format, to which its rows are
 * rounded anyway. Norms and biases are sent in fp32. Each unit is one all-gather.
 *
 * A step's gradient is the sum of the gradients of all micro-batches and ranks, added in a fixed order. N
 * ranks with one micro-batch each give the same bits as one rank with N micro-batches. Therefore a gradient
 * to which backward adds several times per micro-batch is first summed over the micro-batch. These sums are
 * fp32, and so are the gradients that ranks send (except with reduce_bf16). A gradient stored in bf16 is
 * rounded once per reduction, so one rank with N micro-batches rounds it N times.
 */
#ifndef PARALLEL_STORE_H
#define PARALLEL_STORE_H

#include "base/arena.h"
#include "nn/weight/sharded.h"

/* Which units a store releases after forward (torchtitan's fsdp_reshard_after_forward; model/run.h). */
typedef enum store_reshard {
    STORE_RESHARD_DEFAULT, /* release all but the last block, which backward uses first */
    STORE_RESHARD_ALWAYS,  /* release all units */
    STORE_RESHARD_NEVER    /* keep all blocks until their backward */
} store_reshard;

/* Options of a store. The defaults are all zero. */
typedef struct store_options {
    bool gather_masters;    /* no FP8 all-gather: send tensorwise weights as masters; every rank casts them */
    bool precompute_scales; /* compute all units' scales with one all-reduce after each update */
    bool no_prefetch;       /* gather units only when used; finish each reduction before the next starts */
    bool reduce_bf16;       /* send gradients in bf16; sums are fp32 and rounded once */
    /* true: sum a step's micro-batches in full fp32 gradients, reduce once; false: reduce each micro-batch */
    bool reduce_once;
    /* gather units again for backward, even if `reshard` keeps them; on one rank: cast weights again */
    bool regather_for_backward;
    store_reshard reshard;
} store_options;

/* Bytes of this rank's collectives: gathered full tensors, and gradients before their reduction. */
typedef struct store_traffic {
    int64_t fp8, bf16, f16, fp32; /* bytes of gathered tensors in each format */
    int64_t amax, gradient;
} store_traffic;

/* A unit of parameters that are gathered together. model/storage.c sets the members up to is_table. */
typedef struct store_unit {
    parameter **parameters; /* [parameter_count] parameters, reduced together; borrowed */
    int parameter_count;
    weight_source **weights; /* [weight_count] a tied head reads a parameter of another unit; borrowed */
    int weight_count;
    bool is_table;      /* the unit has the embedding table and learned positions */
    weight_part *parts; /* [part_count] tensors to gather */
    int part_count;
    int64_t scale_first, scale_count; /* the unit's range in the store's scales */
    int64_t full_first;               /* the unit's offset in full_gradients */
    /* State of the current gather: */
    int uses;      /* uses that the gather is for; 0: the unit is released */
    bool gathered; /* true: the gather is complete; false: in flight, or released */
    int64_t *rows; /* [ranks] number of bytes from each rank */
    tensor received;
    plan_buffer received_buffer;
    group_request request;
} store_unit;

typedef struct parameter_store {
    group *ranks; /* data-parallel ranks that share the parameters; borrowed; NULL: one rank */
    /* Second store, for expert parameters, which another group of ranks shards; borrowed, may be NULL. It has
       the same unit indices and options. Every call except store_divide and store_open also applies to it. */
    struct parameter_store *expert_store;
    store_options options;
    bool micro_batches; /* true: a step has several micro-batches; set it before store_set */
    /* [unit_count] zeroed units; borrowed. The caller sets units and unit_count before store_open. */
    store_unit *units;
    int unit_count;
    int64_t *shard_elements; /* [ranks] number of elements in each rank's shards of all divided parameters */
    int *rank_heap;          /* [ranks] min-heap of ranks by shard_elements, then by rank */
    void *scales; /* device memory: amaxes of all weights, then all scales, then all inverse scales; owned */
    void *full_gradients; /* reduce_once: fp32 gradients of all trained parameters, device memory; owned */
    int64_t full_count;
    /* The reduction in flight. */
    struct {
        const store_unit *unit; /* the unit that is reduced; NULL: none */
        int64_t *rows;          /* [ranks] number of elements for each rank */
        tensor sum;
        plan_buffer sent_buffer, sum_buffer;
        group_request request;
    } reduction;
    store_traffic traffic;
} parameter_store;

/* Assigns this rank's shard of p. It starts at a multiple of REDUCE_BLOCK elements of p->local. Sets in
   p->shard: `first`; `rows_per_rank`, allocated in `memory`, or NULL on one rank; the shape of `value`. The
   value keeps its dtype and gets no memory. The shard's other members become 0. Zero *s and set `ranks`
   before the first call. All ranks call it for all parameters in the same order. */
ott_status store_divide(parameter_store *s, arena *memory, parameter *p);
/* Call it when the units have their parameters and weights. */
ott_status store_open(parameter_store *s, arena *memory);
/* Lists the tensors that each unit gathers and allocates the scales and the full gradients. Call it after
   linear_set_spec and before weight_fuse. table: the format in which the embedding table is sent. */
ott_status store_set(parameter_store *s, device *d, ott_dtype table);
void store_close(parameter_store *s, device *d); /* frees the store's device memory */

/* Call store_gather before a unit's forward or backward, and store_release after it. In between, the unit has
   its full parameters and the copies of its weights that `uses` lists. If the unit is gathered already,
   store_gather only checks that the unit has these copies. Buffers come from the memory plan. */
ott_status store_gather(exec *cx, parameter_store *s, int unit, int uses);
ott_status store_release(exec *cx, parameter_store *s, int unit);
/* Starts the gather that a later store_gather with the same arguments waits for. */
ott_status store_prefetch(exec *cx, parameter_store *s, int unit, int uses);

/* Call store_open_gradients before a unit's backward. It sets p->grad to the step's gradient or, if ranks or
   micro-batches need a separate sum, to a zeroed fp32 buffer for this micro-batch. After the backward,
   store_reduce_gradients adds the buffer to the step's gradient, or starts to reduce it to the shards. After
   the last backward, store_finish_gradients waits for the last reduction. The caller zeroes the shards'
   gradients before a step. */
ott_status store_open_gradients(exec *cx, const parameter_store *s, int unit);
ott_status store_reduce_gradients(exec *cx, parameter_store *s, int unit);
ott_status store_finish_gradients(exec *cx, parameter_store *s);

/* For options.reduce_once. Before the first micro-batch of a step, store_zero_gradients zeros the full
   gradients. After the last one, store_reduce_once reduces them to the shards. */
ott_status store_zero_gradients(const parameter_store *s, device *d);
ott_status store_reduce_once(exec *cx, parameter_store *s);

/* Forgets gathers and reductions in flight, after a failure. If `why` is OTT_ERR_STOPPED, waits for them. */
void store_abandon(exec *cx, parameter_store *s, ott_status why);

/* ---- internal to parallel/store*.c ---- */

static inline int store_ranks(const parameter_store *s) {
    return s->ranks ? s->ranks->size : 1;
}
/* store_count_at: elements in `rank`'s shard of p. store_first_at: elements in all lower ranks' shards. */
int64_t store_count_at(const parameter *p, int rank);
int64_t store_first_at(const parameter *p, int rank);

#endif
