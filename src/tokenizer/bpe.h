/* tokenizer/bpe: byte-pair encoding: the merges, and a piece's ids. */
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include "tokenizer/text.h"

typedef struct merge_slot {
    uint32_t left, right; /* ids */
    int32_t rank;         /* smaller goes first; -1: a free slot */
    int32_t id;           /* of the merged token */
} merge_slot;

typedef struct bpe_model {
    bool byte_level; /* pieces are bytes; else characters */
    bool ignore_merges, byte_fallback, fuse_unk;
    int32_t unk;           /* -1: none */
    int32_t byte_ids[256]; /* byte-level: of each byte; else of "<0xNN>"; -1: none */
    int32_t ascii[128];    /* of each ASCII character alone, as a piece; -1: none */
    merge_slot *merges;    /* [merge_mask + 1] */
    uint64_t merge_mask;
    bool
        splits_words; /* no merge joins a character with a U+2581 behind it, so that words can be encoded alone */
    bool no_merge[128][128]; /* if so: nor does one join these two ASCII characters */
} bpe_model;

static inline uint64_t bpe_merge_hash(uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}
/* NULL: the two do not merge. */
static inline const merge_slot *bpe_merge_find(const bpe_model *m, uint32_t left, uint32_t right) {
    for (uint64_t i = bpe_merge_hash(left, right);; i++) {
        const merge_slot *slot = &m->merges[i & m->merge_mask];
        if (slot->left == left && slot->right == right) return slot;
        if (slot->rank < 0) return NULL;
    }
}

typedef struct bpe_work bpe_work;
struct encode_run;

ott_status bpe_open(mem *account, bpe_work **out);
void bpe_close(mem *account, bpe_work *work);
ott_status bpe_encode(struct encode_run *run, text_view piece);

#endif
