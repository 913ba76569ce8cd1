/*
 * comm/mpi: ranks as processes, joined by MPI. Every collective is made of messages between pairs, cut into pieces
 * of a fixed staging memory, and moved by one thread of its own: it alone calls MPI, so an MPI library needs no
 * support for threads, and a collective goes on while its rank computes. Sums and maxima are comm/reduce's.
 *
 * Before its data a collective exchanges what each rank calls, so that a disagreement is an error on every rank. A rank
 * that does not come within the group's time, or has left, fails the group on all its ranks, and is named.
 */
#ifndef COMM_MPI_H
#define COMM_MPI_H

#include "base/mem.h"
#include "tensor/group.h"

/* Joins the processes that the launcher started, for the rest of this one's life: MPI ends with the process. Which of
   how many it is. A second call only says that again. */
ott_status mpi_join(int *rank, int *size);

/* A group of these ranks of all, ascending, this one among them: `name` is for messages, `timeout` in seconds how long a
   rank waits for another one, 0: for ever. Every process opens the same number of groups in the same order, though not of the
   same ranks. Closed with group_close, which tells the others. What it takes of the account: mpi_group_bytes at once, and
   later what messages between two ranks need (COLLECTIVE_SEND, COLLECTIVE_RECEIVE), which are copied whole. */
ott_status mpi_group_open(mem *account, const int *ranks, int count, const char *name, double timeout,
                          group **out);
int64_t mpi_group_bytes(int count);

/* This process cannot go on, for this reason: when it ends, so do all others, with this status' exit code. True: it is the one to say so; false:
   another one has, and this one has waited to be ended. Nothing unless mpi_join was called. */
bool mpi_give_up(ott_status code, const char *reason);

#endif
