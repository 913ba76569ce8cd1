/* tests/cuda/nccl_processes: the NCCL stand-in (nccl.c) with processes as ranks. */
#ifndef NCCL_PROCESSES_H
#define NCCL_PROCESSES_H

#include "cuda/nccl/nccl.h"

extern const nccl_calls nccl_processes;

/* Environment variable: the version of NCCL that the stand-in reports. */
#define NCCL_STAND_IN_VERSION "NCCL_STAND_IN_VERSION"

#endif
