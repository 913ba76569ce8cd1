/*
 * cuda/launch: what lets one kernel source be compiled by nvcc for a GPU and by g++ for the CPU shim
 * (tests/cuda/emulate.h), where it is checked without a GPU. Such a source has no inline PTX outside
 * `#ifdef __CUDACC__`.
 */
#ifndef CUDA_LAUNCH_H
#define CUDA_LAUNCH_H

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __CUDACC__
/* A variable of the block in shared memory, aligned to 128 bytes: SHARED(tile, uint8_t[64][80]). */
#define SHARED(name, ...) __shared__ __align__(128) shared_type<__VA_ARGS__>::type name
template <class T> struct shared_type { using type = T; };
/* A kernel's parameter of a type, read where it lies, whichever part of it is: GRID_CONSTANT(job_list<Job>) list. */
#define GRID_CONSTANT(...) const __grid_constant__ __VA_ARGS__
/* kernel<<<grid, block, 0, stream>>>(...); the status of the launch is cudaGetLastError()'s. */
#define LAUNCH(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#else
#include <emulate.h> /* of the tests: where they are not, there is nvcc */
#endif

#endif
