/*
 * tensor/group/group: process groups: collectives on tensors, as a table of functions that src/comm
 * implements. Layers and the training loop get the groups that they need. A group of one rank (comm/self)
 * only copies.
 *
 * Tensors are dense and on the device of the context. All ranks of a group must make the same calls in the
 * same order; different kinds, formats or shapes are an error on every rank. Bits do not depend on the
 * transport: a sum is s = x_0, then s = s + x_r for each rank r ascending, in fp32, rounded once to the
 * tensor's format. A maximum is NaN if one of the values is NaN.
 */
#ifndef TENSOR_GROUP_GROUP_H
#define TENSOR_GROUP_GROUP_H

#include "tensor/ops.h"

typedef enum reduce_kind { REDUCE_SUM, REDUCE_MAX } reduce_kind;

/* X(name, text) for each kind of collective */
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

const char *group_collective_name(collective_kind kind); /* name, such as "all-reduce" */

/* One rank's call of a collective. A tensor that is split by rows has a part for each rank, in rank order.
   input_rows[r] and output_rows[r] are the numbers of rows of rank r's part; NULL: all parts are equal. These
   arrays must stay valid until the collective is done.

     kind              input                 output                 also
     ALL_REDUCE        tensor                the same tensor        reduce
     ALL_GATHER        this rank's part      all parts              output_rows[size]
     REDUCE_SCATTER    all parts             this rank's part       reduce, input_rows[size]
     ALL_TO_ALL        a part for each rank  a part from each rank  input_rows[size], output_rows[size]
     BROADCAST         tensor                the same tensor        peer: the root
     SEND              tensor                none                   peer: the receiver
     RECEIVE           none                  tensor                 peer: the sender
     BARRIER           none                  none

   ALL_GATHER's input may be this rank's part of the output, REDUCE_SCATTER's output this rank's part of the
   input. */
typedef struct collective {
    collective_kind kind;
    reduce_kind reduce;
    tensor input, output;
    const int64_t *input_rows, *output_rows;
    int peer;
} collective;

typedef struct group group;

/* A running collective, from group_start to group_wait. The caller owns it and must not move it. */
typedef struct group_request {
    group *group; /* NULL: no collective is running */
    collective call;
    void *state;  /* state of the transport, which owns it */
    double began; /* clock_seconds() at the start, if cx->times is set */
} group_request;

typedef struct group_table {
    ott_status (*start)(group *g, exec *cx, group_request *request); /* does not wait for other ranks */
    /* On a CPU, waits until the output is written. On a GPU, queues such a wait on the device's stream. */
    ott_status (*wait)(group *g, exec *cx, group_request *request);
    void (*close)(group *g);
    /* Called while a plan with this call is recorded. Sets *bytes to the device memory that the call needs in
       addition to its tensors. Allocates this memory if cx has the group's device, and keeps it for later
       calls. NULL if calls need no additional memory. */
    ott_status (*reserve)(group *g, exec *cx, const collective *call, int64_t *bytes);
    void (*abandon)(group *g); /* NULL: group_abandon does nothing */
} group_table;

struct group {
    const group_table *table;
    int rank, size;
};

/* Starts `call`. Input, output and rows must not change until group_wait, which must be called once for each
   started request. While a memory plan is recorded, nothing is sent. OTT_ERR_RANK if another rank failed,
   does not answer, or makes a different call. */
ott_status group_start(group *g, exec *cx, const collective *call, group_request *request);
ott_status group_wait(exec *cx, group_request *request); /* does nothing if request->group is NULL */

/* group_start and group_wait in one call. */
ott_status group_run(group *g, exec *cx, const collective *call);
ott_status group_all_reduce(group *g, exec *cx, const tensor *t, reduce_kind kind); /* replaces t */
ott_status group_broadcast(group *g, exec *cx, const tensor *t, int root);          /* replaces t */
ott_status group_barrier(group *g, exec *cx);
/* Call group_abandon if this rank fails. This rank's running collectives of this group, and of other groups
   of the device, end with OTT_ERR_RANK, and closing the groups does not wait for other ranks. */
void group_abandon(group *g);
void group_close(group *g); /* g may be NULL. Ranks that still wait for this rank fail. */

/* Return the number of rows, or the first row, of rank r's part of a tensor with `total` rows. rows: the
   collective's input_rows or output_rows. */
int64_t group_part_rows(const int64_t *rows, int64_t total, int size, int r);
int64_t group_part_first(const int64_t *rows, int64_t total, int size, int r);

#endif
