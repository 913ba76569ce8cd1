/*
 * Compares attention with a simple version in double: forward within error bounds, backward with finite
 * differences. All ISA levels and numbers of threads must give the same bits, with several blocks of queries
 * and tiles of keys.
 */
#include "arrays.h"
#include "devices.h"
#include <math.h>

static devices all; /* all.list[0] is scalar code on one thread */

typedef struct setting {
    int tokens, heads, kv_heads, head_dim, window;
    int documents;
    int32_t start[6];
    ott_dtype act;
} setting;

static const setting settings[] = {
    {70, 1, 1, 16, 0, 1, {0}, OTT_F32},  /* one key head, a few more keys than one tile */
    {150, 4, 2, 24, 0, 1, {0}, OTT_F32}, /* grouped heads, head_dim is not a multiple of 16 */
    {300, 4, 2, 40, 0, 5, {0, 130, 130, 197, 300}, OTT_F32}, /* empty documents within and at the end */
    {300, 2, 1, 64, 50, 2, {0, 290}, OTT_F32},               /* a window shorter than a tile */
    {300, 2, 2, 33, 100, 2, {0, 3}, OTT_BF16},               /* a window longer than a tile */
    {140, 3, 1, 7, 1, 1, {0}, OTT_F32},                      /* each query sees only itself */
    {200, 1, 1, 256, 0, 1, {0}, OTT_F16},                    /* a large head_dim */
    /* bf16: CPUs with dot-product instructions compute pairs of terms */
    {150, 2, 1, 64, 70, 2, {0, 30}, OTT_BF16},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

/* All tensors of attention's forward and backward. */
typedef struct problem {
    const setting *s;
    float scale;
    tensor q, k, v, dout, start, o, lse, dq, dk, dv;
} problem;

/* Makes a problem with random tensors. gradient: the magnitude of dout. */
static problem make_problem(const setting *s, float gradient) {
    int64_t wide = s->heads * s->head_dim, narrow = s->kv_heads * s->head_dim;
    return (problem){
        .s = s,
        .scale = 1.0f / sqrtf((float)s->head_dim),
        .q = make_random(s->act, s->tokens, wide, 2.0f, 1),
        .k = make_random(s->act, s->tokens, narrow, 2.0f, 2),
        .v = make_random(s->act, s->tokens, narrow, 1.0f, 3),
        .dout = make_random(s->act, s->tokens, wide, gradient, 4),
        .start = make_integers(s->start, s->documents),
        .o = make_zeros(s->act, s->tokens, wide),
        .lse = make_zeros(OTT_F32, s->heads, s->tokens),
        .dq = make_zeros(s->act, s->tokens, wide),
        .dk = make_zeros(s->act, s->tokens, narrow),
        .dv = make_zeros(s->act, s->tokens, narrow),
    };
}

static void free_problem(problem *p) {
    tensor *tensors[] = {&p->q, &p->k, &p->v, &p->dout, &p->start, &p->o, &p->lse, &p->dq, &p->dk, &p->dv};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) free(tensors[i]->data);
}

static void run(problem *p, device *d) {
    exec cx = {.device = d};
    succeed(op_attention_forward(&cx, &(attention_forward_args){.q = &p->q,
                                                                .k = &p->k,
                                                                .v = &p->v,
                                                                .cu_seqlens = &p->start,
                                                                .o = &p->o,
                                                                .lse = &p->lse,
                                                                .head_dim = p->s->head_dim,
                                                                .window = p->s->window,
                                                                .softmax_scale = p->scale}));
    succeed(op_attention_backward(&cx, &(attention_backward_args){.dout = &p->dout,
                                                                  .q = &p->q,
                                                                  .k = &p->k,
                                                                  .v = &p->v,
                                                                  .o = &p->o,
                                                                  .lse = &p->lse,
                                                                  .cu_seqlens = &p->start,
                                                                  .dq = &p->dq,
                                                                  .dk = &p->dk,
                                                                  .dv = &p->dv,
                                                                  .head_dim = p->s->head_dim,
                                                                  .window = p->s->window,
                                                                  .softmax_scale = p->scale}));
}

/* ---- naive attention in double ---- */

/* q, k and v in double. To compute a finite difference, a test changes one element by a small amount. */
typedef struct exact {
    const setting *s;
    double scale;
    double *q, *k, *v;
} exact;

static double *widened(const tensor *t) {
    double *out = malloc((size_t)tensor_count(*t) * sizeof *out);
    for (int64_t i = 0; i < tensor_count(*t); i++) out[i] = (double)cast_load(t->data, t->dtype, i);
    return out;
}

static int first_visible(const setting *s, int i) {
    int first = 0;
    for (int b = 0; b < s->documents; b++)
        if (s->start[b] <= i) first = s->start[b];
    return s->window > 0 && i - s->window + 1 > first ? i - s->window + 1 : first;
}

/* Computes o[head_dim] of query i and head h. Returns the logarithm of the sum of exponentials. */
static double exact_row(const exact *e, int h, int i, double *o) {
    const setting *s = e->s;
    int first = first_visible(s, i), column = h / (s->heads / s->kv_heads) * s->head_dim;
    double score[512], most = -INFINITY, sum = 0.0;
    for (int j = first; j <= i; j++) {
        const double *q = e->q + ((int64_t)i * s->heads + h) * s->head_dim;
        const double *k = e->k + (int64_t)j * s->kv_heads * s->head_dim + column;
        score[j] = 0.0;
        for (int d = 0; d < s->head_dim; d++) score[j] += e->scale * q[d] * k[d];
        most = fmax(most, score[j]);
    }
    for (int d = 0; d < s->head_dim; d++) o[d] = 0.0;
    for (int j = first; j <= i; j++) {
        const double *v = e->v + (int64_t)j * s->kv_heads * s->head_dim + column;
        double p = exp(score[j] - most);
        sum += p;
        for (int d = 0; d < s->head_dim; d++) o[d] += p * v[d];
    }
    for (int d = 0; d < s->head_dim; d++) o[d] /= sum;
    return most + log(sum);
}

/* Returns the sum of dout * o over the queries in [begin, end) and the heads in [head, head_end). */
static double exact_loss(const exact *e, const tensor *dout, int begin, int end, int head, int head_end) {
    double o[256], loss = 0.0;
    for (int i = begin; i < end; i++)
        for (int h = head; h < head_end; h++) {
            exact_row(e, h, i, o);
            for (int d = 0; d < e->s->head_dim; d++) loss += o[d] * element(dout, i, h * e->s->head_dim + d);
        }
    return loss;
}

/* ---- the tests ---- */

/* Allowed error of a result of size 1: about twice the spacing of the format's numbers at 1. */
static double coarse(ott_dtype d) {
    return d == OTT_F32 ? 4e-6 : d == OTT_BF16 ? 8e-3 : 1e-3;
}

static void test_forward_is_near_exact(void **state) {
    (void)state;
    for (int n = 0; n < SETTINGS; n++) {
        const setting *s = &settings[n];
        problem p = make_problem(s, 1.0f);
        exact x = {s, (double)p.scale, widened(&p.q), widened(&p.k), widened(&p.v)};
        run(&p, all.list[0]);
        double o[256];
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->tokens; i++) {
                double lse = exact_row(&x, h, i, o);
                if (!(fabs(element(&p.lse, h, i) - lse) < 1e-5))
                    fail_msg("setting %d, lse of query %d of head %d", n, i, h);
                for (int d = 0; d < s->head_dim; d++)
                    if (!(fabs(element(&p.o, i, h * s->head_dim + d) - o[d]) < coarse(s->act)))
                        fail_msg("setting %d, o of query %d of head %d, element %d", n, i, h, d);
            }
        free(x.q), free(x.k), free(x.v);
        free_problem(&p);
    }
}

/* Returns the central difference of the loss for element (token, column) of q, k or v. of_query: the element
   is in q. Computes the loss only of query heads that use the element. */
static double difference(exact *x, double *data, const tensor *dout, int token, int column, bool of_query) {
    const setting *s = x->s;
    int heads = of_query ? s->heads : s->kv_heads, shared = of_query ? 1 : s->heads / s->kv_heads;
    int head = column / s->head_dim * shared, end = of_query ? token + 1 : s->tokens;
    double *at = data + (int64_t)token * heads * s->head_dim + column, kept = *at, step = 1e-4, loss[2];
    for (int use = 0; use < 2; use++) {
        *at = kept + (use ? step : -step);
        loss[use] = exact_loss(x, dout, token, end, head, head + shared);
    }
    *at = kept;
    return (loss[1] - loss[0]) / (2.0 * step);
}

static void compare_gradient(exact *x, double *data, const tensor *dout, const tensor *gradient,
                             bool of_query, int n) {
    for (uint64_t draw = 0; draw < 12; draw++) {
        int token = (int)(rng_u32(7, 2, draw) % (uint32_t)gradient->rows);
        int column = (int)(rng_u32(7, 3, draw) % (uint32_t)gradient->columns);
        double wanted = difference(x, data, dout, token, column, of_query),
               got = element(gradient, token, column);
        if (!(fabs(got - wanted) < 4.0 * coarse(x->s->act) * (1.0 + fabs(wanted))))
            fail_msg("setting %d, %s, token %d, column %d: %g, expected %g", n, of_query ? "dq" : "dk or dv",
                     token, column, got, wanted);
    }
}

static void test_backward_is_near_finite_differences(void **state) {
    (void)state;
    for (int n = 0; n < SETTINGS; n++) {
        problem p = make_problem(&settings[n], 1.0f);
        exact x = {&settings[n], (double)p.scale, widened(&p.q), widened(&p.k), widened(&p.v)};
        run(&p, all.list[0]);
        compare_gradient(&x, x.q, &p.dout, &p.dq, true, n);
        compare_gradient(&x, x.k, &p.dout, &p.dk, false, n);
        compare_gradient(&x, x.v, &p.dout, &p.dv, false, n);
        free(x.q), free(x.k), free(x.v);
        free_problem(&p);
    }
}

static void expect_equal(const tensor *a, const tensor *b, const char *what, const char *where, int n) {
    if (memcmp(a->data, b->data, (size_t)tensor_bytes(*a)) != 0)
        fail_msg("setting %d: %s on %s differs from scalar code on one thread", n, what, where);
}

static void expect_same_bits(int n, float gradient) {
    problem first = make_problem(&settings[n], gradient);
    run(&first, all.list[0]);
    for (int i = 1; i < all.count; i++) {
        problem p = make_problem(&settings[n], gradient);
        run(&p, all.list[i]);
        expect_equal(&p.o, &first.o, "o", all.list[i]->name, n);
        expect_equal(&p.lse, &first.lse, "lse", all.list[i]->name, n);
        expect_equal(&p.dq, &first.dq, "dq", all.list[i]->name, n);
        expect_equal(&p.dk, &first.dk, "dk", all.list[i]->name, n);
        expect_equal(&p.dv, &first.dv, "dv", all.list[i]->name, n);
        free_problem(&p);
    }
    free_problem(&first);
}

/* Tests also dout of about 2^-122, which makes products subnormal. bf16 dot-product instructions would
   replace such products by 0. */
static void test_same_bits_everywhere(void **state) {
    (void)state;
    for (int n = 0; n < SETTINGS; n++) {
        expect_same_bits(n, 1.0f);
        if (settings[n].act == OTT_BF16) expect_same_bits(n, 0x1p-122f);
    }
}

/* Runs tokens [from, from + count) of a document. Keys and values of earlier tokens are cached. */
static void run_part(problem *p, device *d, int from, int count) {
    exec cx = {.device = d};
    int32_t start[2] = {0, count};
    tensor q = tensor_rows(p->q, from, count), o = tensor_rows(p->o, from, count);
    tensor k = tensor_rows(p->k, 0, from + count), v = tensor_rows(p->v, 0, from + count);
    tensor lse = tensor_columns(p->lse, from, count), document = tensor_vector(start, OTT_I32, 2);
    succeed(op_attention_forward(&cx, &(attention_forward_args){.q = &q,
                                                                .k = &k,
                                                                .v = &v,
                                                                .cu_seqlens = &document,
                                                                .o = &o,
                                                                .lse = &lse,
                                                                .head_dim = p->s->head_dim,
                                                                .window = p->s->window,
                                                                .past = from,
                                                                .softmax_scale = p->scale}));
}

/* A document that runs token by token, or in parts of any length, gives the same bits as in one pass. */
static void test_parts_give_the_bits_of_the_full_pass(void **state) {
    (void)state;
    static const int parts[] = {1, 3, 70};
    for (int n = 0; n < SETTINGS; n++) {
        setting s = settings[n];
        s.documents = 1;
        problem full = make_problem(&s, 1.0f);
        run(&full, all.list[0]);
        for (int i = 0; i < all.count; i++)
            for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
                problem p = make_problem(&s, 1.0f);
                for (int from = 0; from < s.tokens; from += parts[part])
                    run_part(&p, all.list[i], from,
                             s.tokens - from < parts[part] ? s.tokens - from : parts[part]);
                expect_equal(&p.o, &full.o, "o of parts", all.list[i]->name, n);
                expect_equal(&p.lse, &full.lse, "lse of parts", all.list[i]->name, n);
                free_problem(&p);
            }
        free_problem(&full);
    }
}

/* A non-finite key changes exactly the outputs of the queries that see it. */
static void test_nan_stays_with_those_who_see_it(void **state) {
    (void)state;
    const setting s = {200, 2, 1, 32, 70, 2, {0, 160}, OTT_F32};
    for (int n = 0; n < all.count; n++) {
        problem p = make_problem(&s, 1.0f);
        ((float *)p.k.data)[20 * p.k.ld + 5] = NAN;
        ((float *)p.v.data)[165 * p.v.ld + 5] = INFINITY;
        run(&p, all.list[n]);
        for (int i = 0; i < s.tokens; i++) {
            bool sees = (i >= 20 && i < 90) || i >= 165;
            for (int c = 0; c < 64; c++)
                if (i < 160 || c % 32 == 5) assert_int_equal(isfinite(element(&p.o, i, c)), !sees);
            assert_int_equal(isnan(element(&p.lse, 0, i)), sees && i < 160);
        }
        free_problem(&p);
    }
}

static void test_refusals(void **state) {
    (void)state;
    setting s = {10, 1, 1, 16, 0, 2, {0, 11}, OTT_F32};
    exec cx = {.device = all.list[0]};
    for (int n = 0; n < 2; n++) {
        problem p = make_problem(&s, 1.0f);
        attention_forward_args a = {.q = &p.q,
                                    .k = &p.k,
                                    .v = &p.v,
                                    .cu_seqlens = &p.start,
                                    .o = &p.o,
                                    .lse = &p.lse,
                                    .head_dim = s.head_dim,
                                    .softmax_scale = 1.0f};
        ott_status status = op_attention_forward(&cx, &a);
        if (n == 0) {
            assert_int_equal(status, OTT_ERR_INTERNAL);
            assert_non_null(strstr(status_text(), "cu_seqlens[1] is 11; it must be 0 to 10"));
        } else {
            assert_int_equal(status, OTT_ERR_UNSUPPORTED);
            assert_non_null(strstr(status_text(), "head_dim 100000 needs"));
        }
        free_problem(&p);
        s = (setting){1, 1, 1, 100000, 0, 1, {0}, OTT_F32};
    }
}

/* Past keys and values must belong to a single document. Other calls are refused. */
static void test_refusals_of_past(void **state) {
    (void)state;
    const setting s = {10, 1, 1, 16, 0, 2, {0, 4}, OTT_F32};
    exec cx = {.device = all.list[0]};
    problem p = make_problem(&s, 1.0f);
    tensor q = tensor_rows(p.q, 0, 5), o = tensor_rows(p.o, 0, 5), lse = tensor_columns(p.lse, 0, 5);
    attention_forward_args a = {.q = &q,
                                .k = &p.k,
                                .v = &p.v,
                                .cu_seqlens = &p.start,
                                .o = &o,
                                .lse = &lse,
                                .head_dim = s.head_dim,
                                .past = 4,
                                .softmax_scale = 1.0f};
    assert_int_equal(op_attention_forward(&cx, &a), OTT_ERR_SHAPE);
    assert_non_null(strstr(status_text(), "k has 10 rows, not the sum of past (4) and the rows of q (5)"));
    a.past = 5;
    assert_int_equal(op_attention_forward(&cx, &a), OTT_ERR_INTERNAL);
    assert_non_null(strstr(status_text(), "with past 5 there must be one document"));
    free_problem(&p);
}

static int open_devices(void **state) {
    (void)state;
    all = devices_open();
    return 0;
}
static int close_devices(void **state) {
    (void)state;
    devices_close(&all);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_is_near_exact),
        cmocka_unit_test(test_backward_is_near_finite_differences),
        cmocka_unit_test(test_same_bits_everywhere),
        cmocka_unit_test(test_parts_give_the_bits_of_the_full_pass),
        cmocka_unit_test(test_nan_stays_with_those_who_see_it),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refusals_of_past),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
