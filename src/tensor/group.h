/*
 * tensor/group: collectives over a group of ranks, as a table; comm fills it. A layer or the loop receives
 * the groups it needs and calls them where its mathematics does; `self`, the group of one, does nothing.
 */
#ifndef TENSOR_GROUP_H
#define TENSOR_GROUP_H

#include "tensor/ops.h"

typedef enum reduce_kind { REDUCE_SUM, REDUCE_MAX } reduce_kind;

typedef struct group group;

typedef struct group_table {
    ott_status (*all_reduce)(group *g, exec *cx, const tensor *t, reduce_kind kind); /* in place */
    ott_status (*broadcast)(group *g, exec *cx, const tensor *t, int root);
    ott_status (*barrier)(group *g);
    void (*close)(group *g);
} group_table;

struct group {
    const group_table *table;
    int rank, size;
};

/* All are nothing while the memory plan is recorded, and for a group of one. */
ott_status group_all_reduce(group *g, exec *cx, const tensor *t, reduce_kind kind);
ott_status group_broadcast(group *g, exec *cx, const tensor *t, int root);
ott_status group_barrier(group *g);
void group_close(group *g);

#endif
