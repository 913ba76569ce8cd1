/*
 * tensor/group: collectives over a group of ranks, as a table that comm fills. A layer or the loop receives
 * the groups it needs and calls them where its mathematics does; a group of one (comm/self) only moves what
 * must be moved.
 *
 * Tensors are dense and on the device of the context. Every rank of a group makes the same calls in the same
 * order; what differs in kind, format or shape is an error on every rank. Bits do not depend on the
 * transport: a sum is s = x_0, then s = s + x_r for each rank r ascending, in fp32, rounded once to the
 * tensor's format; a maximum is NaN when one value is.
 */
#ifndef TENSOR_GROUP_H
#define TENSOR_GROUP_H

#include "tensor/ops.h"

typedef enum reduce_kind { REDUCE_SUM, REDUCE_MAX } reduce_kind;

/* X(name, text) */
#define COLLECTIVE_MAP(X)                                                                                    \
    X(ALL_REDUCE, "all-reduce")                                                                              \
    X(ALL_GATHER, "all-gather")                                                                              \
    X(REDUCE_SCATTER, "reduce-scatter")                                                                      \
    X(ALL_TO_ALL, "all-to-all")                                                                              \
    X(BROADCAST, "broadcast")                                                                                \
    X(SEND, "send")                                                                                          \
    X(RECEIVE, "receive")                                                                                    \
    X(BARRIER, "barrier")

typedef enum collective_kind {
#define X(name, text) COLLECTIVE_##name,
    COLLECTIVE_MAP(X)
#undef X
} collective_kind;

const char *group_collective_name(collective_kind kind); /* "all-reduce" */

/* One rank's call of a collective. A tensor that is cut by rows has one part for each rank, in rank order;
   `rows` says how many rows each part has, NULL: all the same. The arrays are read until the collective is
   done.

     kind              input                 output                 also
     ALL_REDUCE        tensor                the same tensor        reduce
     ALL_GATHER        this rank's part      all parts              output_rows[size]
     REDUCE_SCATTER    all parts             this rank's part       reduce, input_rows[size]
     ALL_TO_ALL        a part for each rank  a part of each rank    input_rows[size], output_rows[size]
     BROADCAST         tensor                the same tensor        peer: the root
     SEND              tensor                none                   peer: to whom
     RECEIVE           none                  tensor                 peer: from whom
     BARRIER           none                  none

   ALL_GATHER's input may be its own part of the output, REDUCE_SCATTER's output its own part of the input. */
typedef struct collective {
    collective_kind kind;
    reduce_kind reduce;
    tensor input, output;
    const int64_t *input_rows, *output_rows;
    int peer;
} collective;

typedef struct group group;

/* A collective under way, from group_start to group_wait; the caller's, not to be moved between. */
typedef struct group_request {
    group *group; /* NULL: nothing is under way */
    collective call;
    void *state;  /* the transport's */
    double began; /* clock_seconds(), where the context is timed */
} group_request;

typedef struct group_table {
    ott_status (*start)(group *g, exec *cx, group_request *request); /* does not wait for other ranks */
    ott_status (*wait)(group *g, exec *cx,
                       group_request *request); /* the output is written when it returns */
    void (*close)(group *g);
    /* A plan is recorded that has this call: what it takes of the device's memory beside its tensors is taken now, where
       cx has the group's device, and kept for later calls. Its bytes. NULL: nothing. */
    ott_status (*reserve)(group *g, exec *cx, const collective *call, int64_t *bytes);
    void (*abandon)(group *g); /* NULL: nothing */
} group_table;

struct group {
    const group_table *table;
    int rank, size;
};

/* Starts `call`. Input, output and rows stay as they are until group_wait, which is called exactly once for
   each request that was started. Nothing while a memory plan is recorded. OTT_ERR_RANK when another rank has
   failed, hangs or does not agree. */
ott_status group_start(group *g, exec *cx, const collective *call, group_request *request);
ott_status group_wait(exec *cx, group_request *request); /* of a request that is not under way: nothing */

/* Started and waited for at once. */
ott_status group_run(group *g, exec *cx, const collective *call);
ott_status group_all_reduce(group *g, exec *cx, const tensor *t, reduce_kind kind); /* in place */
ott_status group_broadcast(group *g, exec *cx, const tensor *t, int root);          /* in place */
ott_status group_barrier(group *g, exec *cx);
/* This rank cannot go on: what it waits for of this group or of others of its device fails with OTT_ERR_RANK, and that it leaves
   waits for no other rank. */
void group_abandon(group *g);
void group_close(group *g); /* NULL is allowed; a rank that leaves while others wait for it fails them */

/* Rows of rank r's part, and the first of them, of a tensor of `total` rows cut for `size` ranks; rows as in
 * collective. */
int64_t group_part_rows(const int64_t *rows, int64_t total, int size, int r);
int64_t group_part_first(const int64_t *rows, int64_t total, int size, int r);

#endif
