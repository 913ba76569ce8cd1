/*
 * Fused projections give the results of separate projections. The same seed gives the same weights. Losses
 * have the same bits in every format with row scales. Gradients of inputs are summed in another order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/init.h"
#include "model/tiny_model.h"

enum { SEQUENCES = 3, LENGTH = 24, TOKENS = SEQUENCES * LENGTH };

static void open_pair(tiny *apart, tiny *fused, model_options o) {
    tiny_open(apart, &o, 1, NULL);
    o.fused_qkv = o.fused_gate_up = true;
    tiny_open(fused, &o, 1, NULL);
    HARNESS_OK(model_initialize(apart->m, 11, 1));
    HARNESS_OK(model_initialize(fused->m, 11, 3));
}

typedef float (*compare)(const float *, const float *, int64_t);

/* Copies a tensor to the host. The caller frees it. */
static float *fetch(tiny *owner, const tensor *t) {
    float *values = malloc((size_t)tensor_count(*t) * sizeof *values);
    harness_get(&owner->h, t, values);
    return values;
}

/* Compares one projection's rows of a fused weight or bias with the separate model's parameter. */
static void compare_part(tiny *apart, tiny *fused, const parameter *full, const char *name,
                         const module_part *part, compare difference, bool grads, float limit) {
    const parameter *own = tiny_parameter(apart, name);
    const tensor *a = grads ? &own->grad : &own->value, *b = grads ? &full->grad : &full->value;
    int64_t width = full->rank == 2 ? full->columns : 1;
    assert_int_equal(parameter_count(own), part->count * width);
    float *x = fetch(apart, a), *y = fetch(fused, b);
    float found = difference(x, y + part->first * width, parameter_count(own));
    free(x);
    free(y);
    if (found > limit) fail_msg("%s is off by %g", name, (double)found);
}

static void compare_parts(tiny *apart, tiny *fused, compare difference, bool grads, float limit) {
    for (int i = 0; i < fused->m->modules.count; i++) {
        const model_module *e = &fused->m->modules.items[i];
        module_part part[MODULES_PARTS];
        int parts = modules_parts(&fused->m->options, e, part);
        for (int j = 0; j < parts; j++) {
            char module[MODULES_NAME_BYTES], name[MODULES_NAME_BYTES + 8];
            modules_name(NULL, part[j].role, NAMING_HUGGING_FACE, e->layer, module);
            snprintf(name, sizeof name, "%s.weight", module);
            compare_part(apart, fused, e->weight, name, &part[j], difference, grads, limit);
            snprintf(name, sizeof name, "%s.bias", module);
            if (e->bias) compare_part(apart, fused, e->bias, name, &part[j], difference, grads, limit);
        }
    }
}

static float bits_differ(const float *a, const float *b, int64_t count) {
    return memcmp(a, b, (size_t)count * sizeof *a) != 0;
}

/* Returns ||a - b|| / ||a||. */
static float relative(const float *a, const float *b, int64_t count) {
    double apart = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return size > 0 ? (float)sqrt(apart / size) : apart > 0;
}

static void same_start(void **state) {
    (void)state;
    static const kind_init_style styles[] = {INIT_HF, INIT_KEMPNER, INIT_TITAN};
    for (int i = 0; i < 3; i++) {
        tiny apart, fused;
        model_options o = tiny_options();
        o.init_style = styles[i];
        o.init_std = 0.02;
        o.qkv_bias = i == 0;
        open_pair(&apart, &fused, o);
        compare_parts(&apart, &fused, bits_differ, false, 0);
        tiny_close(&apart);
        tiny_close(&fused);
    }
}

static void same_pass(const char *recipe_name, bool same_bits, float limit) {
    tiny apart, fused;
    model_options o = tiny_options();
    o.init_std = 0.2;
    open_pair(&apart, &fused, o);
    tiny *both[] = {&apart, &fused};
    float *losses[2];
    for (int i = 0; i < 2; i++) {
        tiny_convert(both[i], recipe_find(recipe_name), NULL, NULL);
        tiny_random_batch(both[i], SEQUENCES, LENGTH);
        tiny_run(both[i]);
        losses[i] = tiny_losses(both[i]);
    }
    if (same_bits) assert_memory_equal(losses[0], losses[1], TOKENS * sizeof **losses);
    compare_parts(&apart, &fused, relative, true, limit);
    for (int i = 0; i < 2; i++) {
        free(losses[i]);
        tiny_close(both[i]);
    }
}

static void same_pass_in_each_format(void **state) {
    (void)state;
    same_pass("fp32", true, 2e-6f);
    same_pass("bf16", true, 0.02f);
    same_pass("rowwise", true, 0.2f);
    same_pass("mxfp8", true, 0.2f);
    same_pass("tensorwise", false, 0.5f); /* the fused model has one scale for all three projections */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_start),
                                       cmocka_unit_test(same_pass_in_each_format)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
