/* cuda/attention/visible: which keys a query sees, and which queries see a key, for attention's kernels. */
#ifndef CUDA_ATTENTION_VISIBLE_H
#define CUDA_ATTENTION_VISIBLE_H

#include "cuda/launch.h"
#include "tensor/tensor.h"

/* A range of rows: [begin, end). */
struct span {
    int64_t begin, end;
};

__device__ __forceinline__ int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

struct documents {
    const int32_t *start;
    int64_t count, tokens, window;
};

static inline documents visible_documents(const tensor *cu_seqlens, int64_t tokens, int64_t window) {
    return {(const int32_t *)cu_seqlens->data, cu_seqlens->columns, tokens, window};
}

/* Returns the tokens [begin, end) of `token`'s document, within [0, tokens) even if cu_seqlens is invalid. */
__device__ __forceinline__ span document_of(const documents &d, int64_t token) {
    int64_t low = 0, high = d.count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (d.start[middle] <= token)
            low = middle + 1;
        else
            high = middle;
    }
    int64_t begin = low > 0 ? d.start[low - 1] : 0, end = low < d.count ? d.start[low] : d.tokens;
    return {begin < 0 ? 0 : begin, least(end, d.tokens)};
}
/* Returns the keys that query i sees. The query's document begins at token `begin`. */
__device__ __forceinline__ span keys_of(const documents &d, int64_t begin, int64_t i) {
    return {d.window > 0 && i - d.window + 1 > begin ? i - d.window + 1 : begin, i + 1};
}
/* Returns the queries that see key j. The key's document ends at token `end`. */
__device__ __forceinline__ span queries_of(const documents &d, int64_t end, int64_t j) {
    return {j, d.window > 0 && end - j > d.window ? j + d.window : end};
}

#endif
