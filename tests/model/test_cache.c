/*
 * Inference with a KV cache. Tokens in chunks or one by one give the logits of a forward pass over the full
 * sequence. The logits are bit-identical if each row has a separate scale or if scales are constant. The
 * logits are close if a chunk has one scale.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/cache.h"
#include "model/pack.h"
#include "model/tiny_model.h"

#define VOCAB    64 /* vocabulary size of the tiny model */
#define CAPACITY 200
#define LENGTH   150 /* more than two tiles of keys in attention, and more than CACHE_CHUNK tokens */

static int32_t token_at(int64_t i) {
    return (int32_t)((i * i * 7 + i * 3) % VOCAB);
}

/* ---- forward over the full sequence ---- */

typedef struct full_pass {
    tiny *t;
    tensor logits;
} full_pass;

static ott_status logits_pass(exec *cx, void *user) {
    full_pass *w = user;
    return model_logits(cx, w->t->m, w->t->slot, &w->t->batch, &w->logits);
}

static void run_full(tiny *t, int64_t length, float logits[VOCAB]) {
    int32_t tokens[LENGTH], target[LENGTH] = {0};
    for (int64_t i = 0; i < length; i++) tokens[i] = token_at(i);
    tiny_batch(t, 1, length, tokens, target);
    full_pass w = {.t = t, .logits = harness_tensor(&t->h, t->m->activation, 1, VOCAB)};
    harness_record(&t->h, logits_pass, &w);
    harness_replay(&t->h, logits_pass, &w);
    harness_get(&t->h, &w.logits, logits);
}

/* ---- models ---- */

static void open_model_under(tiny *t, const model_options *o, const recipe *r, int threads) {
    tiny_open(t, o, threads, NULL);
    tiny_convert(t, r, NULL, NULL);
    tiny_randomize(t);
    /* tiny_randomize sets vectors to values around 1; biases get values of both signs */
    for (int i = 0; i < t->m->parameter_count; i++) {
        const parameter *p = &t->m->parameters[i];
        if (!strstr(p->name, ".bias")) continue;
        float values[32];
        for (int64_t j = 0; j < p->columns; j++) values[j] = 0.1f * (float)(j % 7) - 0.3f;
        harness_put(&t->h, &p->value, values);
    }
    model_weights_changed(t->m);
}

static void open_model(tiny *t, const model_options *o, const char *name, int threads) {
    open_model_under(t, o, recipe_find(name), threads);
}

/* Model `kind`: 0 plain, 1 with head norms, 2 with biases, 3 and 4 with a sliding window. */
static model_options options_of(int kind) {
    model_options o = tiny_options();
    o.qk_norm = kind == 1;
    o.qkv_bias = kind == 2;
    o.window = kind == 3 ? 70 : kind == 4 ? 5 : 0;
    return o;
}
enum { KINDS = 5 };

/* Runs the sequence in parts of the lengths `parts`, which end with 0. The last length repeats until the
   sequence ends. Reads the logits after each part. */
static void run_parts(model_cache *c, const int64_t *parts, int64_t length, float logits[VOCAB]) {
    int32_t tokens[LENGTH];
    for (int64_t i = 0; i < length; i++) tokens[i] = token_at(i);
    model_cache_truncate(c, 0);
    while (model_cache_length(c) < length) {
        int64_t done = model_cache_length(c), count = *parts < length - done ? *parts : length - done;
        HARNESS_OK(model_cache_extend(c, tokens + done, count, logits));
        assert_int_equal(model_cache_length(c), done + count);
        if (parts[1]) parts++;
    }
}

static const int64_t splits[][4] = {{1}, {LENGTH}, {64, 1}, {100, 7, 1}, {3, 130}};
enum { SPLITS = sizeof splits / sizeof *splits };

static double distance(const float *a, const float *b) {
    double difference = 0, size = 0;
    for (int i = 0; i < VOCAB; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / size);
}

/* ---- the tests ---- */

static void compare_bits(const char *name, int kind, int threads) {
    static const int64_t lengths[] = {1, 63, 65, LENGTH};
    model_options o = options_of(kind);
    tiny t;
    model_cache *c;
    float expected[VOCAB], got[VOCAB];
    open_model(&t, &o, name, threads);
    HARNESS_OK(model_cache_open(t.m, NULL, CAPACITY, &c));
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        run_full(&t, lengths[n], expected);
        for (int i = 0; i < SPLITS; i++) {
            run_parts(c, splits[i], lengths[n], got);
            if (memcmp(got, expected, sizeof got) != 0)
                fail_msg("%s, model %d, %lld tokens, split %d: logits differ by %g", name, kind,
                         (long long)lengths[n], i, distance(got, expected));
        }
    }
    model_cache_close(c);
    tiny_close(&t);
}

static void parts_give_the_bits_of_the_full_pass(void **state) {
    static const char *const recipes[] = {"fp32",  "bf16",  "fp16",   "rowwise", "rowwise_with_gw_hp",
                                          "block", "mxfp8", "delayed"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) compare_bits(recipes[i], 0, 1);
}

static void every_kind_of_model(void **state) {
    (void)state;
    for (int kind = 1; kind < KINDS; kind++) {
        compare_bits("fp32", kind, 1);
        compare_bits("bf16", kind, 2);
        compare_bits("rowwise", kind, 2);
    }
}

/* With one scale per chunk, logits have the bits of the full pass if one chunk has all tokens. If not, they
   must be close but different: equal logits would mean that the recipe is not active. */
static void one_scale_a_chunk_is_near_the_full_pass(void **state) {
    static const char *const recipes[] = {"tensorwise", "current"};
    static const int64_t once[2] = {CACHE_CHUNK};
    (void)state;
    for (int i = 0; i < 2; i++) {
        model_options o = options_of(0);
        tiny t;
        model_cache *c;
        float expected[VOCAB], got[VOCAB];
        open_model(&t, &o, recipes[i], 1);
        HARNESS_OK(model_cache_open(t.m, NULL, CAPACITY, &c));
        run_full(&t, CACHE_CHUNK, expected);
        run_parts(c, once, CACHE_CHUNK, got);
        assert_memory_equal(got, expected, sizeof got);
        run_full(&t, LENGTH, expected);
        for (int split = 0; split < SPLITS; split++) {
            run_parts(c, splits[split], LENGTH, got);
            assert_true(distance(got, expected) < 0.2); /* one E4M3 cast has an error of 0.03 */
            assert_memory_not_equal(got, expected, sizeof got);
        }
        model_cache_close(c);
        tiny_close(&t);
    }
}

/* With 128 x 128 scale blocks the input of the head, the last token's row, shares a scale with other rows. */
static void square_blocks_of_activations(void **state) {
    static const int64_t once[2] = {CACHE_CHUNK};
    (void)state;
    recipe r = *recipe_find("block");
    r.input.rowwise.grain = GRANULARITY_128X128;
    r.weight.rowwise.grain = GRANULARITY_1X128;
    model_options o = options_of(0);
    tiny t;
    model_cache *c;
    float expected[VOCAB], got[VOCAB];
    open_model_under(&t, &o, &r, 1);
    HARNESS_OK(model_cache_open(t.m, NULL, CAPACITY, &c));
    run_full(&t, CACHE_CHUNK, expected);
    run_parts(c, once, CACHE_CHUNK, got);
    assert_memory_equal(got, expected, sizeof got);
    run_full(&t, LENGTH, expected);
    run_parts(c, splits[3], LENGTH, got);
    assert_true(distance(got, expected) < 0.2);
    model_cache_close(c);
    tiny_close(&t);
}

/* Tokens that were truncated from the cache have no effect on later logits. */
static void truncation_forgets(void **state) {
    (void)state;
    model_options o = options_of(0);
    tiny t;
    model_cache *c;
    int32_t other[40] = {5, 9, 1}, again[30];
    float expected[VOCAB], got[VOCAB];
    open_model(&t, &o, "bf16", 1);
    HARNESS_OK(model_cache_open(t.m, NULL, CAPACITY, &c));
    run_parts(c, splits[2], 100, expected);
    model_cache_truncate(c, 70);
    assert_int_equal(model_cache_length(c), 70);
    HARNESS_OK(model_cache_extend(c, other, 40, got));
    assert_memory_not_equal(got, expected, sizeof got);
    model_cache_truncate(c, 70);
    for (int i = 0; i < 30; i++) again[i] = token_at(70 + i);
    HARNESS_OK(model_cache_extend(c, again, 30, got));
    assert_memory_equal(got, expected, sizeof got);
    model_cache_close(c);
    tiny_close(&t);
}

static void nothing_is_allocated_after_opening(void **state) {
    (void)state;
    model_options o = options_of(1);
    tiny t;
    model_cache *c;
    float logits[VOCAB];
    open_model(&t, &o, "rowwise", 1);
    HARNESS_OK(model_cache_open(t.m, NULL, CAPACITY, &c));
    int64_t before = mem_read(t.h.account).allocations;
    run_parts(c, splits[3], LENGTH, logits);
    assert_int_equal(mem_read(t.h.account).allocations, before);
    model_cache_close(c);
    tiny_close(&t);
}

static void products_are_counted(void **state) {
    (void)state;
    model_options o = options_of(0);
    tiny t;
    model_cache *c;
    float logits[VOCAB];
    int64_t all, fp8;
    open_model(&t, &o, "rowwise", 1);
    HARNESS_OK(model_cache_open(t.m, NULL, 6, &c));
    run_parts(c, (int64_t[]){5, 0}, 5, logits); /* in chunks of 4 and 1 tokens */
    model_cache_gemms(c, &all, &fp8);
    assert_int_equal(all, 2 * 15);
    assert_int_equal(fp8, all);
    model_cache_close(c);
    tiny_close(&t);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    model_options o = options_of(0);
    tiny t;
    model_cache *c;
    int32_t tokens[7] = {0};
    float logits[VOCAB];
    open_model(&t, &o, "bf16", 1);
    HARNESS_OK(model_cache_open(t.m, NULL, 6, &c));
    assert_int_equal(model_cache_capacity(c), 6);
    assert_int_equal(model_cache_extend(c, tokens, 7, logits), OTT_ERR_INTERNAL);
    HARNESS_OK(model_cache_extend(c, tokens, 6, logits));
    assert_int_equal(model_cache_extend(c, tokens, 1, logits), OTT_ERR_INTERNAL);
    model_cache_close(c);
    tiny_close(&t);
}

static void every_failed_allocation_is_undone(void **state) {
    (void)state;
    model_options o = options_of(0);
    tiny t;
    model_cache *c;
    open_model(&t, &o, "rowwise", 1);
    int64_t held = mem_read(t.h.account).now;
    int failures = 0;
    for (;; failures++) {
        mem_fail_after(t.h.account, failures + 1);
        ott_status status = model_cache_open(t.m, NULL, CAPACITY, &c);
        mem_fail_after(t.h.account, 0);
        if (status == OTT_OK) break;
        assert_int_equal(status, OTT_ERR_MEMORY);
        assert_int_equal(mem_read(t.h.account).now, held);
    }
    assert_true(failures > 8);
    model_cache_close(c);
    tiny_close(&t);
}

static void run_cached(tiny *t, float logits[VOCAB]) {
    model_cache *c;
    HARNESS_OK(model_cache_open(t->m, NULL, CAPACITY, &c));
    run_parts(c, splits[3], LENGTH, logits); /* chunks of 100 and 7 tokens, then single tokens */
    model_cache_close(c);
}

/* Packed weights give the same bits and take less memory: in every recipe, for chunks of all sizes, with
   biases and with a tied head. */
static void packed_weights_give_the_same_bits(void **state) {
    static const char *const recipes[] = {
        "fp32",  "bf16",  "fp16",    "tensorwise", "rowwise", "rowwise_with_gw_hp",
        "block", "mxfp8", "delayed", "current"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        model_options o = options_of(i % 2 ? 2 : 0);
        o.tied = i % 3 == 0;
        tiny t;
        float expected[VOCAB], got[VOCAB];
        open_model(&t, &o, recipes[i], 1 + (int)i % 2);
        run_cached(&t, expected);
        int64_t before = mem_read(t.h.account).now_of[MEM_PARAM];
        HARNESS_OK(model_pack(t.m));
        assert_true(mem_read(t.h.account).now_of[MEM_PARAM] < before);
        run_cached(&t, got);
        if (memcmp(got, expected, sizeof got) != 0)
            fail_msg("%s: packed, logits differ by %g", recipes[i], distance(got, expected));
        tiny_close(&t);
    }
}

/* Later conversions do not change a packed model's bits. */
static void a_packed_model_is_not_converted_again(void **state) {
    (void)state;
    model_options o = options_of(0);
    tiny t;
    float expected[VOCAB], got[VOCAB];
    open_model(&t, &o, "rowwise", 1);
    HARNESS_OK(model_pack(t.m));
    run_cached(&t, expected);
    assert_int_equal(model_convert(t.m, &(convert_options){.recipe = recipe_find("bf16")}, NULL),
                     OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "cannot be converted to bf16: it was packed for inference"));
    run_cached(&t, got);
    assert_memory_equal(got, expected, sizeof got);
    tiny_close(&t);
}

static void packing_that_fails_leaves_a_model_to_close(void **state) {
    (void)state;
    for (int failures = 0;; failures++) {
        model_options o = options_of(2);
        tiny t;
        open_model(&t, &o, "rowwise", 1);
        mem_fail_after(t.h.account, failures + 1);
        ott_status status = model_pack(t.m);
        mem_fail_after(t.h.account, 0);
        tiny_close(&t);
        if (status == OTT_OK) break;
        assert_int_equal(status, OTT_ERR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_the_bits_of_the_full_pass),
        cmocka_unit_test(every_kind_of_model),
        cmocka_unit_test(one_scale_a_chunk_is_near_the_full_pass),
        cmocka_unit_test(square_blocks_of_activations),
        cmocka_unit_test(truncation_forgets),
        cmocka_unit_test(nothing_is_allocated_after_opening),
        cmocka_unit_test(products_are_counted),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(every_failed_allocation_is_undone),
        cmocka_unit_test(packed_weights_give_the_same_bits),
        cmocka_unit_test(a_packed_model_is_not_converted_again),
        cmocka_unit_test(packing_that_fails_leaves_a_model_to_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
