/*
 * comm/threads: N ranks as N threads of one process: every collective through host memory, in rank order.
 * What code for many ranks is tested on; it copies more than it must and is not for speed.
 *
 * A world is one group; a rank that is in several groups (a mesh) is in several worlds. Each rank calls from
 * one thread and has an execution context, device and memory account of its own.
 */
#ifndef COMM_THREADS_H
#define COMM_THREADS_H

#include "base/mem.h"
#include "tensor/group.h"

typedef struct threads_group threads_group;

/* `timeout`: seconds that a rank waits for the others before all fail. The account is used by all ranks. */
ott_status threads_group_open(mem *account, int ranks, double timeout, threads_group **out);
/* Rank r's group; owned by the world. group_close says that the rank has left. */
group *threads_group_of_rank(threads_group *s, int rank);
/* When no thread uses its groups any more. NULL is allowed. */
void threads_group_close(threads_group *s);

#endif
