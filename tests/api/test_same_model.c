/*
 * The program's model compared with the same model built of the public API's modules. With equal weights and
 * data all losses, gradients and weights are equal bit for bit in every step. The API has no embedding
 * module. So the program's embedding is frozen, and the modules get its output as input.
 */
#include "api/module_case.h"
#include "api/fp8/tensor.h"
#include "base/rng.h"
#include "checkpoint/folder.h"
#include "comm/self.h"
#include "model/convert.h"
#include "model/init.h"
#include "model/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, ROWS = 24, VOCAB = 64, DIM = 32, STEPS = 3 };

typedef struct program {
    exec cx;
    model *m;
    model_slot *slot;
    batch batch;
    tensor losses, grad_scale, state;
    optimizer_options options;
} program;

/* Allocates device memory with a copy of `values` (NULL: zeros). */
static tensor place(program *p, ott_dtype d, int64_t columns, const void *values) {
    tensor t = tensor_vector(NULL, d, columns);
    succeed(device_allocate(p->cx.device, MEM_OTHER, tensor_bytes(t), "a test", &t.data));
    if (values) succeed(device_copy_in(p->cx.device, t.data, values, tensor_bytes(t)));
    return t;
}

static void open_batch(program *p, const int32_t *token, const int32_t *target) {
    int32_t position[ROWS], start[2] = {0, ROWS};
    const float scale = 1.0f / ROWS;
    for (int i = 0; i < ROWS; i++) position[i] = i;
    p->batch = (batch){
        .count = 1,
        .length = ROWS,
        .token = place(p, OTT_I32, ROWS, token),
        .target = place(p, OTT_I32, ROWS, target),
        .at = {.position = place(p, OTT_I32, ROWS, position), .cu_seqlens = place(p, OTT_I32, 2, start)}};
    p->losses = place(p, OTT_F32, ROWS, NULL);
    p->grad_scale = place(p, OTT_F32, 1, &scale);
    p->state = place(p, OTT_F32, STEP_STATE_COUNT, NULL);
}

static void open_program(program *p, ott_context *c, const char *recipe_name, const int32_t *token,
                         const int32_t *target) {
    static const char *const frozen[] = {"model.embed_tokens"};
    const str_list freeze = {frozen, 1};
    const model_options o = {.family = family_find("llama"),
                             .dim = DIM,
                             .layers = LAYERS,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 8,
                             .hidden = 48,
                             .vocab = VOCAB,
                             .max_positions = 64,
                             .rope = {.kind = ROPE_PLAIN, .theta = 1e4},
                             .norm_epsilon = 1e-5f,
                             .init_std = 0.2,
                             .freeze = &freeze,
                             .optimizer = optimizer_find("adamw")};
    succeed(api_exec(c, &p->cx));
    p->cx.data_group = comm_self();
    succeed(model_open(p->cx.device, &o, MODEL_TRAINING, 64, &p->m));
    succeed(model_initialize(p->m, 5, 1));
    succeed(model_convert(p->m, &(convert_options){.recipe = recipe_find(recipe_name), .any_dimension = true},
                          NULL));
    succeed(model_slot_open(p->m, &p->slot));
    p->options = (optimizer_options){
        .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0.01f, .max_norm = 1.0f};
    open_batch(p, token, target);
}

static void close_program(program *p) {
    const tensor all[] = {
        p->batch.token, p->batch.target, p->batch.at.position, p->batch.at.cu_seqlens, p->losses,
        p->grad_scale,  p->state};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_release(p->cx.device, all[i].data);
    model_slot_close(p->m->device, p->slot);
    model_close(p->m);
}

/* Runs a step of the program's model. Returns the mean loss, summed in ott_cross_entropy_loss's order. */
static double step_program(program *p, int step) {
    float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1.0f}, sum = 0;
    tensor total = place(p, OTT_F32, 1, &sum);
    p->cx.step = step;
    succeed(device_zero(p->cx.device, p->m->grads, p->m->trained_bytes));
    succeed(model_run(&p->cx, p->m, p->slot, &p->batch, &p->grad_scale, &p->losses));
    succeed(op_sum(&p->cx, &(sum_args){.x = &p->losses, .sum = &total}));
    succeed(device_copy_out(p->cx.device, &sum, total.data, sizeof sum));
    device_release(p->cx.device, total.data);
    const optimizer_rule *rule = p->m->options.optimizer;
    optimizer_schedule(rule, &p->options, 0.01, step + 1, host);
    succeed(device_copy_in(p->cx.device, p->state.data, host, sizeof host));
    succeed(optimizer_update(&p->cx, rule, &p->options, p->m->parameters, p->m->parameter_count, NULL,
                             &p->state));
    succeed(model_update_scales(&p->cx, p->m, comm_self()));
    return (double)sum / ROWS;
}

/* ---- the same model of modules ---- */

typedef struct modules {
    ott_module *m;
    ott_optimizer *o;
    ott_tensor *x, *y, *dy, *target;
} modules;

static void open_modules(modules *a, ott_context *c, const program *p, const char *recipe_name,
                         const int32_t *target) {
    const recipe *r = recipe_find(recipe_name);
    ott_norm_options norm_options;
    ott_adamw_options adamw;
    ott_module *parts[LAYERS + 2];
    for (int i = 0; i < LAYERS; i++) parts[i] = open_layer(c, r->activation, 9);
    ott_norm_options_init(&norm_options);
    norm_options.dim = DIM;
    norm_options.dtype = r->activation;
    succeed(ott_norm_open(c, &norm_options, &parts[LAYERS]));
    parts[LAYERS + 1] = open_linear(c, DIM, VOCAB, false, r->activation, 9);
    a->m = open_sequential(c, parts, LAYERS + 2);
    if (recipe_gemm_is_fp8(r, GEMM_COUNT)) {
        ott_convert_options o;
        ott_convert_options_init(&o);
        o.recipe = open_recipe(c, recipe_name);
        succeed(ott_convert_to_float8_training(a->m, &o, NULL));
        ott_recipe_close(o.recipe);
    }
    ott_adamw_options_init(&adamw);
    adamw.lr = 0.01;
    adamw.max_norm = 1.0;
    succeed(ott_adamw_open(c, a->m, &adamw, &a->o));
    a->x = open_tensor(c, r->activation, ROWS, DIM);
    a->y = open_tensor(c, r->activation, ROWS, VOCAB);
    a->dy = open_tensor(c, r->activation, ROWS, VOCAB);
    a->target = open_tensor(c, OTT_I32, 1, ROWS);
    exec cx = p->cx;
    succeed(embedding_forward(&cx, &p->m->embedding, &p->batch.token, &a->x->t));
    succeed(device_copy_in(cx.device, a->target->t.data, target, tensor_bytes(a->target->t)));
}

static void close_modules(modules *a) {
    ott_tensor *const all[] = {a->x, a->y, a->dy, a->target};
    for (int i = 0; i < 4; i++) ott_tensor_close(all[i]);
    ott_optimizer_close(a->o);
    ott_module_close(a->m);
}

static double step_modules(modules *a) {
    double loss;
    succeed(ott_optimizer_zero_grad(a->o));
    succeed(ott_module_forward(a->m, a->x, a->y));
    succeed(ott_cross_entropy_loss(a->y, a->target, &loss, a->dy));
    succeed(ott_module_backward(a->m, a->dy, NULL));
    succeed(ott_optimizer_step(a->o, NULL));
    return loss;
}

/* ---- side by side ---- */

/* Finds the program's parameter for parameter i of the modules. The program's
   "model.layers.0.mlp.up_proj.weight" is the modules' "0.mlp.up_proj.weight". Both lists have the same order;
   the modules have no embedding. */
static const parameter *twin(const program *p, const modules *a, int i) {
    const parameter *own = &p->m->parameters[i + 1];
    const char *name = ott_module_parameter_name(a->m, i);
    const char *inside = strncmp(own->name, "model.layers.", 13) == 0 ? own->name + 13 : NULL;
    if (inside && strcmp(inside, name) != 0) fail_msg("%s is listed with %s", own->name, name);
    return own;
}

static void copy_weights(const program *p, const modules *a) {
    assert_int_equal(ott_module_parameter_count(a->m), p->m->parameter_count - 1);
    for (int i = 0; i < p->m->parameter_count - 1; i++) {
        const parameter *own = twin(p, a, i);
        ott_tensor *value;
        exec cx = p->cx;
        succeed(ott_module_parameter_value(a->m, i, &value));
        succeed(op_convert(&cx, &(convert_args){.x = &own->value, .y = &value->t}));
    }
}

static void compare(const program *p, const tensor *a, const tensor *b, const char *name, const char *what) {
    int64_t bytes = tensor_bytes(*a);
    char *x = malloc((size_t)bytes), *y = malloc((size_t)bytes);
    assert_int_equal(bytes, tensor_bytes(*b));
    succeed(device_copy_out(p->cx.device, x, a->data, bytes));
    succeed(device_copy_out(p->cx.device, y, b->data, bytes));
    if (memcmp(x, y, (size_t)bytes) != 0) fail_msg("%s of %s differ", what, name);
    free(x);
    free(y);
}

static void compare_parameters(const program *p, const modules *a) {
    for (int i = 0; i < p->m->parameter_count - 1; i++) {
        const parameter *own = twin(p, a, i);
        ott_tensor *value, *gradient;
        succeed(ott_module_parameter_value(a->m, i, &value));
        succeed(ott_module_parameter_gradient(a->m, i, &gradient));
        compare(p, &own->grad, &gradient->t, own->name, "gradients");
        compare(p, &own->value, &value->t, own->name, "weights");
    }
}

static void check(const char *recipe_name) {
    program p;
    modules a;
    int32_t token[ROWS], target[ROWS];
    ott_context *c = open_context();
    for (int i = 0; i < ROWS; i++) {
        token[i] = (int32_t)(rng_u32(4, 0, (uint64_t)i) % VOCAB);
        target[i] = (int32_t)(rng_u32(4, 1, (uint64_t)i) % VOCAB);
    }
    open_program(&p, c, recipe_name, token, target);
    open_modules(&a, c, &p, recipe_name, target);
    copy_weights(&p, &a);
    for (int step = 0; step < STEPS; step++) {
        double program_loss = step_program(&p, step), module_loss = step_modules(&a);
        if (program_loss != module_loss)
            fail_msg("%s, step %d: the program's loss is %.9g, the modules' %.9g", recipe_name, step,
                     program_loss, module_loss);
        compare_parameters(&p, &a);
    }
    close_modules(&a);
    close_program(&p);
    ott_context_close(c);
}

static void test_same_steps(void **state) {
    (void)state;
    static const char *const recipes[] = {"fp32", "bf16", "tensorwise", "rowwise", "delayed", "mxfp8"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) check(recipes[i]);
}

/* The program's model loads a module's checkpoint. A run cannot resume from it, and the error says why. */
static void test_same_checkpoint(void **state) {
    (void)state;
    char parent[64], folder[128];
    checkpoint_state s;
    ott_context *c = open_context();
    ott_module *m = open_layer(c, OTT_BF16, 1);
    make_folder(parent);
    snprintf(folder, sizeof folder, "%s/step-0", parent);
    succeed(ott_checkpoint_save(folder, m, NULL));
    succeed(checkpoint_verify(c->account, folder, true, NULL, &s));
    assert_true(s.is_bare_module && !s.files[CHECKPOINT_MODEL].absent &&
                s.files[CHECKPOINT_OPTIMIZER].absent);
    succeed(checkpoint_check(c->account, folder));
    assert_error(checkpoint_state_match(&s, &(model_options){0}, folder), OTT_ERR_SHAPE,
                 "is the checkpoint of a module");
    ott_module_close(m);
    ott_context_close(c);
    remove_folder(parent);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_steps),
                                       cmocka_unit_test(test_same_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
