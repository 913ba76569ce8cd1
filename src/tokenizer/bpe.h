/* tokenizer/bpe: byte-pair encoding: the table of merges, and the encoder of a piece. */
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include "tokenizer/text/text.h"

typedef struct merge_slot {
    uint32_t left, right; /* ids of the two tokens */
    int32_t rank;         /* smaller ranks merge first; -1: a free slot */
    int32_t id;           /* id of the merged token */
} merge_slot;

typedef struct bpe_model {
    bool byte_level;                             /* true: symbols are bytes; false: symbols are characters */
    bool ignore_merges, byte_fallback, fuse_unk; /* options of tokenizer.json */
    int32_t unk;                                 /* id of the unknown token; -1: none */
    int32_t byte_ids[256]; /* id of each byte's token ("<0xNN>" with byte_fallback); -1: none */
    int32_t ascii[128];    /* id of each single ASCII character; -1: none */
    merge_slot *merges;    /* [merge_mask + 1]: hash table of the pairs */
    uint64_t merge_mask;
    /* true: no merge joins a character and U+2581 after it, so each word is encoded separately */
    bool splits_words;
    bool no_merge[128][128]; /* [a][b]: true if splits_words is, and no merge joins ASCII characters a, b */
} bpe_model;

static inline uint64_t bpe_merge_hash(uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}
/* Returns the merge of two ids; NULL if they do not merge. */
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
