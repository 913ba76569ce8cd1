/* cuda/launch: macros that let nvcc compile a kernel's source for a GPU, and g++ compile it for the emulator
   (tests/cuda/emulate.h), which needs no GPU. Such a source has PTX only inside `#ifdef __CUDACC__`. */
#ifndef CUDA_LAUNCH_H
#define CUDA_LAUNCH_H

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __CUDACC__
/* Declares a variable in shared memory, aligned to 128 bytes: SHARED(tile, uint8_t[64][80]). */
#define SHARED(name, ...) __shared__ __align__(128) shared_type<__VA_ARGS__> name
template <class T> using shared_type = T;
/* A kernel parameter that is read in place, without a local copy, even with a dynamic index:
   GRID_CONSTANT(job_list<Job>) list. */
#define GRID_CONSTANT(...) const __grid_constant__ __VA_ARGS__
/* kernel<<<grid, block, 0, stream>>>(...); cudaGetLastError() returns the launch's status. */
#define LAUNCH(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#else
#include <emulate.h> /* emulate.h is in tests/cuda */
#endif

#endif
