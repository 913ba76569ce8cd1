/*
 * A full model as a module: its parts, parameters and errors. Losses computed from the logits must equal the
 * losses of ott_model_loss. Conversion by ott_convert_to_float8_training must equal conversion by the
 * configuration.
 */
#include "api/handle.h"
#include "api/module_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, LENGTH = 16, TOKENS = SEQUENCES * LENGTH, VOCAB = 96 };

static ott_config *open_config(ott_context *c, const char *const *more, int count) {
    const char *arguments[16] = {
        "--model.dim=32",       "--model.n_layers=2",          "--model.n_heads=4",
        "--model.n_kv_heads=2", "--model.ffn_hidden_dim=64",   "--model.vocab_size=96",
        "--train.seq_len=16",   "--train.mixed_precision=bf16"};
    ott_config *out;
    for (int i = 0; i < count; i++) arguments[8 + i] = more[i];
    succeed(ott_config_open(c, 8 + count, arguments, &out));
    return out;
}

static ott_module *open_model(ott_context *c, const char *const *more, int count) {
    ott_module *m;
    ott_config *cfg = open_config(c, more, count);
    succeed(ott_model_open(c, cfg, &m));
    succeed(ott_config_set(cfg, "train.seed", "99")); /* the model has its own copy of the configuration */
    ott_config_close(cfg);
    return m;
}

static ott_tensor *open_ids(ott_context *c, uint32_t seed) {
    float values[TOKENS];
    ott_tensor *t = open_tensor(c, OTT_I32, SEQUENCES, LENGTH);
    for (uint32_t i = 0; i < TOKENS; i++) values[i] = (float)((seed + 7 * i * i) % VOCAB);
    succeed(ott_tensor_write(t, values, TOKENS));
    return t;
}

static void set_id(ott_tensor *t, int at, float value) {
    float values[TOKENS];
    succeed(ott_tensor_read(t, values, TOKENS));
    values[at] = value;
    succeed(ott_tensor_write(t, values, TOKENS));
}

/* ---- parts ---- */

static void test_parts(void **state) {
    (void)state;
    ott_context *c = open_context();
    const char *const tied[] = {"--model.tie_embeddings=true", "--train.freeze=model.norm"};
    ott_module *m = open_model(c, NULL, 0), *small = open_model(c, tied, 2);
    assert_string_equal(ott_module_kind(m), "model");
    assert_int_equal(ott_module_in_features(m), 0);
    assert_int_equal(ott_module_out_features(m), VOCAB);
    assert_int_equal(ott_module_dtype(m), OTT_BF16);
    assert_int_equal(ott_module_parameter_count(m), 1 + 2 * 9 + 2);
    assert_string_equal(ott_module_parameter_name(m, 0), "model.embed_tokens.weight");
    ott_module *q = ott_module_child(m, "model.layers.1.self_attn.q_proj");
    assert_string_equal(ott_module_kind(q), "linear");
    assert_int_equal(ott_module_in_features(q), 32);
    assert_string_equal(ott_module_parameter_name(q, 0), "weight");
    assert_string_equal(ott_module_kind(ott_module_child(m, "model.norm")), "norm");
    assert_string_equal(ott_module_kind(ott_module_child(m, "model.embed_tokens")), "embedding");
    /* the embedding, 9 parameters in each of 2 blocks, the norm; the head is tied to the embedding */
    assert_int_equal(ott_module_parameter_count(small), 1 + 2 * 9 + 1);
    assert_int_equal(ott_module_parameter_count(ott_module_child(small, "lm_head")), 0);
    ott_tensor *t;
    int norm = ott_module_parameter_index(small, "model.norm.weight");
    succeed(ott_module_parameter_value(small, norm, &t));
    assert_error(ott_module_parameter_gradient(small, norm, &t), OTT_ERR_ARGUMENT, "train.freeze");
    ott_module_close(m);
    ott_module_close(small);
    ott_context_close(c);
}

/* ---- the two ways of training ---- */

/* Trains a step by ott_module_forward and a separate loss, or by ott_model_loss. Returns the loss. */
static double step_of(ott_module *m, ott_optimizer *o, ott_tensor *x, ott_tensor *target, bool fused) {
    double loss;
    succeed(ott_optimizer_zero_grad(o));
    if (fused) {
        succeed(ott_model_loss(m, x, target, 0, &loss));
    } else {
        float values[TOKENS];
        ott_context *c = ((handle *)(void *)m)->context;
        ott_tensor *y = open_tensor(c, ott_module_dtype(m), TOKENS, VOCAB),
                   *flat = open_tensor(c, OTT_I32, 1, TOKENS);
        succeed(ott_tensor_read(target, values, TOKENS));
        succeed(ott_tensor_write(flat, values, TOKENS));
        succeed(ott_module_forward(m, x, y));
        succeed(ott_cross_entropy_loss(y, flat, &loss, y));
        succeed(ott_module_backward(m, y, NULL));
        ott_tensor_close(y);
        ott_tensor_close(flat);
    }
    succeed(ott_optimizer_step(o, NULL));
    return loss;
}

static void check_logits(const char *const *more, int count) {
    ott_context *c = open_context();
    ott_module *m[2];
    ott_optimizer *o[2];
    ott_tensor *x = open_ids(c, 1), *target = open_ids(c, 5);
    set_id(target, 3, -100);
    for (int i = 0; i < 2; i++) {
        m[i] = open_model(c, more, count);
        succeed(ott_model_optimizer_open(m[i], &o[i]));
        succeed(ott_optimizer_set_lr(o[i], 0.01));
    }
    for (int step = 0; step < 3; step++) {
        double by_logits = step_of(m[0], o[0], x, target, false),
               fused = step_of(m[1], o[1], x, target, true);
        if (by_logits != fused)
            fail_msg("%s, step %d: the loss is %.9g from logits and %.9g fused", more[0], step, by_logits,
                     fused);
        assert_same_parameters(m[0], m[1]);
    }
    for (int i = 0; i < 2; i++) {
        ott_optimizer_close(o[i]);
        ott_module_close(m[i]);
    }
    ott_tensor_close(x);
    ott_tensor_close(target);
    ott_context_close(c);
}

static void test_logits(void **state) {
    (void)state;
    const char *const fp32[] = {"--train.mixed_precision=fp32"};
    const char *const tensorwise[] = {"--train.mixed_precision=fp8", "--float8.recipe_name=tensorwise"};
    const char *const delayed[] = {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed",
                                   "--model.tie_embeddings=true"};
    const char *const block[] = {"--train.mixed_precision=fp8", "--float8.recipe_name=block",
                                 "--train.activation_checkpointing=full"};
    check_logits(fp32, 1);
    check_logits(tensorwise, 2);
    check_logits(delayed, 3);
    check_logits(block, 3);
}

/* By default each row of tokens is a sequence. A caller may give the same sequence starts, or others. */
static void test_sequences(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_model(c, NULL, 0);
    ott_tensor *x = open_ids(c, 1), *target = open_ids(c, 5), *row = open_tensor(c, OTT_I32, 1, TOKENS);
    const int64_t rows[] = {0, LENGTH}, halves[] = {0, 8, 16, 24};
    float values[TOKENS];
    double plain, by_rows, by_halves, one_row;
    succeed(ott_module_set_training(m, 0));
    succeed(ott_model_loss(m, x, target, 0, &plain));
    succeed(ott_module_set_sequences(m, rows, 2));
    succeed(ott_model_loss(m, x, target, 0, &by_rows));
    succeed(ott_tensor_read(x, values, TOKENS));
    succeed(ott_tensor_write(row, values, TOKENS));
    ott_tensor *row_target = open_tensor(c, OTT_I32, 1, TOKENS);
    succeed(ott_tensor_read(target, values, TOKENS));
    succeed(ott_tensor_write(row_target, values, TOKENS));
    succeed(ott_model_loss(m, row, row_target, 0, &one_row));
    succeed(ott_module_set_sequences(m, halves, 4));
    succeed(ott_model_loss(m, x, target, 0, &by_halves));
    assert_true(plain == by_rows && plain == one_row && plain != by_halves);
    succeed(ott_module_set_sequences(m, NULL, 0));
    assert_error(ott_model_loss(m, row, row_target, 0, NULL), OTT_ERR_SHAPE, "train.seq_len = 16");
    ott_tensor *const all[] = {x, target, row, row_target};
    for (int i = 0; i < 4; i++) ott_tensor_close(all[i]);
    ott_module_close(m);
    ott_context_close(c);
}

/* ---- conversion ---- */

static int refuse_down(void *user, const char *fqn, const ott_module *layer) {
    (void)user;
    return ott_module_out_features(layer) > 0 && !strstr(fqn, "down_proj");
}

/* Conversion by a call equals conversion by configuration. A second call converts what its filter accepts. */
static void test_conversion(void **state) {
    (void)state;
    captured_log h;
    ott_context *c = open_logging_context(&h);
    const char *const fp8[] = {"--train.mixed_precision=fp8", "--float8.recipe_name=rowwise",
                               "--float8.filter_fqns=[lm_head,down_proj]"};
    const char *const names[] = {"lm_head"};
    ott_module *m[] = {open_model(c, fp8, 3), open_model(c, NULL, 0)};
    ott_optimizer *o[2];
    ott_tensor *x = open_ids(c, 1), *target = open_ids(c, 5);
    ott_convert_options options;
    ott_convert_summary summary;
    ott_convert_options_init(&options);
    ott_convert_summary_init(&summary);
    options.recipe = open_recipe(c, "rowwise");
    options.filter = refuse_down;
    options.filter_fqns = names;
    options.filter_fqn_count = 1;
    succeed(ott_convert_to_float8_training(m[1], &options, &summary));
    assert_int_equal(summary.linears, 15);
    assert_int_equal(summary.converted, 12);
    assert_int_equal(count_logged(&h, "recipe=ROWWISE, 12 of 15 linear layers converted"), 2);
    for (int i = 0; i < 2; i++) succeed(ott_model_optimizer_open(m[i], &o[i]));
    for (int step = 0; step < 2; step++) {
        double a = step_of(m[0], o[0], x, target, true), b = step_of(m[1], o[1], x, target, true);
        assert_true(a == b);
    }
    assert_same_parameters(m[0], m[1]);
    ott_module *down = ott_module_child(m[1], "model.layers.0.mlp.down_proj"),
               *up = ott_module_child(m[1], "model.layers.0.mlp.up_proj"),
               *head = ott_module_child(m[1], "lm_head");
    assert_string_equal(ott_module_skip_reason(down), "the filter refused it");
    assert_string_equal(ott_module_skip_reason(head), "filter_fqns has \"lm_head\"");
    assert_string_equal(ott_module_recipe(up), "rowwise");
    assert_null(ott_module_recipe(down));
    ott_recipe *delayed = open_recipe(c, "delayed");
    options.recipe = delayed;
    options.filter = NULL;
    const char *const others[] = {"up_proj", "gate_proj", "self_attn", "no_such"};
    options.filter_fqns = others;
    options.filter_fqn_count = 4;
    succeed(ott_convert_to_float8_training(m[1], &options, &summary));
    assert_int_equal(summary.converted, 3);
    assert_int_equal(count_logged(&h, "filter_fqns has \"no_such\", which is in the name of no linear layer"),
                     1);
    assert_string_equal(ott_module_recipe(up), "rowwise");
    assert_string_equal(ott_module_recipe(down), "delayed");
    step_of(m[1], o[1], x, target, true);
    assert_true(scale_of(m[1], "lm_head", "input") != 1.0f);
    assert_error(ott_convert_to_float8_training(head, NULL, NULL), OTT_ERR_ARGUMENT, "a part of a model");
    for (int i = 0; i < 2; i++) {
        ott_optimizer_close(o[i]);
        ott_module_close(m[i]);
    }
    ott_context_close(c);
}

/* ---- refused arguments ---- */

static void refuse_config(ott_context *c, const char *key, const char *value, ott_status code,
                          const char *part) {
    ott_module *m;
    ott_config *cfg = open_config(c, NULL, 0);
    succeed(ott_config_set(cfg, key, value));
    if (strcmp(key, "float8.schedule") == 0) succeed(ott_config_set(cfg, "train.mixed_precision", "fp8"));
    assert_error(ott_model_open(c, cfg, &m), code, part);
    assert_null(m);
    ott_config_close(cfg);
}

static void test_misuse(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_model(c, NULL, 0), *linear = open_linear(c, 8, 8, false, OTT_BF16, 1), *all;
    ott_tensor *x = open_ids(c, 1), *target = open_ids(c, 5), *y = open_tensor(c, OTT_BF16, TOKENS, VOCAB),
               *dx = open_tensor(c, OTT_BF16, TOKENS, 1), *flat = open_tensor(c, OTT_BF16, SEQUENCES, VOCAB);
    ott_config *empty;
    succeed(ott_config_open(c, 0, NULL, &empty));
    assert_error(ott_model_open(c, empty, &all), OTT_ERR_CONFIG, "no model is given");
    refuse_config(c, "train.mixed_precision", "fp16", OTT_ERR_UNSUPPORTED, "loss scale");
    refuse_config(c, "float8.schedule", "fp8:10, bf16", OTT_ERR_UNSUPPORTED, "float8.schedule");
    const char *const free_of_schedules[] = {"--optimizer.name=schedule_free_adamw", "--scheduler.name=none"};
    ott_module *averaged = open_model(c, free_of_schedules, 2);
    ott_optimizer *optimizer;
    assert_error(ott_model_optimizer_open(averaged, &optimizer), OTT_ERR_UNSUPPORTED,
                 "only ott_train has optimizer.name");
    ott_module_close(averaged);
    assert_error(ott_model_loss(linear, x, target, 0, NULL), OTT_ERR_ARGUMENT, "give a model");
    assert_error(ott_model_loss(m, y, target, 0, NULL), OTT_ERR_DTYPE, "tokens is bf16");
    assert_error(ott_model_loss(m, x, target, 5, NULL), OTT_ERR_ARGUMENT, "labels = 5");
    assert_error(ott_module_forward(m, x, flat), OTT_ERR_SHAPE, "[32, 96]");
    set_id(x, 9, VOCAB);
    assert_error(ott_module_forward(m, x, y), OTT_ERR_ARGUMENT, "token 9 is 96; ids are 0 to 95");
    assert_error(ott_model_loss(m, x, target, 0, NULL), OTT_ERR_ARGUMENT, "token 9 is 96");
    set_id(x, 9, 1);
    set_id(target, 2, -1);
    assert_error(ott_model_loss(m, x, target, 0, NULL), OTT_ERR_ARGUMENT, "ott_model_loss: target[2] is -1");
    set_id(target, 2, 1);
    succeed(ott_module_forward(m, x, y));
    assert_error(ott_module_backward(m, y, dx), OTT_ERR_ARGUMENT, "tokens have no gradient");
    succeed(ott_model_loss(m, x, target, 0, NULL));
    assert_error(ott_module_backward(m, y, NULL), OTT_ERR_ARGUMENT, "ott_model_loss ran its own backward");
    assert_error(ott_sequential_open(c, &m, 1, &all), OTT_ERR_ARGUMENT, "is a model");
    succeed(ott_autocast_begin(c, NULL));
    assert_error(ott_module_forward(m, x, y), OTT_ERR_UNSUPPORTED, "not of a region");
    assert_error(ott_model_loss(m, x, target, 0, NULL), OTT_ERR_UNSUPPORTED, "not of a region");
    succeed(ott_autocast_end(c));
    ott_tensor *const tensors[] = {x, target, y, dx, flat};
    for (int i = 0; i < 5; i++) ott_tensor_close(tensors[i]);
    ott_config_close(empty);
    ott_module_close(linear);
    ott_module_close(m);
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_logits),
                                       cmocka_unit_test(test_sequences), cmocka_unit_test(test_conversion),
                                       cmocka_unit_test(test_misuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
