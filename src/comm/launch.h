/*
 * comm/launch: how a launcher started this process, as its environment says: torchrun, mpirun of Open MPI,
 * MPICH, MVAPICH2 or PRRTE, and Slurm's srun.
 */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include "base/status.h"

/* OTT_ERR_UNSUPPORTED when a launcher started this process as one of several: each would train on its own.
   The message names the variable and its value. OTT_ERR_CONFIG for a value that is no number. */
ott_status launch_check_alone(void);

#endif
