/*
 * Loss functions of the caller. A function that computes cross-entropy gives runs and models the losses,
 * weights, moments and FP8 state of the built-in loss, bit for bit. Failures, values that are not finite, and
 * settings that exclude such a function.
 */
#include "api/run_case.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 4, VOCAB = 256 };

/* ---- a loss function ---- */

typedef struct own_loss {
    ott_context *context; /* the function computes with this context's tensors */
    double losses[STEPS]; /* losses of the run's steps */
    double validation_loss;
    int trained, evaluated;         /* number of calls */
    int fails_at, nan_at, grad_nan; /* number of the training call that fails, or is not finite; 0: none */
} own_loss;

static void check_batch(const ott_loss_batch *b) {
    assert_true(b->sequences == RUN_SEQUENCES && b->length == RUN_LENGTH && b->vocab == VOCAB);
    for (int i = 0; i < RUN_SEQUENCES * RUN_LENGTH; i++) {
        assert_true(b->token[i] >= 0 && b->token[i] < VOCAB && b->loss[i] == 0);
        assert_int_equal(b->position[i], i % RUN_LENGTH);
        if (i % RUN_LENGTH > 0) assert_int_equal(b->token[i], b->target[i - 1]);
    }
}

/* Cross-entropy of each token, by ott_cross_entropy_loss. */
static void cross_entropy(ott_context *c, const ott_loss_batch *b) {
    ott_tensor *logits = open_tensor(c, OTT_F32, 1, b->vocab), *target = open_tensor(c, OTT_I32, 1, 1);
    for (int64_t t = 0; t < b->sequences * b->length; t++) {
        float *row = b->logits + t * b->vocab, label = (float)b->target[t];
        double loss = 0;
        if (b->target[t] < 0) {
            memset(row, 0, (size_t)b->vocab * sizeof *row);
            continue;
        }
        succeed(ott_tensor_write(logits, row, b->vocab));
        succeed(ott_tensor_write(target, &label, 1));
        succeed(ott_cross_entropy_loss(logits, target, &loss, logits));
        succeed(ott_tensor_read(logits, row, b->vocab));
        b->loss[t] = (float)loss;
    }
    ott_tensor_close(logits);
    ott_tensor_close(target);
}

static ott_status compute_loss(void *user, const ott_loss_batch *b) {
    own_loss *l = user;
    check_batch(b);
    *(b->training ? &l->trained : &l->evaluated) += 1;
    cross_entropy(l->context, b);
    if (b->training && l->trained == l->fails_at) return OTT_ERR_IO;
    if (b->training && l->trained == l->nan_at) b->loss[3] = NAN;
    if (b->training && l->trained == l->grad_nan) b->logits[3] = NAN;
    return OTT_OK;
}

/* ---- runs ---- */

static void note_progress(void *user, const ott_progress *p) {
    own_loss *l = user;
    l->losses[p->step - 1] = p->loss;
    l->validation_loss = p->validation_loss;
}

static ott_status run(const char *folder, const char *name, const char *const *more, ott_loss_fn function,
                      own_loss *l) {
    ott_context *c = open_context();
    l->context = open_context();
    ott_status status =
        train_and_close(c, open_run_config(c, folder, name, more), note_progress, function, l);
    ott_context_close(l->context);
    ott_context_close(c);
    return status;
}

static void check_bits(const char *title, int passes, const char *const *more) {
    char folder[64];
    own_loss built_in = {0}, own = {0};
    make_folder(folder);
    succeed(run(folder, "built-in", more, NULL, &built_in));
    succeed(run(folder, "own", more, compute_loss, &own));
    assert_memory_equal(built_in.losses, own.losses, sizeof own.losses);
    assert_true(built_in.validation_loss == own.validation_loss);
    expect_same_checkpoints(title, folder, "built-in/checkpoints/step-4", "own/checkpoints/step-4");
    assert_int_equal(own.trained, STEPS * passes);
    assert_int_equal(own.evaluated, 4); /* two batches after two steps */
    remove_folder(folder);
}

static void runs_have_the_same_bits(void **state) {
    static const struct {
        const char *title;
        int passes; /* micro-batches of a step */
        const char *more[RUN_ARGUMENTS];
    } styles[] = {{"fp32", 1, {"--train.mixed_precision=fp32"}},
                  {"bf16", 1, {"--model.final_logit_softcap=5", "--model.tie_embeddings=true"}},
                  {"fp16", 2, {"--train.mixed_precision=fp16", "--train.grad_accum_steps=2"}},
                  {"tensorwise", 1, {"--train.mixed_precision=fp8", "--float8.recipe_name=tensorwise"}},
                  {"delayed",
                   2,
                   {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed",
                    "--float8.amax_history_len=4", "--train.grad_accum_steps=2"}},
                  {"block",
                   1,
                   {"--train.mixed_precision=fp8", "--float8.recipe_name=block",
                    "--train.activation_checkpointing=full"}}};
    (void)state;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        check_bits(styles[i].title, styles[i].passes, styles[i].more);
}

static void runs_end_if_the_function_fails(void **state) {
    char folder[64];
    own_loss l = {.fails_at = 3};
    (void)state;
    make_folder(folder);
    assert_error(run(folder, "run", (const char *const[]){NULL}, compute_loss, &l), OTT_ERR_IO,
                 "the loss function failed for 64 tokens");
    assert_int_equal(l.trained, 3);
    remove_folder(folder);
}

/* A step whose loss or gradient is not finite is skipped. Then its micro-batch runs once more. */
static void values_that_are_not_finite_skip_the_step(void **state) {
    char folder[64];
    own_loss loss = {.nan_at = 3}, gradient = {.grad_nan = 3};
    (void)state;
    make_folder(folder);
    succeed(run(folder, "loss", (const char *const[]){NULL}, compute_loss, &loss));
    succeed(run(folder, "gradient", (const char *const[]){NULL}, compute_loss, &gradient));
    assert_true(isnan(loss.losses[2]) && !isnan(loss.losses[3]) && !isnan(gradient.losses[2]));
    assert_int_equal(loss.trained, STEPS + 1);
    assert_int_equal(gradient.trained, STEPS + 1);
    expect_same_checkpoints("skipped", folder, "loss/checkpoints/step-4", "gradient/checkpoints/step-4");
    remove_folder(folder);
}

static void contradicting_keys_are_refused(void **state) {
    const char *const chunked[] = {"--train.loss_fn=chunked_cross_entropy", NULL},
                      *const z[] = {"--train.z_loss_weight=1e-4", NULL};
    char folder[64];
    own_loss l = {0};
    (void)state;
    make_folder(folder);
    assert_error(run(folder, "a", chunked, compute_loss, &l), OTT_ERR_CONFIG,
                 "--train.loss_fn=chunked_cross_entropy");
    assert_error(run(folder, "a", z, compute_loss, &l), OTT_ERR_CONFIG, "leave train.z_loss_weight out");
    assert_int_equal(l.trained, 0);
    remove_folder(folder);
}

/* ---- models ---- */

static double step(model_loop *l) {
    double loss;
    succeed(ott_optimizer_zero_grad(l->o));
    succeed(ott_model_loss(l->m, l->tokens, l->targets, 0, &loss));
    succeed(ott_optimizer_step(l->o, NULL));
    return loss;
}

static void models_have_the_same_bits(void **state) {
    const char *const delayed[] = {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed", NULL};
    ott_context *c = open_context();
    own_loss l = {.context = open_context()};
    model_loop built_in, own;
    (void)state;
    open_model_loop(&built_in, c, delayed);
    open_model_loop(&own, c, delayed);
    succeed(ott_model_set_loss(own.m, compute_loss, &l));
    for (int i = 0; i < STEPS; i++) assert_true(step(&built_in) == step(&own));
    succeed(ott_model_set_loss(own.m, NULL, NULL));
    assert_true(step(&built_in) == step(&own));
    assert_same_parameters(built_in.m, own.m);
    assert_int_equal(l.trained, STEPS);

    double loss, same;
    succeed(ott_module_set_training(built_in.m, 0));
    succeed(ott_module_set_training(own.m, 0));
    succeed(ott_model_set_loss(own.m, compute_loss, &l));
    succeed(ott_model_loss(built_in.m, built_in.tokens, built_in.targets, 0, &loss));
    succeed(ott_model_loss(own.m, own.tokens, own.targets, 0, &same));
    assert_true(loss == same);
    assert_int_equal(l.evaluated, 1);
    ott_context_close(l.context);
    ott_context_close(c); /* closes the objects that are still open */
}

static void a_model_survives_a_failing_function(void **state) {
    const char *const none[] = {NULL};
    ott_context *c = open_context();
    own_loss l = {.context = open_context(), .fails_at = 1};
    model_loop a, b;
    (void)state;
    open_model_loop(&a, c, none);
    open_model_loop(&b, c, none);
    succeed(ott_model_set_loss(a.m, compute_loss, &l));
    assert_error(ott_model_loss(a.m, a.tokens, a.targets, 0, NULL), OTT_ERR_IO, "the loss function failed");
    for (int i = 0; i < 2; i++) assert_true(step(&a) == step(&b));
    assert_same_parameters(a.m, b.m);
    ott_context_close(l.context);
    ott_context_close(c);
}

static void wrong_models_are_refused(void **state) {
    const char *const chunked[] = {"--train.loss_fn=chunked_cross_entropy", NULL};
    ott_context *c = open_context();
    ott_module *linear = open_linear(c, 4, 4, false, OTT_BF16, 1);
    model_loop l;
    (void)state;
    open_model_loop(&l, c, chunked);
    assert_error(ott_model_set_loss(NULL, compute_loss, NULL), OTT_ERR_ARGUMENT, "model is NULL");
    assert_error(ott_model_set_loss(linear, compute_loss, NULL), OTT_ERR_ARGUMENT, "give a model");
    assert_error(ott_model_set_loss(l.m, compute_loss, NULL), OTT_ERR_CONFIG, "leave train.loss_fn out");
    succeed(ott_model_set_loss(l.m, NULL, NULL));
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_have_the_same_bits),
        cmocka_unit_test(runs_end_if_the_function_fails),
        cmocka_unit_test(values_that_are_not_finite_skip_the_step),
        cmocka_unit_test(contradicting_keys_are_refused),
        cmocka_unit_test(models_have_the_same_bits),
        cmocka_unit_test(a_model_survives_a_failing_function),
        cmocka_unit_test(wrong_models_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
