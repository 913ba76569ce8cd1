/*
 * comm/launch: how a launcher started this process, as its environment says: mpirun of Open MPI and Slurm's srun, which join
 * processes (comm/mpi.h); and torchrun, MPICH, MVAPICH2 and a plain srun, which here would start each for itself.
 */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include "base/status.h"
#include "base/str.h"
#include <stdbool.h>

typedef struct launch {
    bool uses_mpi;  /* it started processes that MPI joins, maybe one only */
    int size;       /* how many, 0: it does not say; then `variable` does */
    int local_size; /* of them on this machine, 0: it does not say */
    int local_rank; /* which of those this is */
    bool is_bound;  /* it chose the cores that each may run on */
    const char *variable;
} launch;

/* OTT_ERR_UNSUPPORTED when a launcher that joins nothing started this process as one of several: each would train on its
   own. The message names the variable, its value and the command that works. OTT_ERR_CONFIG for a value that is no
   number. */
ott_status launch_read(launch *out);
/* This process's part of the machine's threads, when it may run on `cores` of `online` ones; 0: all that it may run on. */
int launch_threads(const launch *l, int cores, int online);
/* MPI has joined `size` processes: is that what the launcher says? OTT_ERR_UNSUPPORTED as above. */
ott_status launch_check_joined(const launch *l, int size);

/* Appends the command that starts as many processes of this program as there are, with the launcher's words as they were
   given: "mpirun -np 4 --bind-to none ottava". Where they are not known, it makes them from the number of processes. */
void launch_append_command(str *out);
/* Appends a word, quoted as a shell reads it. */
void launch_append_word(str *out, const char *word);

#endif
