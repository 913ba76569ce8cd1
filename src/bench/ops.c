/* bench/ops: norm and gated activation of a block, and the optimizer. */
#include "nn/activation.h"
#include "bench/harness.h"
#include <stdio.h>

/* A precision to measure. fp8: computes in bf16, and also quantizes the result with one scale. */
typedef struct block_precision {
    const char *name;
    ott_dtype activation;
    bool quantizes;
} block_precision;

static const block_precision precisions[] = {
    {"fp8", OTT_BF16, true}, {"bf16", OTT_BF16, false}, {"fp32", OTT_F32, false}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

typedef struct block_state {
    tensor in[4], weight, rstd, dweight;
    activation out[2];
} block_state;

static ott_status rmsnorm_forward(bench *b, void *state) {
    const block_state *s = state;
    return op_rmsnorm_forward(&b->cx, &(rmsnorm_forward_args){.x = &s->in[0],
                                                              .delta = &s->in[1],
                                                              .weight = &s->weight,
                                                              .h = &s->in[2],
                                                              .y = &s->out[0].t,
                                                              .rstd = &s->rstd,
                                                              .q = &s->out[0].q,
                                                              .eps = 1e-5f});
}

static ott_status rmsnorm_backward(bench *b, void *state) {
    const block_state *s = state;
    return op_rmsnorm_backward(&b->cx, &(rmsnorm_backward_args){.dy = &s->in[0],
                                                                .h = &s->in[1],
                                                                .weight = &s->weight,
                                                                .rstd = &s->rstd,
                                                                .dresidual = &s->in[2],
                                                                .dx = &s->out[0].t,
                                                                .dweight = &s->dweight,
                                                                .q = &s->out[0].q});
}

static ott_status swiglu_forward(bench *b, void *state) {
    const block_state *s = state;
    return op_swiglu_forward(
        &b->cx,
        &(swiglu_forward_args){.gate = &s->in[0], .up = &s->in[1], .y = &s->out[0].t, .q = &s->out[0].q});
}

static ott_status swiglu_backward(bench *b, void *state) {
    const block_state *s = state;
    return op_swiglu_backward(&b->cx, &(swiglu_backward_args){.dy = &s->in[2],
                                                              .gate = &s->in[0],
                                                              .up = &s->in[1],
                                                              .dgate = &s->out[0].t,
                                                              .dup = &s->out[1].t,
                                                              .q_gate = &s->out[0].q,
                                                              .q_up = &s->out[1].q});
}

typedef struct block_op {
    const char *what;
    int moved; /* number of activation tensors read and written */
    int made;  /* number of results, which fp8 also quantizes */
    ott_status (*run)(bench *b, void *state);
} block_op;

static const block_op block_ops[] = {{"rmsnorm_forward, add", 4, 1, rmsnorm_forward},
                                     {"rmsnorm_backward, add", 4, 1, rmsnorm_backward},
                                     {"swiglu_forward", 3, 1, swiglu_forward},
                                     {"swiglu_backward", 5, 2, swiglu_backward}};
enum { BLOCK_OPS = sizeof block_ops / sizeof *block_ops };

static ott_status add_block_case(bench *b, const block_op *op, const block_precision *p, bench_matrix size) {
    block_state *s;
    TRY(bench_alloc(b, sizeof(block_state), &s));
    activation_specs specs = {.count = p->quantizes, .spec = {recipe_find("tensorwise")->input}};
    for (int i = 0; i < 3; i++) TRY(bench_tensor(b, p->activation, size.rows, size.columns, &s->in[i]));
    for (int i = 0; i < 2; i++)
        TRY(activation_open(&b->cx, "result", p->activation, size.rows, size.columns, &specs, &s->out[i]));
    TRY(bench_tensor(b, OTT_F32, 1, size.columns, &s->weight));
    TRY(bench_tensor(b, OTT_F32, 1, size.columns, &s->dweight));
    TRY(bench_tensor(b, OTT_F32, 1, size.rows, &s->rstd));
    int64_t element = op->moved * dtype_bytes(p->activation) + (p->quantizes ? op->made : 0);
    bench_case c = {.what = op->what,
                    .variant = p->name,
                    .bytes = (double)(size.rows * size.columns * element),
                    .run = op->run,
                    .state = s};
    snprintf(c.shape, sizeof c.shape, "%lld x %lld", (long long)size.rows, (long long)size.columns);
    return bench_add(b, &c);
}

static ott_status add_norm(bench *b) {
    const bench_shapes *s;
    TRY(bench_find_shapes(b, &s));
    for (int m = 0; m < s->matrices; m++)
        for (int i = 0; i < BLOCK_OPS; i++)
            for (int p = 0; p < PRECISIONS; p++)
                TRY(add_block_case(b, &block_ops[i], &precisions[p], s->matrix[m]));
    return OTT_OK;
}

const bench_entry bench_norm = {.name = "norm", .accepts = BENCH_ACCEPTS_SHAPES, .add = add_norm};

typedef struct optimizer_bench {
    tensor param, grad, moment1, moment2, state, sums;
} optimizer_bench;

static ott_status adamw(bench *b, void *state) {
    const optimizer_bench *s = state;
    return op_adamw(&b->cx, &(adamw_args){.param = &s->param,
                                          .grad = &s->grad,
                                          .moment1 = &s->moment1,
                                          .moment2 = &s->moment2,
                                          .state = &s->state,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.95f,
                                          .epsilon = 1e-8f,
                                          .weight_decay = 0.1f});
}

static ott_status block_squares(bench *b, void *state) {
    const optimizer_bench *s = state;
    return op_block_squares(&b->cx, &(block_squares_args){.x = &s->grad, .sums = &s->sums});
}

static ott_status open_optimizer_state(bench *b, int64_t rows, optimizer_bench *s) {
    enum { COLUMNS = 1024 };
    float state[STEP_STATE_COUNT] = {[STEP_LEARNING_RATE] = 1e-4f,
                                     [STEP_CORRECTION1] = 0.5f,
                                     [STEP_SQRT_CORRECTION2] = 0.5f,
                                     [STEP_LOSS_SCALE] = 1.0f,
                                     [STEP_CLIP] = 1.0f};
    TRY(bench_tensor(b, OTT_F32, rows, COLUMNS, &s->param));
    TRY(bench_tensor(b, OTT_F32, rows, COLUMNS, &s->grad));
    TRY(bench_tensor(b, OTT_F32, rows, COLUMNS, &s->moment1));
    TRY(bench_tensor(b, OTT_F32, rows, COLUMNS, &s->moment2));
    TRY(device_zero(b->cx.device, s->moment2.data, tensor_bytes(s->moment2))); /* never negative */
    TRY(bench_tensor(b, OTT_F32, 1, STEP_STATE_COUNT, &s->state));
    TRY(bench_tensor(b, OTT_F32, 1, op_reduce_blocks(rows * COLUMNS), &s->sums));
    return device_copy_in(b->cx.device, s->state.data, state, sizeof state);
}

/* adamw reads four arrays and writes three. */
static ott_status add_optimizer(bench *b) {
    for (int64_t rows = 1024; rows <= 65536; rows *= 8) {
        optimizer_bench *s;
        TRY(bench_alloc(b, sizeof(optimizer_bench), &s));
        TRY(open_optimizer_state(b, rows, s));
        double elements = (double)tensor_count(s->param);
        bench_case c = {.what = "adamw", .variant = "fp32", .bytes = 28 * elements, .run = adamw, .state = s};
        snprintf(c.shape, sizeof c.shape, "%lldM parameters", (long long)(rows / 1024));
        TRY(bench_add(b, &c));
        c.what = "block_squares";
        c.bytes = 4 * elements;
        c.run = block_squares;
        TRY(bench_add(b, &c));
    }
    return OTT_OK;
}

const bench_entry bench_optimizer = {.name = "optimizer", .add = add_optimizer};
