/* bench/quantize: the cost of quantizing a tensor, for some rows of the recipe table. */
#include "nn/activation.h"
#include "bench/harness.h"
#include <stdio.h>

static const ott_dtype sources[] = {OTT_F32, OTT_BF16};
enum { SOURCES = sizeof sources / sizeof *sources };

typedef ott_status (*quantize_op)(bench *b, const activation *e);

static ott_status run_quantize(bench *b, const activation *e) {
    return op_quantize(&b->cx, &(quantize_args){.x = &e->t, .q = &e->q.item[0]});
}

static ott_status run_cast(bench *b, const activation *e) {
    return op_cast(&b->cx, &(cast_args){.x = &e->t, .q = &e->q.item[0]});
}

/* A way to quantize a layer's input in training. The benchmark's table has a row for each. */
typedef struct quantized_copy {
    const char *what, *recipe;
    bool rowwise_only; /* true: no columnwise copy, which only grad_weight reads */
    quantize_op op;
} quantized_copy;

static const quantized_copy copies[] = {
    {"cast, scale given", "tensorwise", false, run_cast},
    {"one scale", "tensorwise", false, run_quantize},
    {"row scales", "rowwise", true, run_quantize},
    {"row and column scales", "rowwise", false, run_quantize},
    {"1x128 blocks, rows", "block", true, run_quantize},
    {"1x128 blocks, both ways", "block", false, run_quantize},
    {"1x32 blocks, both ways", "mxfp8", false, run_quantize},
};
enum { COPIES = sizeof copies / sizeof *copies };

typedef struct quantize_state {
    activation e;
    quantize_op op;
} quantize_state;

static ott_status run_quantize_case(bench *b, void *state) {
    quantize_state *s = state;
    return s->op(b, &s->e);
}

/* Bytes of the source and of the codes. The scales are too few to count. */
static double bytes_of(const quantize_state *s) {
    const qtensor *q = &s->e.q.item[0];
    int uses = cast_spec_is_fp8(&q->spec.rowwise);
    if (cast_spec_is_fp8(&q->spec.columnwise) && !qtensor_shares_codes(q)) uses++;
    return (double)tensor_count(s->e.t) * (double)(dtype_bytes(s->e.t.dtype) + uses);
}

static ott_status add_case(bench *b, const quantized_copy *f, bench_matrix size, const tensor *x) {
    quantize_state *s;
    TRY(bench_alloc(b, sizeof(quantize_state), &s));
    s->op = f->op;
    activation_specs specs = {.count = 1, .spec = {recipe_find(f->recipe)->input}};
    plan_buffer none = PLAN_NONE;
    tensor view = tensor_matrix(x->data, x->dtype, size.rows, size.columns);
    if (f->rowwise_only) specs.spec[0].columnwise.format = x->dtype;
    TRY(activation_adopt(&b->cx, "quantized copy", view, &none, &specs, &s->e));
    TRY(run_quantize(b, &s->e)); /* computes the scale that the cast uses */
    bench_case c = {.what = f->what,
                    .variant = dtype_name(x->dtype),
                    .bytes = bytes_of(s),
                    .run = run_quantize_case,
                    .state = s};
    snprintf(c.shape, sizeof c.shape, "%lld x %lld", (long long)size.rows, (long long)size.columns);
    return bench_add(b, &c);
}

static ott_status add_quantizers(bench *b) {
    const bench_shapes *s;
    TRY(bench_find_shapes(b, &s));
    for (int m = 0; m < s->matrices; m++) {
        bench_matrix size = s->matrix[m];
        tensor x[SOURCES];
        for (int d = 0; d < SOURCES; d++) TRY(bench_tensor(b, sources[d], size.rows, size.columns, &x[d]));
        for (int f = 0; f < COPIES; f++)
            for (int d = 0; d < SOURCES; d++) TRY(add_case(b, &copies[f], size, &x[d]));
    }
    return OTT_OK;
}

const bench_entry bench_quantize = {
    .name = "quantize", .accepts = BENCH_ACCEPTS_SHAPES, .add = add_quantizers};
