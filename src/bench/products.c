/* bench/products: measures each different matrix product and attention of a training step, and their share of
   a step's time. A dry run of the configuration lists the products. The log reports products that the
   device's library cannot compute. */
#include "bench/model.h"
#include "run/memory/check.h"
#include <stdio.h>

/* The arguments of a call, without the tensors' data. */
typedef struct product_key {
    enum op_index op;
    gemm_args gemm;
    operand a, b;
    tensor c;
    bench_attention_shape attention;
    char text[48];
    /* calls in a step (attention: forward calls); backward calls of attention */
    int64_t calls, backward_calls;
} product_key;

enum { KEYS_MOST = 256 };

typedef struct products_bench {
    config *cfg;
    int64_t micro_batches;
    product_key keys[KEYS_MOST];
    int count, dropped;           /* dropped: number of calls for which `keys` had no space */
    int64_t calls[2 * KEYS_MOST]; /* calls in a step, of each case */
} products_bench;

/* ---- recording a step ---- */

static void describe_recorded_product(product_key *k) {
    const operand *a = &k->a;
    accumulate_mode sum = k->gemm.spec.accumulate;
    bool chain = sum == ACCUMULATE_FP32;
    snprintf(k->text, sizeof k->text, "%s%s x %s%s%s%s%s%s%s", dtype_name(a->t.dtype),
             a->transposed ? "'" : "", dtype_name(k->b.t.dtype), k->b.transposed ? "'" : "",
             a->scale_inv ? " " : "", a->scale_inv ? granularity_name(a->grain) : "",
             k->gemm.accumulate ? ", added" : "", chain ? "" : ", ",
             chain ? "" : recipe_accumulate_name(sum));
}

static bool same_operand(const operand *a, const operand *b) {
    return a->t.rows == b->t.rows && a->t.columns == b->t.columns && a->t.ld == b->t.ld &&
           a->t.dtype == b->t.dtype && a->transposed == b->transposed && a->grain == b->grain &&
           !a->scale_inv == !b->scale_inv && a->mn_step == b->mn_step && a->k_step == b->k_step &&
           a->tiles.along_k == b->tiles.along_k;
}

static bool same_product(const product_key *x, const product_key *y) {
    const gemm_args *a = &x->gemm, *b = &y->gemm;
    return same_operand(&x->a, &y->a) && same_operand(&x->b, &y->b) && x->c.dtype == y->c.dtype &&
           x->c.ld == y->c.ld && a->accumulate == b->accumulate && !a->bias == !b->bias &&
           a->spec.accumulate == b->spec.accumulate && a->spec.fast_accumulate == b->spec.fast_accumulate &&
           a->spec.order == b->spec.order;
}

static bool same_attention(const bench_attention_shape *a, const bench_attention_shape *b) {
    return a->format == b->format && a->tokens == b->tokens && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->window == b->window;
}

static void note_key(products_bench *p, const product_key *k) {
    for (int i = 0; i < p->count; i++) {
        product_key *known = &p->keys[i];
        if (known->op != k->op) continue;
        if (k->op == OP_INDEX_gemm ? !same_product(known, k)
                                   : !same_attention(&known->attention, &k->attention))
            continue;
        known->calls += k->calls;
        known->backward_calls += k->backward_calls;
        return;
    }
    if (p->count < KEYS_MOST)
        p->keys[p->count++] = *k;
    else
        p->dropped++;
}

static bench_attention_shape shape_of_attention(const tensor *q, const tensor *k, int64_t head_dim,
                                                int64_t window) {
    return (bench_attention_shape){.format = q->dtype,
                                   .tokens = q->rows,
                                   .heads = q->columns / head_dim,
                                   .kv_heads = k->columns / head_dim,
                                   .head_dim = head_dim,
                                   .window = window};
}

static void record_op(void *user, const exec *cx, enum op_index op, const void *args) {
    products_bench *p = user;
    product_key k = {.op = op, .calls = p->micro_batches};
    if (cx->phase == PHASE_EVALUATE) return; /* evaluation is not part of a step */
    if (op == OP_INDEX_gemm) {
        const gemm_args *g = args;
        k.gemm = *g;
        k.a = *g->a;
        k.b = *g->b;
        k.c = *g->c;
        describe_recorded_product(&k);
    } else if (op == OP_INDEX_attention_forward) {
        const attention_forward_args *a = args;
        k.attention = shape_of_attention(a->q, a->k, a->head_dim, a->window);
    } else if (op == OP_INDEX_attention_backward) {
        const attention_backward_args *a = args;
        k.op = OP_INDEX_attention_forward;
        k.calls = 0;
        k.backward_calls = p->micro_batches;
        k.attention = shape_of_attention(a->q, a->k, a->head_dim, a->window);
    } else {
        return;
    }
    note_key(p, &k);
}

/* Reads the configuration. The options preset, precision and recipe replace the file's values. */
static ott_status read_products_config(bench *b, products_bench *p, model_options *shape) {
    const bench_options *o = b->options;
    char text[3][128];
    const char *arguments[3];
    const struct {
        const char *key, *value;
    } given[] = {{"model.preset", o->preset},
                 {"train.mixed_precision", o->precision},
                 {"float8.recipe_name", o->recipe}};
    int count = 0;
    for (int i = 0; i < 3; i++) {
        if (!given[i].value) continue;
        snprintf(text[i], sizeof text[i], "--%s=%s", given[i].key, given[i].value);
        arguments[count++] = text[i];
    }
    TRY(bench_config(b->account, b->log, o, arguments, count, &p->cfg));
    return model_options_resolve(p->cfg, shape);
}

static ott_status record_step(bench *b, products_bench *p) {
    const dry_run_listener listener = {.op = record_op, .user = p};
    model_options shape;
    memory_need need;
    TRY(read_products_config(b, p, &shape));
    p->micro_batches = p->cfg->train.grad_accum_steps;
    TRY(memory_check_measure(&(memory_check){.account = b->account,
                                             .device = b->cx.device,
                                             .cfg = p->cfg,
                                             .shape = &shape,
                                             .listener = &listener},
                             &need));
    if (p->dropped == 0) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "products: %s: %d calls were not measured: a step can have at most %d different products",
        b->options->path, p->dropped, KEYS_MOST);
}

/* ---- cases ---- */

/* One buffer per format, which all cases share. */
typedef struct product_buffers {
    tensor a[OTT_DTYPE_COUNT], b[OTT_DTYPE_COUNT], c[OTT_DTYPE_COUNT];
    tensor a_scale[OTT_DTYPE_COUNT], b_scale[OTT_DTYPE_COUNT], bias;
} product_buffers;

static void widen(tensor *t, ott_dtype d, int64_t elements) {
    t->dtype = d;
    t->rows = 1;
    if (elements > t->columns) t->columns = elements;
}

/* Returns the length of the array of an operand's scales, including the gaps that its strides may leave. */
static int64_t scale_elements(const operand *o) {
    scale_block each = granularity_block(o->grain);
    if (!o->scale_inv) return 0;
    int64_t mn = (operand_mn(o) - 1) / each.mn, k = (operand_k(o) - 1) / each.k;
    if (!o->tiles.along_k) return mn * o->mn_step + k * o->k_step + 1;
    return ((o->tiles.mn + mn) / SCALE_TILE_MN + 1) * o->tiles.along_k * SCALE_TILE_BYTES;
}

static ott_status open_wanted(bench *b, tensor *t) {
    return t->columns > 0 ? bench_tensor(b, t->dtype, 1, t->columns, t) : OTT_OK;
}

static ott_status open_product_buffers(bench *b, const products_bench *p, product_buffers *out) {
    for (int i = 0; i < p->count; i++) {
        const product_key *k = &p->keys[i];
        if (k->op != OP_INDEX_gemm) continue;
        widen(&out->a[k->a.t.dtype], k->a.t.dtype, k->a.t.rows * k->a.t.ld);
        widen(&out->b[k->b.t.dtype], k->b.t.dtype, k->b.t.rows * k->b.t.ld);
        widen(&out->c[k->c.dtype], k->c.dtype, k->c.rows * k->c.ld);
        ott_dtype a_scale = granularity_scale_format(k->a.grain),
                  b_scale = granularity_scale_format(k->b.grain);
        widen(&out->a_scale[a_scale], a_scale, scale_elements(&k->a));
        widen(&out->b_scale[b_scale], b_scale, scale_elements(&k->b));
        widen(&out->bias, OTT_F32, k->gemm.bias ? k->c.columns : 0);
    }
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) {
        TRY(open_wanted(b, &out->a[d]));
        TRY(open_wanted(b, &out->b[d]));
        TRY(open_wanted(b, &out->c[d]));
        TRY(open_wanted(b, &out->a_scale[d]));
        TRY(open_wanted(b, &out->b_scale[d]));
    }
    return open_wanted(b, &out->bias);
}

static ott_status run_product_case(bench *b, void *state) {
    const product_key *k = state;
    return op_gemm(&b->cx, &k->gemm);
}

static ott_status add_product_cases(bench *b, product_key *k, product_buffers *from) {
    k->a.t.data = from->a[k->a.t.dtype].data;
    k->b.t.data = from->b[k->b.t.dtype].data;
    k->c.data = from->c[k->c.dtype].data;
    if (k->a.scale_inv) k->a.scale_inv = from->a_scale[granularity_scale_format(k->a.grain)].data;
    if (k->b.scale_inv) k->b.scale_inv = from->b_scale[granularity_scale_format(k->b.grain)].data;
    k->gemm.a = &k->a;
    k->gemm.b = &k->b;
    k->gemm.c = &k->c;
    if (k->gemm.bias) k->gemm.bias = &from->bias;
    bench_case c = {.what = k->text,
                    .variant = dtype_name(k->c.dtype),
                    .flops = 2.0 * (double)k->c.rows * (double)k->c.columns * (double)operand_k(&k->a),
                    .format = k->a.t.dtype,
                    .run = run_product_case,
                    .state = k};
    snprintf(c.shape, sizeof c.shape, "%lld x %lld x %lld", (long long)k->c.rows, (long long)k->c.columns,
             (long long)operand_k(&k->a));
    return bench_add(b, &c);
}

static ott_status add_products(bench *b) {
    product_buffers *buffers;
    TRY(bench_alloc(b, sizeof(products_bench), &b->state));
    TRY(bench_alloc(b, sizeof(product_buffers), &buffers));
    products_bench *p = b->state;
    TRY(record_step(b, p));
    TRY(open_product_buffers(b, p, buffers));
    for (int i = 0; i < p->count; i++) {
        int at = b->count;
        p->calls[at] = p->keys[i].calls;
        p->calls[at + 1] = p->keys[i].backward_calls;
        TRY(p->keys[i].op == OP_INDEX_gemm ? add_product_cases(b, &p->keys[i], buffers)
                                           : bench_add_attention(b, &p->keys[i].attention));
    }
    return OTT_OK;
}

static void close_products(bench *b) {
    products_bench *p = b->state;
    if (p) config_close(p->cfg);
}

/* ---- results ---- */

static double step_seconds(const bench *b, int64_t *calls) {
    const products_bench *p = b->state;
    double seconds = 0;
    *calls = 0;
    for (int i = 0; i < b->count; i++) {
        seconds += (double)p->calls[i] * bench_seconds(b, &b->cases[i]);
        *calls += p->calls[i];
    }
    return seconds;
}

static void write_sum(bench *b, str *out) {
    int64_t calls;
    double seconds = step_seconds(b, &calls);
    str_printf(out, "in a step: %lld calls, %.3f ms\n", (long long)calls, 1e3 * seconds);
}

static void write_sum_json(bench *b, str *out) {
    int64_t calls;
    double seconds = step_seconds(b, &calls);
    str_printf(out, ",\"step\":{\"calls\":%lld,\"seconds\":%.9g}", (long long)calls, seconds);
}

const bench_entry bench_products = {.name = "products",
                                    .accepts = BENCH_NEEDS_PATH | BENCH_ACCEPTS_MODEL,
                                    .add = add_products,
                                    .text = write_sum,
                                    .json = write_sum_json,
                                    .close = close_products};
