/*
 * comm/threads: a process group of N ranks, which are N threads of one process, for tests of code for many
 * ranks. Collectives copy through host memory, in rank order; they are not fast.
 *
 * A rank that is in several groups (a mesh) uses several threads_groups. Each rank calls from one thread,
 * with its own execution context, device and memory account.
 */
#ifndef COMM_THREADS_H
#define COMM_THREADS_H

#include "base/mem.h"
#include "tensor/group/group.h"

typedef struct threads_group threads_group;

/* Opens a group of `ranks` ranks, which share the account. timeout: seconds to wait for another rank before
   the group fails. */
ott_status threads_group_open(mem *account, int ranks, double timeout, threads_group **out);
/* Returns rank r's group, owned by the threads_group. group_close on it only records that rank r has left. */
group *threads_group_of_rank(threads_group *s, int rank);
/* Closes the group. No thread may use it any more. NULL is allowed. */
void threads_group_close(threads_group *s);

#endif
