/* base/rng: counter-based random numbers (Philox4x32-10; Salmon et al., SC'11). A number depends only on
   (seed, stream, index), so sharding, threads and resuming do not change it. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include "base/anywhere.h"
#include <stdint.h>

typedef struct rng_block {
    uint32_t word[4];
} rng_block;

/* Returns block `index` (four 32-bit words) of random stream `stream`; `seed` is the key. Philox's counter is
   {index lo, index hi, stream lo, stream hi}. */
ANYWHERE rng_block rng_philox(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)c0 * 0xD2511F53u, product1 = (uint64_t)c2 * 0xCD9E8D57u;
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
