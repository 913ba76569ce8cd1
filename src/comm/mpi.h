/*
 * comm/mpi: ranks as processes, joined by MPI. A collective consists of messages between pairs of ranks, in
 * pieces that fit a fixed staging buffer. One progress thread makes all MPI calls. So the MPI library needs
 * no thread support, and collectives overlap with computation. comm/reduce computes sums and maxima.
 *
 * Before its data, a collective exchanges headers, so mismatched calls are an error on every rank. If a rank
 * has left or does not come within the timeout, the group fails on all ranks. The error names that rank.
 */
#ifndef COMM_MPI_H
#define COMM_MPI_H

#include "base/mem.h"
#include "tensor/group/group.h"

/* Joins the processes that the launcher started. Returns this process's rank and the number of processes. MPI
   ends with the process. Later calls return the same values. */
ott_status mpi_join(int *rank, int *size);

/* Sets *version to the MPI library's name and version, without starting MPI. OTT_ERR_UNSUPPORTED if the MPI
   plugin cannot be opened. */
ott_status mpi_version(const char **version);

/* Opens a group of `ranks` (numbers as from mpi_join, ascending, including this process). `name` is for
   messages and is borrowed. `timeout`: seconds to wait for another rank; 0: no limit. Every process must open
   the same number of groups in the same order. Allocates mpi_group_bytes(count) now, and buffers for
   COLLECTIVE_SEND and COLLECTIVE_RECEIVE when they are used. Close with group_close, which is collective. */
ott_status mpi_group_open(mem *account, const int *ranks, int count, const char *name, double timeout,
                          group **out);
int64_t mpi_group_bytes(int count);

/* Reports that this process cannot continue. When it ends, all other processes end too, with the exit code of
   the status `code`. Returns true if this process must print the reason. Returns false, after a wait, if
   another process reported first. Does nothing before mpi_join. */
bool mpi_give_up(ott_status code, const char *reason);

#endif
