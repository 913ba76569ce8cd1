/* bench/attention: attention forward and backward, one document. */
#include "bench/harness.h"
#include <stdio.h>

static const ott_dtype activations[] = {OTT_BF16, OTT_F32};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

typedef struct attention_state {
    tensor q, k, v, o, lse, start, dout, dq, dk, dv;
    int64_t head_dim, window;
    float softmax_scale;
} attention_state;

static ott_status attention_forward(bench *b, void *state) {
    const attention_state *s = state;
    return op_attention_forward(&b->cx, &(attention_forward_args){.q = &s->q,
                                                                  .k = &s->k,
                                                                  .v = &s->v,
                                                                  .cu_seqlens = &s->start,
                                                                  .o = &s->o,
                                                                  .lse = &s->lse,
                                                                  .head_dim = s->head_dim,
                                                                  .window = s->window,
                                                                  .softmax_scale = s->softmax_scale});
}

static ott_status attention_backward(bench *b, void *state) {
    const attention_state *s = state;
    return op_attention_backward(&b->cx, &(attention_backward_args){.dout = &s->dout,
                                                                    .q = &s->q,
                                                                    .k = &s->k,
                                                                    .v = &s->v,
                                                                    .o = &s->o,
                                                                    .lse = &s->lse,
                                                                    .cu_seqlens = &s->start,
                                                                    .dq = &s->dq,
                                                                    .dk = &s->dk,
                                                                    .dv = &s->dv,
                                                                    .head_dim = s->head_dim,
                                                                    .window = s->window,
                                                                    .softmax_scale = s->softmax_scale});
}

static ott_status open_attention_buffers(bench *b, const bench_attention_shape *shape, attention_state *s) {
    tensor *const like_q[] = {&s->q, &s->o, &s->dout, &s->dq}, *const like_k[] = {&s->k, &s->v, &s->dk,
                                                                                  &s->dv};
    int64_t tokens = shape->tokens, dim = shape->head_dim;
    for (int i = 0; i < 4; i++) {
        TRY(bench_tensor(b, shape->format, tokens, shape->heads * dim, like_q[i]));
        TRY(bench_tensor(b, shape->format, tokens, shape->kv_heads * dim, like_k[i]));
    }
    TRY(bench_tensor(b, OTT_F32, shape->heads, tokens, &s->lse));
    plan_buffer buffer; /* not closed: the tensor is needed until the plan ends */
    TRY(exec_open(&b->cx, "documents", OTT_I32, 1, 2, &s->start, &buffer));
    const int32_t start[] = {0, (int32_t)tokens};
    TRY(device_copy_in(b->cx.device, s->start.data, start, sizeof start));
    s->head_dim = dim;
    s->window = shape->window;
    s->softmax_scale = 1.0f / sqrtf((float)s->head_dim);
    return attention_forward(b, s); /* computes o and lse from q, k, v for backward */
}

/* Number of pairs of a query and a key that the query attends to. */
static double attended_pairs(const bench_attention_shape *s) {
    double tokens = (double)s->tokens, unseen = s->window > 0 ? tokens - (double)s->window : 0;
    return (tokens * (tokens + 1) - (unseen > 0 ? unseen * (unseen + 1) : 0)) / 2;
}

/* Adds two cases. For each pair of query and key, forward has two products and backward five. */
ott_status bench_add_attention(bench *b, const bench_attention_shape *shape) {
    void *memory;
    TRY(bench_alloc(b, sizeof(attention_state), &memory));
    TRY(open_attention_buffers(b, shape, memory));
    double product = 2 * attended_pairs(shape) * (double)(shape->head_dim * shape->heads);
    bench_case c = {.what = "attention_forward",
                    .variant = dtype_name(shape->format),
                    .flops = 2 * product,
                    .format = shape->format,
                    .run = attention_forward,
                    .state = memory};
    char kv_heads[24] = "", window[32] = "";
    if (shape->kv_heads != shape->heads)
        snprintf(kv_heads, sizeof kv_heads, "/%lld", (long long)shape->kv_heads);
    if (shape->window > 0) snprintf(window, sizeof window, ", window %lld", (long long)shape->window);
    snprintf(c.shape, sizeof c.shape, "%lld tokens, %lld%s x %lld%s", (long long)shape->tokens,
             (long long)shape->heads, kv_heads, (long long)shape->head_dim, window);
    TRY(bench_add(b, &c));
    c.what = "attention_backward";
    c.flops = 5 * product;
    c.run = attention_backward;
    return bench_add(b, &c);
}

static ott_status add_attention(bench *b) {
    enum { WIDTH = 768 };
    for (int64_t head_dim = 64; head_dim <= 128; head_dim *= 2)
        for (int64_t tokens = 256; tokens <= 2048; tokens *= 2)
            for (int d = 0; d < ACTIVATIONS; d++)
                TRY(bench_add_attention(b, &(bench_attention_shape){.format = activations[d],
                                                                    .tokens = tokens,
                                                                    .heads = WIDTH / head_dim,
                                                                    .kv_heads = WIDTH / head_dim,
                                                                    .head_dim = head_dim}));
    return OTT_OK;
}

const bench_entry bench_attention = {.name = "attention", .add = add_attention};
