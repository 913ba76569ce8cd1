/* tests/cuda/emulate_mma: the functions of cuda/mma.h on the emulated GPU. mma_add adds its terms in order,
   by fmaf. A thread makes every second asynchronous copy at once, and the others when it waits for them. So
   a missing wait gives wrong results, and a buffer that others still read is overwritten. */
#ifndef EMULATE_MMA_H
#define EMULATE_MMA_H

#include "fp8/narrow.h"
#include <cuda_fp16.h>

namespace emulate {

constexpr int copies_most = 128;

struct async_copy {
    void *to;
    const void *from; /* NULL: zeros */
    int group;
};
/* The copies of one thread that have not been waited for, oldest first. */
struct async_copies {
    async_copy of[copies_most];
    int count, group;
    bool waits;     /* the last copy waits */
    uint64_t block; /* the block that the thread belongs to */
};
inline async_copies all_copies[block_limit];

UNSEEN inline async_copies &my_copies() {
    async_copies &c = all_copies[current];
    if (c.block != blocks) c = {{}, 0, 0, false, blocks};
    return c;
}

/* Takes the oldest copy that `left` later groups do not include. False if there is none. */
UNSEEN inline bool take_copy(int left, async_copy &out) {
    async_copies &c = my_copies();
    if (c.count == 0 || c.of[0].group >= c.group - left) return false;
    out = c.of[0];
    for (int i = 1; i < c.count; i++) c.of[i - 1] = c.of[i];
    c.count--;
    return true;
}

UNSEEN inline void end_group() {
    my_copies().group++;
}

/* Returns true if the copy must be made at once. */
UNSEEN inline bool add_copy(void *to, const void *from) {
    async_copies &c = my_copies();
    if (c.count == copies_most || (uintptr_t)to % 16 || (uintptr_t)from % 16) {
        fprintf(stderr, "emulated copy: %d copies in flight, addresses %p and %p\n", c.count, to, from);
        abort();
    }
    c.waits = !c.waits;
    if (c.waits) c.of[c.count++] = {to, from, c.group};
    return !c.waits;
}

inline void make_copy(void *to, const void *from) {
    if (from)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}

template <ott_dtype D> inline float half_of(uint32_t word, int high) {
    uint16_t bits = (uint16_t)(word >> 16 * high);
    return D == OTT_BF16 ? cast_from_bf16(bits) : __half2float(__ushort_as_half(bits));
}

/* ldmatrix reads rows of 16 bytes at multiples of 16. */
inline void check_row(const void *row) {
    if ((uintptr_t)row % 16 == 0) return;
    fprintf(stderr, "emulated ldmatrix: address %p\n", row);
    abort();
}

} // namespace emulate

template <ott_dtype D> static inline void mma_add(mma_sums &d, const mma_left &a, const mma_right &b) {
    int lane = emulate::current % emulate::warp_size, row = lane / 4, column = lane % 4 * 2;
    float left[2][16], right[2][16];
    for (int source = 0; source < 4; source++) {
        mma_left x = emulate::shuffle(a, [=](int) { return row * 4 + source; });
        for (int n = 0; n < 4; n++)
            for (int high = 0; high < 2; high++)
                left[n % 2][n / 2 * 8 + source * 2 + high] = emulate::half_of<D>(x.at[n], high);
        for (int next = 0; next < 2; next++) {
            mma_right y = emulate::shuffle(b, [=](int) { return (column + next) * 4 + source; });
            for (int n = 0; n < 2; n++)
                for (int high = 0; high < 2; high++)
                    right[next][n * 8 + source * 2 + high] = emulate::half_of<D>(y.at[n], high);
        }
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++) d.at[i] = fmaf(left[i / 2][k], right[i % 2][k], d.at[i]);
}

static inline void mma_load(uint32_t (&out)[4], const void *row) {
    int lane = emulate::current % emulate::warp_size;
    emulate::check_row(row);
    for (int i = 0; i < 4; i++) {
        const void *from = emulate::shuffle(row, [=](int) { return i * 8 + lane / 4; });
        memcpy(&out[i], (const uint16_t *)from + lane % 4 * 2, 4);
    }
}

static inline void mma_load_transposed(uint32_t (&out)[4], const void *row) {
    int lane = emulate::current % emulate::warp_size;
    emulate::check_row(row);
    for (int i = 0; i < 4; i++) {
        const void *first = emulate::shuffle(row, [=](int) { return i * 8 + lane % 4 * 2; });
        const void *second = emulate::shuffle(row, [=](int) { return i * 8 + lane % 4 * 2 + 1; });
        out[i] = ((const uint16_t *)first)[lane / 4] | (uint32_t)((const uint16_t *)second)[lane / 4] << 16;
    }
}

static inline void copy_async(void *to, const void *from, bool valid) {
    if (emulate::add_copy(to, valid ? from : nullptr)) emulate::make_copy(to, valid ? from : nullptr);
}
static inline void copy_async_commit() {
    emulate::end_group();
}
template <int Left> static inline void copy_async_wait() {
    emulate::async_copy copy;
    while (emulate::take_copy(Left, copy)) emulate::make_copy(copy.to, copy.from);
}

#endif
