/* base/rng: counter-based random numbers (Philox4x32-10; Salmon et al., SC'11). A number depends only on
   (seed, stream, index), so sharding, threads and resuming do not change it. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include "base/anywhere.h"
#include <stdint.h>

typedef struct rng_block {
    uint32_t word[4];
} rng_block;

/* Returns a * b in 64 bits. nvcc would multiply 64-bit numbers, with more instructions. */
ANYWHERE uint64_t rng_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
    uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
#else
    return (uint64_t)a * b;
#endif
}
/* Returns block `index` (four 32-bit words) of random stream `stream`; `seed` is the key. Philox's counter is
   {index lo, index hi, stream lo, stream hi}. rounds: 10 in rng_philox; 7 are enough where speed matters. */
ANYWHERE rng_block rng_philox_rounds(uint64_t seed, uint64_t stream, uint64_t index, int rounds) {
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < rounds; round++) {
        uint64_t product0 = rng_product(c0, 0xD2511F53u), product1 = rng_product(c2, 0xCD9E8D57u);
        c0 = (uint32_t)(product1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product1;
        c2 = (uint32_t)(product0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const rng_block words = {{c0, c1, c2, c3}};
    return words;
}
ANYWHERE rng_block rng_philox(uint64_t seed, uint64_t stream, uint64_t index) {
    return rng_philox_rounds(seed, stream, index, 10);
}
/* Returns word index % 4 of a block. Selects, because a GPU cannot index registers. */
ANYWHERE uint32_t rng_word(const rng_block *b, uint64_t index) {
    uint32_t low = index & 1 ? b->word[1] : b->word[0], high = index & 1 ? b->word[3] : b->word[2];
    return index & 2 ? high : low;
}
/* Word `index` of a stream: word index % 4 of block index / 4. */
uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, 1): the top 24 bits of rng_u32 times 2^-24. */
float rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal number `index`, by Box-Muller in double. Numbers 2n and 2n + 1 come from block n: the even
   one from the cosine, the odd one from the sine. */
float rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* out[i] = rng_normal(seed, stream, first + i) for i in [0, count), in about half the time. */
void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float *out);
/* Position of item `index` of [0, count) in a random permutation keyed by (seed, stream). Uses a Feistel
   network with cycle walking and O(1) memory. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count);
/* A 64-bit stream number for a name (FNV-1a). It never changes between versions. */
uint64_t rng_stream(const char *name);

#endif
