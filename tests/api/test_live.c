/*
 * Generation from models that are open for training: from a run in its progress callback, and from a model of
 * a program. The text is the one that a checkpoint of the same step gives, and the training has the bits of a
 * training without generation.
 */
#include "api/module/module.h"
#include "api/run_case.h"
#include <stdio.h>
#include <string.h>

enum { STEPS = 4 };

static ott_generate_options sampled(const char *prompt) {
    ott_generate_options o;
    ott_generate_options_init(&o);
    o.prompt = prompt;
    o.max_tokens = 40; /* more than the window of RUN_LENGTH tokens has */
    return o;
}

/* ---- runs ---- */

typedef struct generating_run {
    ott_context *context;
    collected text[STEPS];
} generating_run;

static void generate_now(void *user, const ott_progress *p) {
    generating_run *r = user;
    const ott_generate_options o = sampled("The ");
    int64_t before = mem_read(r->context->account).now;
    succeed(ott_generate(r->context, NULL, &o, collect, &r->text[p->step - 1]));
    /* a GPU keeps the plans of matrix products that the first call made */
    if (p->step > 1) assert_int_equal(mem_read(r->context->account).now, before);
}

static void train(const char *folder, const char *name, const char *const *more, ott_progress_fn progress,
                  void *user, ott_context *c) {
    succeed(train_and_close(c, open_run_config(c, folder, name, more), progress, NULL, user));
}

static void check_run(const char *title, const char *const *more) {
    static generating_run r;
    char folder[64], path[160];
    ott_context *c = open_context();
    r = (generating_run){.context = c};
    make_folder(folder);
    train(folder, "without", more, NULL, NULL, c);
    train(folder, "with", more, generate_now, &r, c);
    expect_same_checkpoints(title, folder, "without/checkpoints/step-2", "with/checkpoints/step-2");
    expect_same_checkpoints(title, folder, "without/checkpoints/step-4", "with/checkpoints/step-4");
    for (int step = 2; step <= STEPS; step += 2) {
        collected saved = {0};
        const ott_generate_options o = sampled("The ");
        snprintf(path, sizeof path, "%s/with/checkpoints/step-%d", folder, step);
        succeed(ott_generate(c, path, &o, collect, &saved));
        if (strcmp(saved.text, r.text[step - 1].text) != 0)
            fail_msg("%s, step %d: \"%s\", but from the checkpoint \"%s\"", title, step,
                     r.text[step - 1].text, saved.text);
    }
    assert_string_not_equal(r.text[0].text, r.text[3].text);
    ott_context_close(c);
    remove_folder(folder);
}

static void runs_generate(void **state) {
    static const struct {
        const char *title, *more[RUN_ARGUMENTS];
    } styles[] = {
        {"fp32", {"--train.mixed_precision=fp32"}},
        {"averaged",
         {"--optimizer.name=schedule_free_adamw", "--scheduler.name=none", "--scheduler.warmup_steps=0",
          "--train.activation_checkpointing=full"}},
        {"tensorwise, averaged",
         {"--optimizer.name=schedule_free_adamw", "--scheduler.name=none", "--scheduler.warmup_steps=0",
          "--train.mixed_precision=fp8", "--float8.recipe_name=tensorwise"}},
        {"tensorwise", {"--train.mixed_precision=fp8", "--float8.recipe_name=tensorwise"}},
        {"delayed",
         {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed", "--float8.amax_history_len=4",
          "--train.grad_accum_steps=2"}},
        {"rowwise, experts",
         {"--train.mixed_precision=fp8", "--float8.recipe_name=rowwise", "--model.num_experts=4",
          "--model.moe_top_k=2"}}};
    (void)state;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) check_run(styles[i].title, styles[i].more);
}

/* What a progress callback cannot do with the run's model. */
static void misuse_in_progress(void *user, const ott_progress *p) {
    ott_context *c = user;
    ott_generator *generator;
    collected text = {0};
    ott_generate_options o = sampled("a");
    (void)p;
    assert_error(ott_generator_open(c, NULL, &o, &generator), OTT_ERR_ARGUMENT, "run is NULL");
    assert_null(generator);
    o.device = "cpu";
    assert_error(ott_generate(c, NULL, &o, collect, &text), OTT_ERR_ARGUMENT,
                 "device has no effect on a model that is open already");
    o = sampled("a");
    o.precision_name = "bf16";
    assert_error(ott_generate(c, NULL, &o, collect, &text), OTT_ERR_ARGUMENT, "precision has no effect");
    assert_string_equal(text.text, "");
}

static void a_run_ends_with_its_callback(void **state) {
    char folder[64];
    ott_context *c = open_context();
    collected text = {0};
    ott_generate_options o = sampled("a");
    (void)state;
    make_folder(folder);
    train(folder, "run", (const char *const[]){NULL}, misuse_in_progress, c, c);
    assert_error(ott_generate(c, NULL, &o, collect, &text), OTT_ERR_ARGUMENT, "run is NULL");
    ott_context_close(c);
    remove_folder(folder);
}

/* ---- models of a program ---- */

static double train_step(model_loop *l) {
    double loss = 0, part;
    succeed(ott_optimizer_zero_grad(l->o));
    for (int i = 0; i < 2; i++) {
        succeed(ott_module_set_micro_batch(l->m, i));
        succeed(ott_model_loss(l->m, l->tokens, l->targets, (int64_t)2 * RUN_SEQUENCES * RUN_LENGTH, &part));
        loss += part;
    }
    succeed(ott_module_set_micro_batch(l->m, 0));
    succeed(ott_optimizer_step(l->o, NULL));
    return loss;
}

/* Expects that the model now gives the text that its checkpoint gives. */
static void expect_text_of_checkpoint(ott_context *c, model_loop *l, const char *folder) {
    char path[96];
    collected live = {0}, saved = {0}, again = {0};
    ott_generate_options o = sampled("ab");
    snprintf(path, sizeof path, "%s/saved", folder);
    succeed(ott_checkpoint_save(path, l->m, l->o));
    succeed(ott_generate(c, path, &o, collect, &saved));
    o.model = l->m;
    succeed(ott_generate(c, NULL, &o, collect, &live));
    assert_string_equal(live.text, saved.text);
    int64_t before = mem_read(c->account).now;
    succeed(ott_generate(c, NULL, &o, collect, &again));
    assert_int_equal(mem_read(c->account).now, before);
    assert_string_equal(live.text, again.text);
}

static void models_generate(void **state) {
    static const char *const styles[][RUN_ARGUMENTS] = {
        {"--train.mixed_precision=bf16"},
        {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed", "--float8.amax_history_len=4"},
        {"--train.mixed_precision=fp8", "--float8.recipe_name=tensorwise"}};
    char folder[64];
    (void)state;
    make_folder(folder);
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        ott_context *c = open_context();
        model_loop with, without;
        open_model_loop(&with, c, styles[i]);
        open_model_loop(&without, c, styles[i]);
        expect_text_of_checkpoint(c, &with, folder); /* with the initial weights */
        for (int step = 0; step < STEPS; step++) {
            assert_true(train_step(&with) == train_step(&without));
            expect_text_of_checkpoint(c, &with, folder);
        }
        assert_same_parameters(with.m, without.m);
        close_model_loop(&with);
        close_model_loop(&without);
        ott_context_close(c);
    }
    remove_folder(folder);
}

/* A generator that stays open computes its text again with the current weights and formats. */
static void a_generator_follows_its_model(void **state) {
    const char *const none[] = {NULL};
    ott_context *c = open_context();
    ott_generator *generator;
    model_loop l;
    collected grown = {0}, more = {0}, again = {0};
    ott_generate_options o = sampled("abcabc");
    (void)state;
    open_model_loop(&l, c, none);
    o.model = l.m;
    o.temperature = 0;
    o.max_tokens = 5;
    for (int i = 0; i < 20; i++) train_step(&l);
    succeed(ott_generator_open(c, NULL, &o, &generator));
    succeed(ott_generator_continue(generator, "abcabc", collect, &grown));
    for (int i = 0; i < 20; i++) train_step(&l);
    succeed(ott_convert_to_float8_training(l.m, NULL, NULL));
    train_step(&l);

    char prompt[sizeof grown.text + 16];
    snprintf(prompt, sizeof prompt, "abcabc%sxyz", grown.text);
    o.prompt = prompt;
    succeed(ott_generate(c, NULL, &o, collect, &again));
    succeed(ott_generator_continue(generator, "xyz", collect, &more));
    assert_string_equal(more.text, again.text + strlen(prompt));

    close_model_loop(&l);
    assert_error(ott_generator_continue(generator, "a", collect, &more), OTT_ERR_ARGUMENT,
                 "the generator's model is a module that has been closed");
    ott_generator_close(generator);
    ott_context_close(c);
}

static ott_status generate_in_loss(void *user, const ott_loss_batch *b) {
    collected text = {0};
    ott_generate_options o = sampled("a");
    o.model = ((model_loop *)user)->m;
    (void)b;
    return ott_generate(o.model->handle.context, NULL, &o, collect, &text);
}

static void wrong_sources_are_refused(void **state) {
    const char *const none[] = {NULL};
    ott_context *c = open_context(), *other = open_context();
    ott_generator *generator;
    model_loop l;
    collected text = {0};
    ott_generate_options o = sampled("a");
    (void)state;
    open_model_loop(&l, c, none);
    o.model = l.m;
    assert_error(ott_generate(c, "/nowhere", &o, collect, &text), OTT_ERR_ARGUMENT,
                 "run and options.model are both given");
    assert_error(ott_generator_open(other, NULL, &o, &generator), OTT_ERR_ARGUMENT,
                 "options.model belongs to another context");
    succeed(ott_model_set_loss(l.m, generate_in_loss, &l));
    assert_error(ott_model_loss(l.m, l.tokens, l.targets, 0, NULL), OTT_ERR_ARGUMENT, "loss function failed");
    o.threads = 2;
    assert_error(ott_generate(c, NULL, &o, collect, &text), OTT_ERR_ARGUMENT, "threads has no effect");
    o.threads = 0;
    o.model = ott_module_child(l.m, "lm_head");
    assert_error(ott_generate(c, NULL, &o, collect, &text), OTT_ERR_ARGUMENT, "give a model");
    succeed(ott_autocast_begin(c, NULL));
    o.model = l.m;
    assert_error(ott_generate(c, NULL, &o, collect, &text), OTT_ERR_UNSUPPORTED, "region");
    succeed(ott_autocast_end(c));
    close_model_loop(&l);
    assert_error(ott_generate(c, NULL, &o, collect, &text), OTT_ERR_ARGUMENT, "has been closed");
    ott_context_close(other);
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_generate),
        cmocka_unit_test(a_run_ends_with_its_callback),
        cmocka_unit_test(models_generate),
        cmocka_unit_test(a_generator_follows_its_model),
        cmocka_unit_test(wrong_sources_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
