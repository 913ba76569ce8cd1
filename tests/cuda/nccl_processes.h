/*
 * tests/cuda/nccl_processes: the second filling of the stand-in for NCCL (nccl.c): ranks as processes.
 */
#ifndef NCCL_PROCESSES_H
#define NCCL_PROCESSES_H

#include "cuda/nccl.h"

extern const nccl_calls nccl_processes;

/* An environment variable: the version that it says it is of. */
#define NCCL_STAND_IN_VERSION "NCCL_STAND_IN_VERSION"

#endif
