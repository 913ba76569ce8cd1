/* Wrong calls with modules: errors name the function and the argument. Nothing leaks if memory runs out. */
#include "api/context.h"
#include "api/module_case.h"
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BAD OTT_ERR_ARGUMENT

/* ---- handles ---- */

static void test_null(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, 8, 8, true, OTT_BF16, 1), *out;
    flow f = open_flow(c, m, 4, 1);
    ott_linear_options lo;
    ott_optimizer *o;
    ott_tensor *t;
    ott_linear_options_init(&lo);
    assert_error(ott_linear_open(NULL, &lo, &out), BAD, "ott_linear_open: context is NULL");
    assert_error(ott_linear_open(c, NULL, &out), BAD, "ott_linear_open: options is NULL");
    assert_error(ott_linear_open(c, &lo, NULL), BAD, "ott_linear_open: out is NULL");
    assert_error(ott_norm_open(c, NULL, &out), BAD, "ott_norm_open: options is NULL");
    assert_error(ott_attention_open(c, NULL, &out), BAD, "ott_attention_open: options is NULL");
    assert_error(ott_mlp_open(c, NULL, &out), BAD, "ott_mlp_open: options is NULL");
    assert_error(ott_transformer_layer_open(c, NULL, &out), BAD,
                 "ott_transformer_layer_open: options is NULL");
    assert_error(ott_sequential_open(c, NULL, 1, &out), BAD, "ott_sequential_open: modules is NULL");
    assert_error(ott_sequential_open(c, &m, 0, &out), BAD, "count = 0");
    assert_error(ott_sequential_open(c, (ott_module *const[]){m, NULL}, 2, &out), BAD, "modules[1] is NULL");
    assert_error(ott_module_forward(NULL, f.x, f.y), BAD, "ott_module_forward: module is NULL");
    assert_error(ott_module_forward(m, NULL, f.y), BAD, "ott_module_forward: x is NULL");
    assert_error(ott_module_forward(m, f.x, NULL), BAD, "ott_module_forward: y is NULL");
    assert_error(ott_module_backward(m, NULL, f.dx), BAD, "ott_module_backward: dy is NULL");
    assert_error(ott_module_set_training(NULL, 1), BAD, "ott_module_set_training: module is NULL");
    assert_error(ott_module_set_sequences(m, NULL, 2), BAD, "ott_module_set_sequences: start is NULL");
    assert_error(ott_module_set_micro_batch(m, -2), BAD, "ott_module_set_micro_batch: index = -2");
    assert_error(ott_module_parameter_value(m, 2, &t), BAD, "index = 2: the module has 2 parameters");
    assert_error(ott_module_parameter_gradient(m, -1, &t), BAD, "index = -1");
    assert_error(ott_module_scale(m, NULL, NULL, NULL), BAD, "ott_module_scale: which is NULL");
    assert_error(ott_convert_to_float8_training(NULL, NULL, NULL), BAD,
                 "ott_convert_to_float8_training: module is NULL");
    assert_error(ott_autocast_begin(NULL, NULL), BAD, "ott_autocast_begin: context is NULL");
    assert_error(ott_autocast_end(NULL), BAD, "ott_autocast_end: context is NULL");
    assert_error(ott_adamw_open(c, NULL, NULL, &o), BAD, "ott_adamw_open: module is NULL");
    assert_error(ott_optimizer_step(NULL, NULL), BAD, "ott_optimizer_step: optimizer is NULL");
    assert_error(ott_optimizer_zero_grad(NULL), BAD, "ott_optimizer_zero_grad: optimizer is NULL");
    assert_error(ott_optimizer_set_lr(NULL, 1), BAD, "ott_optimizer_set_lr: optimizer is NULL");
    assert_error(ott_checkpoint_save(NULL, m, NULL), BAD, "ott_checkpoint_save: folder is NULL");
    assert_error(ott_checkpoint_save("", m, NULL), BAD, "ott_checkpoint_save: folder is empty");
    assert_error(ott_checkpoint_load("x", NULL, NULL), BAD, "ott_checkpoint_load: module is NULL");
    assert_null(ott_module_kind(NULL));
    assert_int_equal(ott_module_parameter_count(NULL), -1);
    assert_int_equal(ott_module_in_features(NULL), -1);
    assert_int_equal(ott_module_dtype(NULL), OTT_DTYPE_COUNT);
    assert_null(ott_module_child(m, NULL));
    assert_null(ott_module_parameter_name(m, 2));
    assert_non_null(strstr(ott_error_text(), "ott_module_parameter_name: index = 2"));
    assert_int_equal(ott_module_parameter_index(m, "weigt"), -1);
    ott_module_close(NULL);
    ott_optimizer_close(NULL);
    ott_linear_options_init(NULL);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

/* Calls with a tensor instead of a module, with a closed module, and with a module of another context. */
static void test_wrong_handles(void **state) {
    (void)state;
    ott_context *c = open_context(), *other = open_context();
    ott_module *m = open_linear(c, 8, 8, true, OTT_BF16, 1),
               *foreign = open_linear(other, 8, 8, true, OTT_BF16, 1), *out;
    ott_optimizer *o;
    ott_recipe *r = open_recipe(other, "delayed");
    flow f = open_flow(c, m, 4, 1), g = open_flow(other, foreign, 4, 1);
    ott_autocast_options ao;
    ott_convert_options co;
    ott_autocast_options_init(&ao);
    ott_convert_options_init(&co);
    ao.recipe = co.recipe = r;
    assert_error(ott_module_forward((ott_module *)(void *)f.x, f.x, f.y), BAD,
                 "module is a tensor; give a module");
    assert_error(ott_module_forward(m, (ott_tensor *)(void *)m, f.y), BAD, "x is a module; give a tensor");
    assert_error(ott_module_forward(m, g.x, f.y), BAD, "ott_module_forward: x belongs to another context");
    assert_error(ott_autocast_begin(c, &ao), BAD, "recipe belongs to another context");
    assert_error(ott_convert_to_float8_training(m, &co, NULL), BAD, "recipe belongs to another context");
    assert_error(ott_adamw_open(c, foreign, NULL, &o), BAD, "module belongs to another context");
    assert_error(ott_sequential_open(c, (ott_module *const[]){m, foreign}, 2, &out), BAD,
                 "modules[1] belongs to another");
    assert_error(ott_sequential_open(c, (ott_module *const[]){m, m}, 2, &out), BAD,
                 "modules[0] and modules[1] are the same");
    succeed(ott_adamw_open(c, m, NULL, &o));
    ott_module_close(m);
    assert_error(ott_module_forward(m, f.x, f.y), BAD, "module is a module that has been closed");
    assert_error(ott_module_set_training(m, 0), BAD, "has been closed");
    assert_error(ott_optimizer_step(o, NULL), BAD,
                 "ott_optimizer_step: the optimizer's module is a module that has been closed");
    ott_optimizer_close(o);
    assert_error(ott_optimizer_step(o, NULL), BAD, "optimizer that has been closed");
    ott_optimizer_close(o);
    ott_module_close(m);
    close_flow(&f);
    close_flow(&g);
    ott_recipe_close(r);
    ott_module_close(foreign);
    ott_context_close(c);
    ott_context_close(other);
}

/* ---- tensors ---- */

static void test_tensors(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *parts[] = {open_linear(c, 8, 16, true, OTT_BF16, 1),
                           open_linear(c, 16, 4, true, OTT_BF16, 2)},
               *out;
    assert_error(ott_sequential_open(c, (ott_module *const[]){parts[1], parts[0]}, 2, &out), OTT_ERR_SHAPE,
                 "modules[0] gives [M, 4], but modules[1] needs [M, 8]");
    ott_module *f32 = open_linear(c, 4, 4, true, OTT_F32, 3);
    assert_error(ott_sequential_open(c, (ott_module *const[]){parts[1], f32}, 2, &out), OTT_ERR_DTYPE,
                 "modules[1] needs");
    ott_module *m = open_sequential(c, parts, 2);
    flow f = open_flow(c, m, 6, 1);
    ott_tensor *narrow = open_tensor(c, OTT_BF16, 6, 7), *wrong = open_tensor(c, OTT_F32, 6, 8),
               *empty = open_tensor(c, OTT_BF16, 0, 8), *tall = open_tensor(c, OTT_BF16, 7, 4);
    assert_error(ott_module_forward(m, narrow, f.y), OTT_ERR_SHAPE,
                 "x is [6, 7], but sequential needs [M, 8]");
    assert_error(ott_module_forward(m, wrong, f.y), OTT_ERR_DTYPE, "ott_module_forward: x is");
    assert_error(ott_module_forward(m, empty, f.y), OTT_ERR_SHAPE, "x is [0, 8]");
    assert_error(ott_module_forward(m, f.x, tall), OTT_ERR_SHAPE, "y is [7, 4], but sequential needs [6, 4]");
    forward(m, &f);
    assert_error(ott_module_backward(m, tall, f.dx), OTT_ERR_SHAPE,
                 "dy is [7, 4], but sequential needs [6, 4]");
    assert_error(ott_module_backward(m, f.dy, narrow), OTT_ERR_SHAPE,
                 "dx is [6, 7], but sequential needs [6, 8]");
    assert_error(ott_module_backward(m, f.dy, wrong), OTT_ERR_DTYPE, "dx is");
    backward(m, &f); /* backward works, because the failed calls kept the state that forward saved */
    ott_module *square = open_linear(c, 8, 8, true, OTT_BF16, 4);
    assert_error(ott_module_forward(square, f.x, f.x), BAD, "x and y overlap");
    assert_error(ott_module_forward(parts[0], f.x, f.y), BAD,
                 "module is linear \"0\", a part of another module: run the whole");
    assert_error(ott_sequential_open(c, parts, 1, &out), BAD, "modules[0] is part of another module already");
    ott_tensor *tensors[] = {narrow, wrong, empty, tall};
    for (int i = 0; i < 4; i++) ott_tensor_close(tensors[i]);
    close_flow(&f);
    ott_module_close(square);
    ott_module_close(f32);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_sequences(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_transformer_layer_options lo;
    ott_module *m;
    ott_transformer_layer_options_init(&lo);
    lo.dim = 16;
    lo.heads = 2;
    lo.hidden = 16;
    lo.max_positions = 8;
    succeed(ott_transformer_layer_open(c, &lo, &m));
    flow f = open_flow(c, m, 12, 1);
    assert_error(ott_module_forward(m, f.x, f.y), OTT_ERR_SHAPE,
                 "from row 0 to 12 of x is longer than max_positions = 8");
    succeed(ott_module_set_sequences(m, (int64_t[]){0, 20}, 2));
    assert_error(ott_module_forward(m, f.x, f.y), OTT_ERR_SHAPE,
                 "x has 12 rows, but a sequence begins at row 20");
    assert_error(ott_module_set_sequences(m, (int64_t[]){0, 4, 4}, 3), BAD, "start[2] = 4");
    assert_error(ott_module_set_sequences(m, (int64_t[]){1}, 1), BAD, "start[0] = 1");
    assert_error(ott_module_set_sequences(m, NULL, -1), BAD, "count = -1");
    succeed(ott_module_set_sequences(m, (int64_t[]){0, 6}, 2));
    forward(m, &f);
    backward(m, &f);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

/* ---- options ---- */

static void test_options(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *out, *m = open_linear(c, 8, 8, true, OTT_BF16, 1);
    ott_optimizer *optimizer;
    ott_linear_options lo;
    ott_attention_options ao;
    ott_norm_options no;
    ott_adamw_options wo;
    ott_linear_options_init(&lo);
    assert_error(ott_linear_open(c, &lo, &out), BAD, "ott_linear_open: in_features = 0");
    lo.in_features = 8;
    lo.out_features = -3;
    assert_error(ott_linear_open(c, &lo, &out), BAD, "out_features = -3");
    lo.out_features = 8;
    lo.dtype = OTT_E4M3;
    assert_error(ott_linear_open(c, &lo, &out), OTT_ERR_DTYPE, "ott_linear_open: dtype is");
    lo.dtype = (ott_dtype)99;
    assert_error(ott_linear_open(c, &lo, &out), OTT_ERR_DTYPE, "no number format");
    lo.dtype = OTT_F32;
    lo.init_std = NAN;
    assert_error(ott_linear_open(c, &lo, &out), BAD, "init_std = ");
    lo.struct_size = 0;
    assert_error(ott_linear_open(c, &lo, &out), BAD, "fill the struct with ott_linear_options_init first");
    ott_attention_options_init(&ao);
    ao.dim = 30;
    ao.heads = 4;
    assert_error(ott_attention_open(c, &ao, &out), BAD, "dim = 30 is not a multiple of heads = 4");
    ao.dim = 20;
    assert_error(ott_attention_open(c, &ao, &out), BAD, "head_dim = 5 must be even");
    ao.head_dim = 4;
    ao.kv_heads = 3;
    assert_error(ott_attention_open(c, &ao, &out), BAD, "heads = 4 is not a multiple of kv_heads = 3");
    ao.kv_heads = 2;
    ao.window = -1;
    assert_error(ott_attention_open(c, &ao, &out), BAD, "window = -1");
    ott_norm_options_init(&no);
    no.dim = 8;
    no.epsilon = 0;
    assert_error(ott_norm_open(c, &no, &out), BAD, "epsilon = 0");
    ott_adamw_options_init(&wo);
    wo.beta1 = 1;
    assert_error(ott_adamw_open(c, m, &wo, &optimizer), BAD, "beta1 = 1: give a number in [0, 1)");
    wo.beta1 = 0.9;
    wo.lr = NAN;
    assert_error(ott_adamw_open(c, m, &wo, &optimizer), BAD, "lr = ");
    ott_convert_options co;
    ott_convert_options_init(&co);
    co.filter_fqn_count = 1;
    assert_error(ott_convert_to_float8_training(m, &co, NULL), BAD, "filter_fqns is NULL");
    co.filter_fqns = (const char *const[]){NULL};
    assert_error(ott_convert_to_float8_training(m, &co, NULL), BAD, "filter_fqns[0] is NULL");
    ott_module_close(m);
    ott_context_close(c);
}

/* ---- regions ---- */

static void test_regions(void **state) {
    (void)state;
    ott_context *c = open_context();
    assert_error(ott_autocast_end(c), BAD, "ott_autocast_end: no region is open");
    for (int i = 0; i < 32; i++) succeed(ott_autocast_begin(c, NULL));
    assert_error(ott_autocast_begin(c, NULL), BAD, "32 regions are open");
    for (int i = 0; i < 32; i++) succeed(ott_autocast_end(c));
    assert_error(ott_autocast_end(c), BAD, "no region is open");
    assert_int_equal(ott_autocast_depth(c), 0);
    succeed(ott_autocast_begin(c, NULL)); /* no call ends this region */
    ott_context_close(c);
}

/* ---- threads and callbacks ---- */

typedef struct attempt {
    ott_module *m;
    flow *f;
    ott_status status;
    char text[256];
} attempt;

static void *try_forward(void *user) {
    attempt *a = user;
    a->status = ott_module_forward(a->m, a->f->x, a->f->y);
    snprintf(a->text, sizeof a->text, "%s", ott_error_text());
    return NULL;
}

/* A filter callback: runs while a conversion is in progress on the main thread. */
static int filter_in_use(void *user, const char *fqn, const ott_module *module) {
    attempt *a = user;
    pthread_t thread;
    ott_tensor *t;
    (void)fqn;
    assert_int_equal(pthread_create(&thread, NULL, try_forward, a), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_error(ott_module_forward(a->m, a->f->x, a->f->y), BAD,
                 "ott_module_forward: cannot be called from a callback");
    ott_module_close(a->m);                              /* no effect during a conversion */
    assert_int_equal(ott_module_in_features(module), 8); /* getters are allowed */
    succeed(ott_module_parameter_value(a->m, 0, &t));
    return 1;
}

static void test_threads(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, 8, 8, true, OTT_BF16, 1);
    flow f = open_flow(c, m, 4, 1);
    attempt a = {.m = m, .f = &f};
    ott_convert_options o;
    ott_convert_options_init(&o);
    o.filter = filter_in_use;
    o.user = &a;
    succeed(ott_convert_to_float8_training(m, &o, NULL));
    assert_int_equal(a.status, BAD);
    assert_non_null(strstr(a.text, "ott_module_forward: the context is in use by another thread"));
    pthread_t thread; /* another thread may use the context after this call */
    assert_int_equal(pthread_create(&thread, NULL, try_forward, &a), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(a.status, OTT_OK);
    backward(m, &f);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

/* ---- memory that runs out ---- */

typedef struct objects {
    ott_module *parts[2], *m;
    ott_optimizer *o;
    ott_recipe *r;
} objects;

#define TRY_HERE(call)                                                                                       \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) return status_;                                                               \
    } while (0)

static ott_status run_all(ott_context *c, objects *all, ott_tensor *x, ott_tensor *y, const char *folder) {
    ott_transformer_layer_options lo;
    ott_linear_options no;
    ott_convert_options co;
    const char *const filter[] = {"q_proj"};
    ott_transformer_layer_options_init(&lo);
    ott_linear_options_init(&no);
    ott_convert_options_init(&co);
    lo.dim = no.in_features = no.out_features = 16;
    lo.heads = 2;
    lo.hidden = 16;
    TRY_HERE(ott_recipe_open(c, "delayed", &all->r));
    TRY_HERE(ott_transformer_layer_open(c, &lo, &all->parts[0]));
    TRY_HERE(ott_linear_open(c, &no, &all->parts[1]));
    TRY_HERE(ott_sequential_open(c, all->parts, 2, &all->m));
    co.recipe = all->r;
    co.filter_fqns = filter;
    co.filter_fqn_count = 1;
    TRY_HERE(ott_convert_to_float8_training(all->m, &co, NULL));
    TRY_HERE(ott_adamw_open(c, all->m, NULL, &all->o));
    TRY_HERE(ott_autocast_begin(c, NULL));
    ott_status status = ott_module_forward(all->m, x, y);
    ott_status ended = ott_autocast_end(c);
    TRY_HERE(status);
    TRY_HERE(ended);
    TRY_HERE(ott_module_backward(all->m, y, NULL));
    TRY_HERE(ott_optimizer_step(all->o, NULL));
    TRY_HERE(ott_checkpoint_save(folder, all->m, all->o));
    return ott_checkpoint_load(folder, all->m, all->o);
}

static void close_all(objects *all) {
    ott_optimizer_close(all->o);
    ott_module_close(all->m);
    ott_module_close(all->parts[0]); /* closing a part has no effect if a sequential owns it */
    ott_module_close(all->parts[1]);
    ott_recipe_close(all->r);
}

/* Lets each allocation fail once. The call returns an error, nothing leaks (a debug build checks this when
   the context is closed), and the same calls then succeed. */
static void test_memory(void **state) {
    (void)state;
    char parent[64], folder[128];
    bool done = false;
    make_folder(parent);
    snprintf(folder, sizeof folder, "%s/x", parent);
    for (int64_t n = 1; !done; n += n < 60 ? 1 : 7) {
        ott_context *c = open_context();
        ott_tensor *x = open_normal(c, OTT_BF16, 5, 16, 1), *y = open_tensor(c, OTT_BF16, 5, 16);
        objects all = {0}, again = {0};
        mem_fail_after(c->account, n);
        ott_status status = run_all(c, &all, x, y, folder);
        mem_fail_after(c->account, 0);
        done = status == OTT_OK;
        if (!done && status != OTT_ERR_MEMORY) fail_msg("allocation %d: %s", (int)n, ott_error_text());
        close_all(&all);
        succeed(run_all(c, &again, x, y, folder));
        close_all(&again);
        ott_tensor_close(x);
        ott_tensor_close(y);
        ott_context_close(c);
        if (n > 20000) fail_msg("the call fails with any number of allocations");
    }
    remove_folder(parent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null),    cmocka_unit_test(test_wrong_handles),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_options), cmocka_unit_test(test_regions),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
