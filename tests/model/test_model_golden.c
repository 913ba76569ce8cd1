/*
 * Compares a tiny Llama in fp32 with Hugging Face transformers (tests/golden/README.md): losses and the
 * gradient of every parameter, with a separate head, a tied head, and Llama 3's rope.
 *
 * Ottava and transformers compute in fp32, in different orders. A sum of K terms has an error of about
 * sqrt(K) half-ulps (6e-8), and two layers chain about ten such errors: about 1e-6 of a tensor's largest
 * element. The bounds are a few times the measured differences. Ottava's own bits must be equal on every
 * instruction set and any number of threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/cpu.h"
#include "model/tiny_model.h"
#include "nn/golden.h"

#define LOSS_BOUND    1e-6 /* difference relative to the loss */
#define LARGEST_BOUND 5e-6 /* largest difference in a gradient tensor, relative to its largest element */
#define NORM_BOUND    5e-6 /* norm of the difference, relative to the gradient's norm */
#define SEQUENCES     2
#define LENGTH        24

typedef struct variant {
    const char *name;
    bool tied;
    rope_options rope;
    const char *family;
    int64_t window;
} variant;

#define PLAIN                                                                                                \
    { .kind = ROPE_PLAIN, .theta = 1e4 }
#define LLAMA3                                                                                               \
    {                                                                                                        \
        .kind = ROPE_LLAMA3, .theta = 1e4, .factor = 8, .low_frequency_factor = 1,                           \
        .high_frequency_factor = 4, .original_max_position = 128                                             \
    }

static const variant variants[] = {
    {"untied", false, PLAIN, "llama", 0},  {"tied", true, PLAIN, "llama", 0},
    {"llama3", false, LLAMA3, "llama", 0}, {"mistral", false, PLAIN, "mistral", 7},
    {"qwen2", false, PLAIN, "qwen2", 0},   {"qwen3", false, PLAIN, "qwen3", 0}};
#define VARIANTS (sizeof variants / sizeof *variants)

/* ---- setting up ---- */

static void load_weights(tiny *t, const golden *g) {
    for (int i = 0; i < t->m->parameter_count; i++) {
        const parameter *p = &t->m->parameters[i];
        golden_tensor w = golden_read(g, "weight/%s", p->name);
        assert_int_equal(w.t.rows, p->rows);
        assert_int_equal(w.t.columns, p->columns);
        harness_put(&t->h, &p->value, w.values);
        golden_free(g, &w);
    }
    model_weights_changed(t->m);
}

static void load_batch(tiny *t, const golden *g, int64_t first, int64_t count) {
    golden_tensor token = golden_read(g, "tokens"), target = golden_read(g, "targets");
    assert_int_equal(token.count, SEQUENCES * LENGTH);
    tiny_batch(t, count, LENGTH, (const int32_t *)token.t.data + first * LENGTH,
               (const int32_t *)target.t.data + first * LENGTH);
    golden_free(g, &token);
    golden_free(g, &target);
}

static void open_variant(tiny *t, golden *g, const variant *v, int threads, const char *isa) {
    model_options o = tiny_options();
    o.tied = v->tied;
    o.rope = v->rope;
    o.window = v->window;
    o.family = family_find(v->family);
    o.qkv_bias = o.family->qkv_bias;
    o.qk_norm = o.family->qk_norm;
    tiny_open(t, &o, threads, isa);
    golden_open(g, t->h.account, "model_fp32");
    load_weights(t, g);
    tiny_convert(t, recipe_high_precision(OTT_F32), NULL, NULL);
    load_batch(t, g, 0, SEQUENCES);
}

static void close_variant(tiny *t, golden *g) {
    golden_close(g);
    tiny_close(t);
}

/* ---- comparing ---- */

typedef struct distance {
    double largest, norm;
} distance;

static distance distance_of(const float *ours, const float *theirs, int64_t count, double times) {
    double largest = 0, largest_difference = 0, squares = 0, difference_squares = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = times * (double)theirs[i], d = fabs((double)ours[i] - x);
        assert_true(isfinite(d));
        largest = fmax(largest, fabs(x));
        largest_difference = fmax(largest_difference, d);
        squares += x * x;
        difference_squares += d * d;
    }
    assert_true(largest > 0);
    return (distance){largest_difference / largest, sqrt(difference_squares / squares)};
}

static void raise_to(distance *worst, distance d) {
    worst->largest = fmax(worst->largest, d.largest);
    worst->norm = fmax(worst->norm, d.norm);
}

/* Returns the largest distance of a parameter's gradient from the golden gradient. times: the number of
   passes that have been added up in the gradients. */
static distance compare_gradients(tiny *t, const golden *g, const char *name, double times) {
    distance worst = {0};
    for (int i = 0; i < t->m->parameter_count; i++) {
        const parameter *p = &t->m->parameters[i];
        golden_tensor theirs = golden_read(g, "%s/grad/%s", name, p->name);
        float *ours = malloc((size_t)theirs.count * sizeof *ours);
        assert_int_equal(theirs.count, parameter_count(p));
        harness_get(&t->h, &p->grad, ours);
        raise_to(&worst, distance_of(ours, theirs.values, theirs.count, times));
        free(ours);
        golden_free(g, &theirs);
    }
    return worst;
}

static distance compare_losses(tiny *t, const golden *g, const char *name) {
    golden_tensor theirs = golden_read(g, "%s/losses", name);
    float *ours = tiny_losses(t);
    distance d = distance_of(ours, theirs.values, theirs.count, 1.0);
    free(ours);
    golden_free(g, &theirs);
    return d;
}

static void check_loss(tiny *t, const golden *g, const char *name) {
    golden_tensor theirs = golden_read(g, "%s/loss", name);
    double off = fabs(tiny_loss(t) / (double)theirs.values[0] - 1);
    distance tokens = compare_losses(t, g, name);
    print_message("  %-7s loss %.1e, of tokens %.1e\n", name, off, tokens.largest);
    assert_true(off <= LOSS_BOUND);
    assert_true(tokens.largest <= LOSS_BOUND);
    golden_free(g, &theirs);
}

static void check_gradients(tiny *t, const golden *g, const char *name, double times) {
    distance d = compare_gradients(t, g, name, times);
    print_message("  %-7s gradients (times %g): largest %.1e, norm %.1e\n", name, times, d.largest, d.norm);
    assert_true(d.largest <= LARGEST_BOUND);
    assert_true(d.norm <= NORM_BOUND);
}

/* ---- tests ---- */

static void equals_transformers(void **state) {
    const variant *v = *state;
    tiny t;
    golden g;
    open_variant(&t, &g, v, 1, NULL);
    tiny_run(&t);
    check_loss(&t, &g, v->name);
    check_gradients(&t, &g, v->name, 1);
    tiny_again(&t); /* the second micro-batch's gradients are added */
    check_gradients(&t, &g, v->name, 2);
    close_variant(&t, &g);
}

/* As in transformers, the padding token's row gets no gradient from the embedding, but a tied head still
   trains this row. All other gradients are the same as without a padding token. */
static void the_padding_row_is_that_of_transformers(void **state) {
    (void)state;
    enum { PADDING = 41 };
    for (int tied = 0; tied < 2; tied++) {
        tiny t;
        golden g, padding;
        open_variant(&t, &g, &variants[tied], 1, NULL);
        t.m->embedding.has_padding = true;
        t.m->embedding.padding = PADDING;
        tiny_run(&t);
        const parameter *p = t.m->embedding.weight;
        golden_open(&padding, t.h.account, "model_padding");
        golden_tensor theirs =
            golden_read(&padding, "%spadding/grad/model.embed_tokens.weight", tied ? "tied_" : "");
        float *ours = malloc((size_t)theirs.count * sizeof *ours);
        harness_get(&t.h, &p->grad, ours);
        assert_true(distance_of(ours, theirs.values, theirs.count, 1).largest <= LARGEST_BOUND);
        for (int64_t i = 0; i < p->columns; i++) assert_int_equal(ours[PADDING * p->columns + i] == 0, !tied);
        free(ours);
        golden_free(&padding, &theirs);
        golden_close(&padding);
        check_loss(&t, &g, variants[tied].name);
        close_variant(&t, &g);
    }
}

/* Compares the z-loss with PyTorch's, for a head in chunks. The reported loss does not include it. */
static void the_z_loss_is_that_of_pytorch(void **state) {
    (void)state;
    static const char *const names[] = {"lm_head.weight", "model.embed_tokens.weight"};
    tiny t;
    golden g, z;
    float sum;
    open_variant(&t, &g, &variants[0], 2, NULL);
    golden_open(&z, t.h.account, "model_z_loss");
    t.m->loss.chunk = 7;
    t.m->loss.z_weight = 0.05f;
    t.m->loss.z = harness_tensor(&t.h, OTT_F32, 1, 1);
    tiny_run(&t);
    check_loss(&t, &g, "untied");
    golden_tensor mean = golden_read(&z, "z"), target = golden_read(&g, "targets");
    int labels = 0;
    for (int64_t i = 0; i < target.count; i++) labels += ((const int32_t *)target.t.data)[i] >= 0;
    harness_get(&t.h, &t.m->loss.z, &sum);
    assert_true(fabs((double)sum / labels / (double)mean.values[0] - 1) <= LOSS_BOUND);
    for (int i = 0; i < 2; i++) {
        const parameter *p = tiny_parameter(&t, names[i]);
        golden_tensor theirs = golden_read(&z, "grad/%s", names[i]),
                      without = golden_read(&g, "untied/grad/%s", names[i]);
        float *ours = malloc((size_t)theirs.count * sizeof *ours);
        harness_get(&t.h, &p->grad, ours);
        assert_true(distance_of(ours, theirs.values, theirs.count, 1).largest <= LARGEST_BOUND);
        assert_true(distance_of(ours, without.values, theirs.count, 1).largest > 100 * LARGEST_BOUND);
        free(ours);
        golden_free(&z, &theirs);
        golden_free(&g, &without);
    }
    golden_free(&z, &mean);
    golden_free(&g, &target);
    golden_close(&z);
    close_variant(&t, &g);
}

/* A head that runs in chunks of tokens gives the same results as a head that gets all tokens together. */
static void equals_transformers_in_chunks(void **state) {
    (void)state;
    tiny t;
    golden g;
    open_variant(&t, &g, &variants[0], 2, NULL);
    t.m->loss.chunk = 7;
    tiny_run(&t);
    check_loss(&t, &g, "untied");
    check_gradients(&t, &g, "untied", 1);
    close_variant(&t, &g);
}

static void evaluation_gives_the_losses_of_training(void **state) {
    (void)state;
    tiny t;
    golden g;
    open_variant(&t, &g, &variants[0], 1, NULL);
    tiny_run(&t);
    float *trained = tiny_losses(&t);
    int64_t training_bytes = plan_bytes(t.h.plan);
    harness_zero(&t.h, &t.losses);
    t.evaluate = true;
    tiny_run(&t);
    float *evaluated = tiny_losses(&t);
    assert_memory_equal(trained, evaluated, (size_t)t.losses.columns * sizeof *trained);
    assert_true(plan_bytes(t.h.plan) < training_bytes);
    float *grads = tiny_gradients(&t);
    for (int64_t i = 0; i < tiny_gradient_count(&t); i++) assert_true(grads[i] == 0);
    free(grads);
    free(trained);
    free(evaluated);
    close_variant(&t, &g);
}

typedef struct generation {
    tiny *t;
    tensor logits;
} generation;

static ott_status generate(exec *cx, void *user) {
    generation *s = user;
    return model_logits(cx, s->t->m, s->t->slot, &s->t->batch, &s->logits);
}

/* Computes the logits of a batch that has only the second sequence. They give the loss of its last token. */
static void last_logits_give_the_last_loss(void **state) {
    (void)state;
    tiny t;
    golden g;
    open_variant(&t, &g, &variants[0], 1, NULL);
    load_batch(&t, &g, 1, 1);
    generation s = {&t, harness_tensor(&t.h, OTT_F32, 1, t.m->options.vocab)};
    harness_record(&t.h, generate, &s);
    harness_replay(&t.h, generate, &s);
    float logits[64];
    double sum = 0;
    harness_get(&t.h, &s.logits, logits);
    for (int i = 0; i < 64; i++) sum += exp((double)logits[i]);
    golden_tensor losses = golden_read(&g, "untied/losses"), target = golden_read(&g, "targets");
    int last = SEQUENCES * LENGTH - 1, wanted = ((const int32_t *)target.t.data)[last];
    assert_in_range(wanted, 0, 63);
    double loss = log(sum) - (double)logits[wanted];
    assert_true(fabs(loss / (double)losses.values[last] - 1) <= LOSS_BOUND);
    golden_free(&g, &losses);
    golden_free(&g, &target);
    close_variant(&t, &g);
}

/* Runs a variant on `threads` threads with instruction set `isa`. Returns its losses, then its gradients. */
static float *bits_of(const variant *v, int threads, const char *isa, int64_t *count) {
    tiny t;
    golden g;
    open_variant(&t, &g, v, threads, isa);
    tiny_run(&t);
    float *losses = tiny_losses(&t), *grads = tiny_gradients(&t);
    int64_t tokens = t.losses.columns, gradients = tiny_gradient_count(&t);
    float *all = malloc((size_t)(tokens + gradients) * sizeof *all);
    memcpy(all, losses, (size_t)tokens * sizeof *all);
    memcpy(all + tokens, grads, (size_t)gradients * sizeof *all);
    free(losses);
    free(grads);
    close_variant(&t, &g);
    *count = tokens + gradients;
    return all;
}

static void same_bits_on_every_isa_and_thread_count(void **state) {
    (void)state;
    const char *isas[CPU_ISAS_MAX];
    int isa_count = cpu_isas(isas);
    for (size_t v = 0; v < VARIANTS; v++) {
        int64_t count, other_count;
        float *first = bits_of(&variants[v], 1, isas[0], &count);
        for (int i = 0; i < isa_count; i++)
            for (int threads = 1; threads <= 2; threads++) {
                float *other = bits_of(&variants[v], threads, isas[i], &other_count);
                assert_int_equal(count, other_count);
                if (memcmp(first, other, (size_t)count * sizeof *first) != 0)
                    fail_msg("%s: %s with %d threads differs from %s", variants[v].name, isas[i], threads,
                             isas[0]);
                free(other);
            }
        free(first);
    }
}

/* Negative control: the error bounds must detect a change of one weight by 1e-4, and another kind of RoPE. */
static void another_model_is_found(void **state) {
    (void)state;
    tiny t;
    golden g;
    open_variant(&t, &g, &variants[0], 1, NULL);
    tiny_run(&t);
    assert_true(compare_gradients(&t, &g, "llama3", 1).largest > LARGEST_BOUND);
    parameter *p = tiny_parameter(&t, "model.layers.1.self_attn.k_proj.weight");
    float *values = malloc((size_t)parameter_count(p) * sizeof *values);
    harness_get(&t.h, &p->value, values);
    values[5] += 1e-4f;
    harness_put(&t.h, &p->value, values);
    free(values);
    tiny_run(&t);
    assert_true(compare_gradients(&t, &g, "untied", 1).largest > LARGEST_BOUND);
    close_variant(&t, &g);
}

int main(void) {
    enum { OTHERS = 7 };
    struct CMUnitTest tests[VARIANTS + OTHERS] = {
        cmocka_unit_test(the_padding_row_is_that_of_transformers),
        cmocka_unit_test(the_z_loss_is_that_of_pytorch),
        cmocka_unit_test(equals_transformers_in_chunks),
        cmocka_unit_test(evaluation_gives_the_losses_of_training),
        cmocka_unit_test(last_logits_give_the_last_loss),
        cmocka_unit_test(same_bits_on_every_isa_and_thread_count),
        cmocka_unit_test(another_model_is_found),
    };
    for (size_t i = 0; i < VARIANTS; i++)
        tests[OTHERS + i] = (struct CMUnitTest){.name = variants[i].name,
                                                .test_func = equals_transformers,
                                                .initial_state = (void *)(uintptr_t)&variants[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
