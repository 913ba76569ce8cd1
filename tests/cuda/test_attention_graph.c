/*
 * tests/cuda/test_attention_graph: the graphs of attention_graph.h compute attention and its gradients (dense
 * and packed, with and without grouped heads); and what compares them (attention_check.h, with which a GPU is
 * checked) sees graphs that do not.
 */
#include "attention_check.h"
#include "attention_interpreter.h"
#include "attention_reference.h"
#include "base/rng.h"
#include <math.h>
#include <stdio.h>

static int failures;

static void expect(bool good, const char *what) {
    if (good) return;
    printf("FAIL %s\n", what);
    failures++;
}

/* ---- the reference's gradients are its derivatives ---- */

enum { DOCUMENTS = 3, ROWS = 9, HEADS = 4, KV_HEADS = 2, DIM = 3, Q_SIZE = ROWS * HEADS * DIM };
enum { K_SIZE = ROWS * KV_HEADS * DIM };

typedef struct small {
    float q[Q_SIZE], k[K_SIZE], v[K_SIZE], grad_o[Q_SIZE];
    double o[Q_SIZE], lse[ROWS * HEADS], grad_q[Q_SIZE], grad_k[K_SIZE], grad_v[K_SIZE];
} small;

static double weighted_output(const attention_reference *r) {
    double sum = 0;
    attention_reference_forward(r);
    for (int i = 0; i < Q_SIZE; i++) sum += (double)r->grad_o[i] * r->o[i];
    return sum;
}

static void expect_derivative(const attention_reference *r, float *inputs, const double *gradient, int count,
                              const char *what) {
    const float step = 1.0f / 1024;
    for (int i = 0; i < count; i++) {
        float before = inputs[i];
        inputs[i] = before + step;
        double up = weighted_output(r), from = (double)inputs[i];
        inputs[i] = before - step;
        double down = weighted_output(r), width = from - (double)inputs[i];
        inputs[i] = before;
        expect(fabs((up - down) / width - gradient[i]) < 1e-5, what);
    }
}

static void test_reference(bool causal) {
    static small s;
    static const int64_t starts[DOCUMENTS + 1] = {0, 4, 4, ROWS};
    attention_reference r = {DOCUMENTS, HEADS, KV_HEADS, DIM, starts, causal,   0.5,      s.q,
                             s.k,       s.v,   s.grad_o, s.o, s.lse,  s.grad_q, s.grad_k, s.grad_v};
    for (int i = 0; i < Q_SIZE; i++) s.q[i] = rng_normal(1, 1, (uint64_t)i);
    for (int i = 0; i < K_SIZE; i++) s.k[i] = rng_normal(1, 2, (uint64_t)i);
    for (int i = 0; i < K_SIZE; i++) s.v[i] = rng_normal(1, 3, (uint64_t)i);
    for (int i = 0; i < Q_SIZE; i++) s.grad_o[i] = rng_normal(1, 4, (uint64_t)i);
    attention_reference_forward(&r);
    attention_reference_backward(&r);
    expect_derivative(&r, s.q, s.grad_q, Q_SIZE, "the reference's grad_q");
    expect_derivative(&r, s.k, s.grad_k, K_SIZE, "the reference's grad_k");
    expect_derivative(&r, s.v, s.grad_v, K_SIZE, "the reference's grad_v");
}

/* ---- graphs ---- */

static const int32_t *documents(int64_t length) {
    static int32_t lengths[6];
    int32_t s = (int32_t)length;
    int32_t mixed[6] = {s / 3, 0, s, 1, s - 5, 0};
    for (int i = 0; i < 6; i++) lengths[i] = mixed[i];
    return lengths;
}

static attention_checked check(const attention_config *config, attention_runner *run) {
    attention_checked c;
    attention_case what = {*config, config->packed ? documents(config->length) : NULL, true};
    if (!attention_check(&what, run, NULL, &c)) {
        printf("FAIL %s\n", c.text);
        failures++;
    }
    return c;
}

static attention_config make_config(int64_t length, int64_t head_dim, int64_t heads, int64_t kv_heads,
                                    bool packed) {
    return (attention_config){.documents = packed ? 6 : 2,
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .length = length,
                              .head_dim = head_dim,
                              .causal = true,
                              .packed = packed};
}

static void test_graph(attention_config config) {
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        config.deterministic = deterministic;
        attention_checked c = check(&config, attention_interpret);
        bool good = attention_checked_good(&c, 1e-2) && c.scratch_overrun == 0 && c.same_bits;
        printf("%s %s%s%s length %lld, heads %lld/%lld x %lld:", good ? "ok  " : "FAIL",
               config.packed ? "packed" : "dense", config.causal ? " causal" : "",
               deterministic ? " deterministic" : "", (long long)config.length, (long long)config.heads,
               (long long)config.kv_heads, (long long)config.head_dim);
        for (int i = 0; i < ATTENTION_OUTPUTS; i++)
            printf(" %s %.2g", attention_output_names[i], c.errors[i]);
        printf("\n");
        if (!good) failures++;
    }
}

/* ---- wrong graphs are seen ---- */

/* The scratch of grouped heads at the offsets of the key heads, unmultiplied. */
static bool run_without_factor(void *context, const graph *g, void *const images[ATTENTION_NAMED],
                               const size_t bytes[ATTENTION_NAMED], char error[ATTENTION_TEXT]) {
    static graph wrong;
    wrong = *g;
    wrong.tensors[ATTENTION_GRAD_K_HEADS].offsets_factor = 1;
    return attention_interpret(context, &wrong, images, bytes, error);
}

/* Products over whole rows, the documents' lengths left out. */
static bool run_without_lengths(void *context, const graph *g, void *const images[ATTENTION_NAMED],
                                const size_t bytes[ATTENTION_NAMED], char error[ATTENTION_TEXT]) {
    static graph wrong;
    wrong = *g;
    for (int i = 0; i < wrong.op_count; i++)
        if (wrong.ops[i].mode == GRAPH_MATMUL) wrong.ops[i].m = wrong.ops[i].n = wrong.ops[i].k = 0;
    return attention_interpret(context, &wrong, images, bytes, error);
}

static bool run_without_causal_mask(void *context, const graph *g, void *const images[ATTENTION_NAMED],
                                    const size_t bytes[ATTENTION_NAMED], char error[ATTENTION_TEXT]) {
    attention_config config = g->config;
    static graph wrong;
    config.causal = false;
    if (g->ops[0].mode == GRAPH_MATMUL)
        attention_graph_forward(&wrong, &config);
    else
        attention_graph_backward(&wrong, &config);
    return attention_interpret(context, &wrong, images, bytes, error);
}

/* A row too far; and another value at every run. */
static bool run_beyond(void *context, const graph *g, void *const images[ATTENTION_NAMED],
                       const size_t bytes[ATTENTION_NAMED], char error[ATTENTION_TEXT]) {
    static uint16_t value;
    bool good = attention_interpret(context, g, images, bytes, error);
    ((uint16_t *)images[ATTENTION_GRAD_V])[0] ^= value++;
    ((unsigned char *)images[ATTENTION_GRAD_Q])[bytes[ATTENTION_GRAD_Q] / 2] = 1;
    return good;
}

static void test_wrong_graphs(void) {
    attention_config config = make_config(40, 16, 4, 2, true);
    attention_checked c = check(&config, run_without_factor);
    expect(!attention_checked_good(&c, 1e-2), "offsets without their factor are not seen");
    expect(c.errors[2] < 1e-2, "offsets of grad_k matter to grad_q");
    c = check(&config, run_without_lengths);
    expect(!attention_checked_good(&c, 1e-2), "products without the documents' lengths are not seen");
    c = check(&config, run_without_causal_mask);
    expect(!attention_checked_good(&c, 1e-2), "a missing causal mask is not seen");
    c = check(&config, run_beyond);
    expect(c.overrun > 0, "a store beyond the last row is not seen");
    expect(!c.same_bits, "two different gradients are not seen");
}

int main(void) {
    test_reference(true);
    test_reference(false);
    for (int packed = 0; packed < 2; packed++) {
        test_graph(make_config(64, 64, 8, 2, packed));
        test_graph(make_config(100, 64, 2, 2, packed));
        test_graph(make_config(128, 128, 4, 1, packed));
        test_graph(make_config(333, 64, 4, 1, packed));
        test_graph(make_config(7, 8, 4, 2, packed));
        attention_config whole = make_config(50, 16, 4, 2, packed);
        whole.causal = false;
        test_graph(whole);
    }
    test_wrong_graphs();
    if (failures) printf("%d failed\n", failures);
    return failures > 0;
}
