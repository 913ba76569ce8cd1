/* cuda/attention/attention_order: the table of ways. */
#include "cuda/attention/attention_order.h"
#include "tensor/rules/attention.h"

#ifndef SQUARES_MOST
#define SQUARES_MOST ATTENTION_SQUARES_MOST
#endif

#define KNOB(name, value)                                                                                    \
    { CUDNN_KNOB_TYPE_##name, value }
#define TILES(m, n)                                                                                          \
    KNOB(TILE_M, m), KNOB(TILE_N, n), KNOB(KERNEL_CFG, 2), KNOB(STREAM_K, 0), KNOB(TILE_CGA_M, 0)

/* Hopper: 64 x 64 tiles, which add their parts of grad_q one after the other (STAGES 4). */
static const attention_engine hopper = {6, 6, {TILES(2, 1), KNOB(STAGES, 4)}};
/* Blackwell: 128 x 128 tiles, one kernel for grad_k and grad_v and one for grad_q. STAGES 3: head_dim 256. */
static const attention_engine blackwell = {5, 6, {TILES(3, 2), KNOB(STAGES, 2)}};
static const attention_engine blackwell_wide = {5, 6, {TILES(3, 2), KNOB(STAGES, 3)}};
static const attention_engine blackwell_old = {5, 2, {KNOB(KERNEL_CFG, 31), KNOB(STAGES, 2)}};

enum { ANY = 1 << 30, TILE_KNOBS = 92300 };

static const attention_way unordered = {.last_gpu = ANY, .last_version = ANY, .head_most = 256};
static const attention_way ordered[] = {
    {true, true, false, 100, 103, TILE_KNOBS, ANY, 8, 128, &blackwell},
    {true, true, false, 100, 103, TILE_KNOBS, ANY, 136, 256, &blackwell_wide},
    {true, true, false, 100, 103, ATTENTION_CUDNN_LEAST, TILE_KNOBS - 1, 8, 128, &blackwell_old},
    {true, true, true, 80, ANY, ATTENTION_CUDNN_LEAST, ANY, 8, 256, NULL},
    {true, false, false, 90, 90, 92500, ANY, 8, 256, &hopper},
};

int64_t attention_order_key_heads(const attention_config *c) {
    return attention_square_heads(c->documents, c->heads, c->kv_heads, c->length, SQUARES_MOST);
}

static bool suits(const attention_way *w, int capability, size_t version, const attention_config *c) {
    return capability >= w->first_gpu && capability <= w->last_gpu && version >= w->first_version &&
           version <= w->last_version && c->head_dim >= w->head_least && c->head_dim <= w->head_most &&
           !(w->split && (c->packed || attention_order_key_heads(c) == 0));
}

int attention_order_backward(int capability, size_t version, const attention_config *c, bool unordered_first,
                             bool unordered_last, const attention_way *out[ATTENTION_WAYS_MOST]) {
    int count = 0;
    if (unordered_first) out[count++] = &unordered;
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++)
        if (suits(&ordered[i], capability, version, c)) out[count++] = &ordered[i];
    if (unordered_last) out[count++] = &unordered;
    return count;
}
