/* comm/launch: finds out from the environment how a launcher started this process. Open MPI's mpirun and
   Slurm's srun --mpi=pmix join their processes by MPI (comm/mpi.h). torchrun, MPICH, MVAPICH2 and a plain
   srun do not, so each process would train alone. */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include "base/status.h"
#include "base/text/str.h"
#include <stdbool.h>

typedef struct launch {
    bool uses_mpi;  /* true if the launcher joins its processes by MPI, even if it started only one */
    int size;       /* number of processes, from the environment variable `variable`; 0: unknown */
    int local_size; /* number of processes on this machine; 0: unknown */
    int local_rank; /* rank of this process on its machine */
    bool is_bound;  /* true if the launcher bound each process to cores */
    const char *variable;
} launch;

/* Reads the launcher's environment variables. OTT_ERR_UNSUPPORTED if a launcher without MPI started several
   processes; the message has the variable and a command that works. OTT_ERR_CONFIG for a value that is not a
   number. */
ott_status launch_read(launch *out);
/* Number of threads for this process; 0: one for each of its `cores`. online: cores of the machine. */
int launch_threads(const launch *l, int cores, int online);
/* OTT_ERR_UNSUPPORTED if MPI joined another number of processes than the launcher started. */
ott_status launch_check_joined(const launch *l, int size);

/* Appends the command that started this program's processes, with the launcher's own arguments: "mpirun -np 4
   --bind-to none ottava". If these arguments are unknown, makes a command with the number of processes. */
void launch_append_command(str *out);
/* Appends a word, quoted for a shell. */
void launch_append_word(str *out, const char *word);

#endif
