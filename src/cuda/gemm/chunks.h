/*
 * cuda/gemm/chunks: moves tiles of a product's operands from global to shared memory, for kernels that use the
 * tensor cores. A tile has TILE rows (MN) and DEPTH terms of the contraction (K) in a 16-bit format, stored as
 * the operand is: a line is a row, or if transposed the TILE elements of one term. FP8 codes become fp16, which
 * has all their values.
 *
 * Each thread moves the same chunks of every tile. A chunk has 16 bytes of a line in global memory. A chunk
 * that is not aligned, or that the end of the operand cuts, is loaded by elements.
 */
#ifndef CUDA_GEMM_CHUNKS_H
#define CUDA_GEMM_CHUNKS_H

#include "cuda/gemm/sides.h"
#include "cuda/mma.h"

enum { TILE = 128, DEPTH = 32, TILE_THREADS = 256, SLOT = 8 /* elements of a slot */ };

/* Slots of 16 bytes. The eight slots that one matrix of ldmatrix reads are in different banks. */
struct operand_tile {
    uint4 slot[TILE * DEPTH / SLOT];
};

/* Returns the index of the slot that begins with element (mn, k) of a tile. */
template <bool Transposed> __device__ __forceinline__ int slot_of(int mn, int k) {
    int line = Transposed ? k : mn, slot = (Transposed ? mn : k) / SLOT;
    return Transposed ? line * (TILE / SLOT) + (slot ^ (line & 7))
                      : line * (DEPTH / SLOT) + (slot ^ (line >> 1 & 3));
}

/* Load the part of 16 rows (MN) and 16 terms (K), from (mn, k) on, as four matrices of 8 x 8. left: the matrices
   follow each other along MN, then along K, as in mma_left. right: along K, then along MN, as in two
   mma_right. */
template <bool Transposed>
__device__ __forceinline__ void load_part(uint32_t (&out)[4], const operand_tile &t, int mn, int k) {
    const uint4 *row = &t.slot[slot_of<Transposed>(mn, k)];
    if constexpr (Transposed)
        mma_load_transposed(out, row);
    else
        mma_load(out, row);
}
template <bool Transposed>
__device__ __forceinline__ void load_left(uint32_t (&out)[4], const operand_tile &t, int mn, int k) {
    int lane = threadIdx.x % 32, first = lane / 8 % 2 * 8, second = lane / 16 * 8, line = lane % 8;
    load_part<Transposed>(out, t, mn + first + (Transposed ? 0 : line), k + second + (Transposed ? line : 0));
}
template <bool Transposed>
__device__ __forceinline__ void load_right(uint32_t (&out)[4], const operand_tile &t, int mn, int k) {
    int lane = threadIdx.x % 32, first = lane / 8 % 2 * 8, second = lane / 16 * 8, line = lane % 8;
    load_part<Transposed>(out, t, mn + second + (Transposed ? 0 : line), k + first + (Transposed ? line : 0));
}

/* The chunks of one operand that a thread moves. Size: bytes of an element. Chunk i begins i * lines lines after
   chunk 0. */
template <int Size, bool Transposed> struct chunks {
    static constexpr int each = 16 / Size, of_line = (Transposed ? TILE : DEPTH) / each;
    static constexpr int lines = TILE_THREADS / of_line, count = TILE * DEPTH / each / TILE_THREADS;
    const char *from; /* chunk 0 of the next tile */
    int64_t line_bytes;
    int slot;         /* of chunk 0 */
    int mn, k;        /* numbers of rows and of terms that the operand has from chunk 0 of the next tile on */
    uint32_t padding; /* value of elements beyond the operand */
    bool aligned;     /* every chunk begins at a multiple of 16 bytes */
};

/* mn: first row of the tile; rows, depth: numbers of the operand's rows and terms. */
template <int Size, bool Transposed>
__device__ __forceinline__ chunks<Size, Transposed> chunks_of(const gemm_side &s, int64_t mn, int64_t rows,
                                                              int64_t depth, uint32_t padding) {
    chunks<Size, Transposed> c;
    int line = threadIdx.x / c.of_line, in_line = threadIdx.x % c.of_line * c.each;
    int first_mn = Transposed ? in_line : line, first_k = Transposed ? line : in_line;
    const char *data = (const char *)s.data + mn * s.mn_stride * Size;
    c.line_bytes = (Transposed ? s.k_stride : s.mn_stride) * Size;
    c.from = data + line * c.line_bytes + in_line * Size;
    c.slot = slot_of<Transposed>(first_mn, first_k);
    c.mn = (rows - mn < TILE ? (int)(rows - mn) : (int)TILE) - first_mn;
    c.k = (int)depth - first_k;
    c.padding = padding;
    c.aligned = ((uintptr_t)data | (uintptr_t)c.line_bytes) % 16 == 0;
    return c;
}

/* The elements of a line that the operand has, [first, end), from a chunk's first element on. */
struct chunk_part {
    int first, end;
};

/* skip: how many of the tile's first terms the operand does not have; negative: how many it has before. */
template <int Size, bool Transposed>
__device__ __forceinline__ chunk_part part_of(const chunks<Size, Transposed> &c, int i, int skip) {
    int line = threadIdx.x / c.of_line + i * c.lines, in_line = threadIdx.x % c.of_line * c.each;
    if (Transposed) return {0, i * c.lines < c.k && line >= skip ? c.mn : 0};
    return {skip - in_line, i * c.lines < c.mn ? c.k : 0};
}

template <int Size, bool Transposed>
__device__ __forceinline__ bool is_whole(const chunks<Size, Transposed> &c, const chunk_part &part) {
    return c.aligned && part.first <= 0 && part.end >= c.each;
}

template <int Size, bool Transposed>
__device__ __forceinline__ void move_to_next_tile(chunks<Size, Transposed> &c) {
    c.from += Transposed ? DEPTH * c.line_bytes : DEPTH * Size;
    c.k -= DEPTH;
}

/* Loads 16 bytes that are not aligned from the two aligned chunks that they overlap. */
__device__ __forceinline__ uint4 load_across(const char *from) {
    int shift = (int)((uintptr_t)from % 16);
    const uint4 *chunk = (const uint4 *)(from - shift);
    uint4 low = chunk[0], high = chunk[1];
    uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; i++) w[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = shift & 4 ? w[i + 1] : w[i];
    unsigned bytes = 0x3210 + 0x1111 * (shift & 3);
    return make_uint4(__byte_perm(w[0], w[1], bytes), __byte_perm(w[1], w[2], bytes),
                      __byte_perm(w[2], w[3], bytes), __byte_perm(w[3], w[4], bytes));
}

/* Loads a chunk that is not whole or not aligned: by elements, unless the operand has its neighbors too. */
template <int Size>
__device__ __forceinline__ uint4 gather(const char *from, const chunk_part &part, uint32_t padding) {
    uint32_t word[4] = {};
    if (part.first <= -16 / Size && part.end >= 2 * 16 / Size) return load_across(from);
#pragma unroll
    for (int i = 0; i < 16 / Size; i++) {
        uint32_t x = padding;
        if (i >= part.first && i < part.end)
            x = Size == 2 ? ((const uint16_t *)from)[i] : ((const uint8_t *)from)[i];
        word[i * Size / 4] |= x << i * Size % 4 * 8;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* ---- 16-bit operands ---- */

/* Begins to copy this thread's chunks of the next tile to shared memory. */
template <bool Transposed>
__device__ __forceinline__ void copy_chunks(operand_tile &to, chunks<2, Transposed> &c, int skip) {
#pragma unroll
    for (int i = 0; i < c.count; i++) {
        chunk_part part = part_of(c, i, skip);
        const char *from = c.from + i * c.lines * c.line_bytes;
        uint4 *slot = &to.slot[c.slot + i * TILE_THREADS];
        if (is_whole(c, part))
            copy_async(slot, from, true);
        else
            *slot = gather<2>(from, part, c.padding);
    }
    move_to_next_tile(c);
}

/* ---- FP8 operands ---- */

/* Loads this thread's chunk of the next tile. */
template <bool Transposed> __device__ __forceinline__ uint4 load_codes(chunks<1, Transposed> &c, int skip) {
    chunk_part part = part_of(c, 0, skip);
    uint4 codes = is_whole(c, part) ? *(const uint4 *)c.from : gather<1>(c.from, part, c.padding);
    move_to_next_tile(c);
    return codes;
}

/* Returns the values of two E4M3 codes, which are in the high bytes of both halves, in fp16. */
__device__ __forceinline__ uint32_t halves_of_e4m3(uint32_t codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("{ .reg .b16 two; cvt.u16.u32 two, %1; cvt.rn.f16x2.e4m3x2 %0, two; }"
        : "=r"(halves)
        : "r"(__byte_perm(codes, 0, 0x4431)));
    return halves;
#else
    /* The code's exponent has bias 7, and fp16's has bias 15, so the shifted bits are the value / 2^8. */
    uint32_t magnitudes = codes & 0x7f007f00u, shifted = (codes & 0x80008000u) | magnitudes >> 1;
    uint32_t nan = (magnitudes + 0x01000100u) & 0x80008000u, halves;
    __half2 values;
    memcpy((void *)&values, &shifted, sizeof values);
    values = __hmul2(values, __float2half2_rn(256.0f));
    memcpy(&halves, &values, sizeof halves);
    return halves | (nan - (nan >> 15));
#endif
}

/* Returns the values of codes 2 i and 2 i + 1 of four codes, in fp16. E5M2 has the high byte of fp16. */
__device__ __forceinline__ uint32_t halves_of(uint32_t codes, int i, bool e4m3) {
    uint32_t high = __byte_perm(codes, 0, i ? 0x3424 : 0x1404);
    return e4m3 ? halves_of_e4m3(high) : high;
}

/* Stores this thread's chunk in fp16: in two slots, whose indices differ in bit 0. */
template <bool Transposed>
__device__ __forceinline__ void store_codes(operand_tile &to, const chunks<1, Transposed> &c,
                                            const uint4 &codes, bool e4m3) {
    to.slot[c.slot] = make_uint4(halves_of(codes.x, 0, e4m3), halves_of(codes.x, 1, e4m3),
                                 halves_of(codes.y, 0, e4m3), halves_of(codes.y, 1, e4m3));
    to.slot[c.slot ^ 1] = make_uint4(halves_of(codes.z, 0, e4m3), halves_of(codes.z, 1, e4m3),
                                     halves_of(codes.w, 0, e4m3), halves_of(codes.w, 1, e4m3));
}

#endif
