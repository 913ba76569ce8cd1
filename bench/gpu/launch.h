/*
 * bench/gpu/launch: what lets one kernel source be compiled by nvcc for a GPU and by g++ for the CPU shim
 * (tests/cuda/emulate.h), where it is checked without a GPU. Such a source has no inline PTX outside
 * `#ifdef __CUDACC__`.
 */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __CUDACC__
/* kernel<<<grid, block, 0, stream>>>(...); the status of the launch is cudaGetLastError()'s. */
#define LAUNCH(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#else
#include "emulate.h"
#endif

#endif
