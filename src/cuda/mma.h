/*
 * cuda/mma: products of small matrices on the tensor cores, for kernels: D[16][8] += A[16][16] B[8][16]^T. A
 * and B are in bf16 or fp16, and sums are in fp32. A warp holds the matrices in registers, spread over its
 * lanes (PTX ISA, "Matrix Fragments for mma.m16n8k16"). All lanes of a warp must call these functions
 * together. FP8 codes are multiplied in fp16, which has the values of both FP8 formats.
 *
 * Compute capability 8.0 or later. The emulator (tests/cuda/emulate_mma.h) adds the 16 terms in order, so its
 * bits are the host's. A GPU adds them in its own order and precision (docs/reference/numerics.md).
 */
#ifndef CUDA_MMA_H
#define CUDA_MMA_H

#include "cuda/launch.h"
#include "ottava/types.h"

/* The part of A in one lane: 0: row r, columns c and c + 1; 1: row r + 8; 2 and 3: the same rows, columns
   c + 8 and c + 9. r = lane / 4, c = lane % 4 * 2. */
struct mma_left {
    uint32_t at[4];
};
/* The part of B: 0: row r, columns c and c + 1; 1: columns c + 8 and c + 9. */
struct mma_right {
    uint32_t at[2];
};
/* The part of D: 0 and 1: row r, columns c and c + 1; 2 and 3: row r + 8. */
struct mma_sums {
    float at[4];
};

#ifdef __CUDACC__

template <ott_dtype D>
__device__ __forceinline__ void mma_add(mma_sums &d, const mma_left &a, const mma_right &b) {
    if constexpr (D == OTT_BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
            "%9}, {%0, %1, %2, %3};"
            : "+f"(d.at[0]), "+f"(d.at[1]), "+f"(d.at[2]), "+f"(d.at[3])
            : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
            "%9}, {%0, %1, %2, %3};"
            : "+f"(d.at[0]), "+f"(d.at[1]), "+f"(d.at[2]), "+f"(d.at[3])
            : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]));
}

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory. `row`: address of row lane % 8 of matrix
   lane / 8, a multiple of 16 bytes. out[i]: row lane / 4 of matrix i, columns lane % 4 * 2 and the next. */
__device__ __forceinline__ void mma_load(uint32_t (&out)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}
/* The same with each matrix transposed: out[i] has column lane / 4, rows lane % 4 * 2 and the next. */
__device__ __forceinline__ void mma_load_transposed(uint32_t (&out)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* Begins to copy 16 bytes to shared memory, or 16 zeros if not `valid`. Both addresses are multiples of 16.
   `from` is only read if `valid`, but must be an address in global memory. */
__device__ __forceinline__ void copy_async(void *to, const void *from, bool valid) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
        : "memory");
}
/* Ends a group of this thread's copies. */
__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for this thread's copies, except for the last `Left` groups. Other threads see the copies after a
   barrier. */
template <int Left> __device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

#else
#include <emulate_mma.h> /* emulate_mma.h is in tests/cuda */
#endif

#endif
