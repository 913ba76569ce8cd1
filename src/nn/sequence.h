/* nn/sequence: the sequences of a micro-batch, for layers in which a token affects later tokens. */
#ifndef NN_SEQUENCE_H
#define NN_SEQUENCE_H

#include "tensor/tensor.h"

/* What one layer keeps of the earlier tokens of one sequence, for generation. A forward pass adds its tokens;
   then the caller increases `past`. */
typedef struct sequence_cache {
    void *data;       /* device memory; the layer decides its size and contents (model/mixer.h) */
    int64_t capacity; /* maximum number of tokens */
    int64_t past;     /* number of earlier tokens */
} sequence_cache;

/* The documents of a micro-batch, and each token's position in its document. */
typedef struct sequence_metadata {
    tensor position;   /* i32[T] position of each token in its document */
    tensor cu_seqlens; /* i32[documents + 1]: document b has tokens [cu_seqlens[b], cu_seqlens[b+1]) */
    int64_t longest;   /* no document has more tokens; 0: unknown */
    const sequence_cache *cache; /* earlier tokens; NULL: none, as in training */
} sequence_metadata;

#endif
