/* Checkpoints of modules: resumed training has the same bits; errors name damaged files and wrong tensors. */
#include "api/module/module.h"
#include "api/module_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 16 };

/* The precision of a run. */
typedef struct style {
    const char *recipe; /* recipe for FP8; NULL: the run is in bf16 */
    bool region;        /* true: FP8 in an autocast region; false: the module is converted to FP8 */
} style;

typedef struct run {
    ott_context *c;
    ott_module *m;
    ott_optimizer *o;
    ott_recipe *r;
    flow f;
    captured_log h;
    style style;
} run;

static ott_recipe *open_style_recipe(ott_context *c, const style *s) {
    if (!s->recipe) return NULL;
    ott_recipe *r = open_recipe(c, s->recipe);
    if (strcmp(s->recipe, "delayed") == 0) succeed(ott_recipe_set(r, "amax_history_len", "4"));
    return r;
}

static void convert(run *r, ott_recipe *with) {
    ott_convert_options o;
    ott_convert_options_init(&o);
    o.recipe = with;
    succeed(ott_convert_to_float8_training(r->m, &o, NULL));
}

/* Opens a transformer layer and a linear layer. Their initial weights depend on `seed`, so that loading a
   checkpoint must replace them. */
static void open_run(run *r, style s, uint64_t seed) {
    ott_adamw_options o;
    *r = (run){.style = s};
    r->c = open_logging_context(&r->h);
    ott_module *parts[] = {open_layer(r->c, OTT_BF16, seed), open_linear(r->c, 32, 8, true, OTT_BF16, seed)};
    r->m = open_sequential(r->c, parts, 2);
    r->r = open_style_recipe(r->c, &s);
    if (s.recipe && !s.region) convert(r, r->r);
    ott_adamw_options_init(&o);
    o.lr = 0.01;
    o.max_norm = 1.0;
    succeed(ott_adamw_open(r->c, r->m, &o, &r->o));
    r->f = open_flow(r->c, r->m, ROWS, 1);
}

static void close_run(run *r) {
    close_flow(&r->f);
    ott_optimizer_close(r->o);
    ott_module_close(r->m);
    ott_recipe_close(r->r);
    ott_context_close(r->c);
}

static void train(run *r, int from, int to) {
    ott_autocast_options region;
    ott_autocast_options_init(&region);
    region.recipe = r->r;
    for (int t = from; t < to; t++) {
        succeed(ott_tensor_fill_normal(r->f.x, (uint64_t)(10 + t), 1.0 + t));
        succeed(ott_tensor_fill_normal(r->f.dy, (uint64_t)(50 + t), 1.0 / (1 + t)));
        succeed(ott_optimizer_zero_grad(r->o));
        if (r->style.region) succeed(ott_autocast_begin(r->c, &region));
        forward(r->m, &r->f);
        if (r->style.region) succeed(ott_autocast_end(r->c));
        backward(r->m, &r->f);
        succeed(ott_optimizer_step(r->o, NULL));
    }
}

static void path_in(char out[128], const char *folder, const char *name) {
    snprintf(out, 128, "%s/%s", folder, name);
}

static void assert_file(const char *folder, const char *name, bool there) {
    char path[128];
    path_in(path, folder, name);
    if ((access(path, F_OK) == 0) != there) fail_msg("%s is %sthere", path, there ? "not " : "");
}

static void check_resume(style s) {
    char parent[64], folder[128];
    run full, first, second;
    make_folder(parent);
    path_in(folder, parent, "checkpoint");
    open_run(&full, s, 1);
    train(&full, 0, 6);
    open_run(&first, s, 1);
    train(&first, 0, 3);
    succeed(ott_checkpoint_save(folder, first.m, first.o));
    bool delayed = s.recipe && strcmp(s.recipe, "delayed") == 0;
    assert_file(folder, "model.safetensors", true);
    assert_file(folder, "optimizer.safetensors", true);
    assert_file(folder, "float8.safetensors", delayed);
    open_run(&second, s, 2);            /* other initial weights than `first` */
    if (s.region) train(&second, 7, 8); /* a module may run before it loads a checkpoint */
    succeed(ott_checkpoint_load(folder, second.m, second.o));
    assert_same_parameters(first.m, second.m);
    train(&second, 3, 6);
    assert_same_parameters(full.m, second.m);
    assert_same_values(full.f.y, second.f.y);
    assert_same_values(full.f.dx, second.f.dx);
    if (delayed)
        assert_true(scale_of(full.m, "0.mlp.up_proj", "grad_output") ==
                    scale_of(second.m, "0.mlp.up_proj", "grad_output"));
    assert_int_equal(count_logged(&second.h, "Float8 state"), 0);
    close_run(&full);
    close_run(&first);
    close_run(&second);
    remove_folder(parent);
}

static void test_resume(void **state) {
    (void)state;
    const style all[] = {
        {NULL, false}, {"tensorwise", false}, {"delayed", false}, {"delayed", true}, {"mxfp8", true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_resume(all[i]);
}

/* A module that loads a checkpoint before its first region must still start with the checkpoint's scales. */
static void test_fresh_module_in_a_region(void **state) {
    (void)state;
    const style s = {"delayed", true};
    char parent[64], folder[128], again[128];
    run full, first, second;
    make_folder(parent);
    path_in(folder, parent, "a");
    path_in(again, parent, "b");
    open_run(&full, s, 1);
    train(&full, 0, 6);
    open_run(&first, s, 1);
    train(&first, 0, 3);
    succeed(ott_checkpoint_save(folder, first.m, first.o));
    open_run(&second, s, 2);
    succeed(ott_checkpoint_load(folder, second.m, second.o));
    /* a save without training writes the state that was loaded */
    succeed(ott_checkpoint_save(again, second.m, second.o));
    close_run(&second);
    open_run(&second, s, 3);
    succeed(ott_checkpoint_load(again, second.m, second.o));
    train(&second, 3, 6);
    assert_same_parameters(full.m, second.m);
    close_run(&full);
    close_run(&first);
    close_run(&second);
    remove_folder(parent);
}

/* Loads a checkpoint into a module with another recipe. */
static void test_other_recipe(void **state) {
    (void)state;
    char parent[64], delayed[128], plain[128];
    run first, second;
    make_folder(parent);
    path_in(delayed, parent, "delayed");
    path_in(plain, parent, "plain");
    open_run(&first, (style){"delayed", false}, 1);
    train(&first, 0, 2);
    succeed(ott_checkpoint_save(delayed, first.m, NULL));
    assert_file(delayed, "optimizer.safetensors", false);
    open_run(&second, (style){"tensorwise", false}, 2);
    succeed(ott_checkpoint_load(delayed, second.m, NULL));
    assert_same_parameters(first.m, second.m);
    assert_int_equal(
        count_logged(&second.h,
                     "Float8 state of 1 (weight, recipe delayed) dropped: the module runs tensorwise"),
        1);
    assert_int_equal(count_logged(&second.h, " dropped: "), 24);
    assert_error(ott_checkpoint_load(delayed, second.m, second.o), OTT_ERR_FORMAT,
                 "was saved without an optimizer");
    succeed(ott_checkpoint_save(plain, second.m, second.o));
    succeed(ott_checkpoint_load(plain, first.m, first.o));
    assert_int_equal(count_logged(&first.h, "Float8 state of 0.mlp.down_proj (input) starts from scratch"),
                     1);
    assert_true(scale_of(first.m, "0.mlp.down_proj", "input") == 1.0f);
    close_run(&first);
    close_run(&second);
    remove_folder(parent);
}

/* Saves the longest allowed amax history. A module with a history of 2 loads only the newest 2 amaxes. */
static void test_history_lengths(void **state) {
    (void)state;
    char parent[64], folder[128];
    ott_context *c = open_context();
    ott_module *m[2];
    ott_recipe *r[2];
    make_folder(parent);
    path_in(folder, parent, "x");
    for (int i = 0; i < 2; i++) {
        ott_autocast_options o;
        m[i] = open_linear(c, 16, 16, false, OTT_BF16, 1);
        r[i] = open_recipe(c, "delayed");
        succeed(ott_recipe_set(r[i], "amax_history_len", i == 0 ? "1048576" : "2"));
        flow f = open_flow(c, m[i], ROWS, 1);
        ott_autocast_options_init(&o);
        o.recipe = r[i];
        for (int t = 0; t < 3; t++) {
            fill(f.x, (float)(8 >> t));
            succeed(ott_autocast_begin(c, &o));
            forward(m[i], &f);
            succeed(ott_autocast_end(c));
        }
        close_flow(&f);
    }
    assert_true(scale_of(m[0], "", "input") == 56.0f && scale_of(m[1], "", "input") == 112.0f);
    succeed(ott_checkpoint_save(folder, m[0], NULL));
    succeed(ott_checkpoint_load(folder, m[1], NULL));
    float scale, amax;
    succeed(ott_module_scale(m[1], "input", &scale, &amax));
    assert_true(scale == 56.0f && amax == 2.0f); /* the history's last entry counts for the next step */
    for (int i = 0; i < 2; i++) {
        ott_module_close(m[i]);
        ott_recipe_close(r[i]);
    }
    ott_context_close(c);
    remove_folder(parent);
}

/* ---- checkpoints that do not fit ---- */

static void test_mismatch(void **state) {
    (void)state;
    char parent[64], folder[128];
    ott_context *c = open_context();
    ott_module *m = open_linear(c, 8, 8, true, OTT_BF16, 1), *wide = open_linear(c, 8, 16, true, OTT_BF16, 1),
               *bare = open_linear(c, 8, 8, false, OTT_BF16, 1), *layer = open_layer(c, OTT_BF16, 1);
    make_folder(parent);
    path_in(folder, parent, "x");
    succeed(ott_checkpoint_save(folder, m, NULL));
    assert_error(ott_checkpoint_load(folder, wide, NULL), OTT_ERR_SHAPE, "weight");
    assert_error(ott_checkpoint_load(folder, bare, NULL), OTT_ERR_SHAPE,
                 "has a tensor bias that the model does not have");
    assert_error(ott_checkpoint_load(folder, layer, NULL), OTT_ERR_NOT_FOUND, "input_layernorm.weight");
    assert_error(ott_checkpoint_load("/tmp/ottava-none", m, NULL), OTT_ERR_NOT_FOUND,
                 "/tmp/ottava-none/state.json");
    assert_error(ott_checkpoint_load(parent, m, NULL), OTT_ERR_FORMAT, "is not a complete checkpoint");
    assert_error(ott_checkpoint_save(parent, m, NULL), OTT_ERR_IO, "exists and is not a checkpoint");
    assert_error(ott_checkpoint_save("/proc/none/x", m, NULL), OTT_ERR_NOT_FOUND, "/proc/none");
    fill(value_of(m, "bias"), 5.0f);
    succeed(ott_checkpoint_save(folder, m, NULL)); /* this call replaces the module's own checkpoint */
    fill(value_of(m, "bias"), 0.0f);
    succeed(ott_checkpoint_load(folder, m, NULL));
    float *bias = values_of(value_of(m, "bias"));
    assert_true(bias[7] == 5.0f);
    free(bias);
    ott_module *all[] = {m, wide, bare, layer};
    for (int i = 0; i < 4; i++) ott_module_close(all[i]);
    ott_context_close(c);
    remove_folder(parent);
}

/* A module's weights are drawn when they are first needed, or not at all if a checkpoint is loaded first. */
static void test_weights_drawn_late(void **state) {
    (void)state;
    char parent[64], folder[128];
    ott_context *c = open_context();
    ott_module *m = open_layer(c, OTT_BF16, 1), *loaded = open_layer(c, OTT_BF16, 2),
               *part = open_layer(c, OTT_BF16, 1);
    make_folder(parent);
    path_in(folder, parent, "x");
    assert_false(m->has_weights);
    succeed(ott_checkpoint_save(folder, m, NULL));
    assert_true(m->has_weights && !loaded->has_weights);
    succeed(ott_checkpoint_load(folder, loaded, NULL));
    assert_true(loaded->has_weights);
    assert_same_parameters(m, loaded);
    /* in another tree a parameter has a longer name, but its initial weights are the same */
    ott_module *all = open_sequential(c, &part, 1);
    assert_same_values(value_of(m, "mlp.up_proj.weight"), value_of(all, "0.mlp.up_proj.weight"));
    ott_module_close(m);
    ott_module_close(loaded);
    ott_module_close(all);
    ott_context_close(c);
    remove_folder(parent);
}

/* Loads and replaces a checkpoint folder of an older version of the library. */
static void test_old_format(void **state) {
    (void)state;
    char parent[64], path[160];
    ott_context *c = open_context();
    ott_module *m = open_linear(c, 8, 8, true, OTT_BF16, 1);
    make_folder(parent);
    snprintf(path, sizeof path, "%s/module.json", parent);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"version\": 1}\n", f);
    assert_int_equal(fclose(f), 0);
    assert_error(ott_checkpoint_load(parent, m, NULL), OTT_ERR_UNSUPPORTED, "an earlier version");
    succeed(ott_checkpoint_save(parent, m, NULL)); /* replaces the checkpoint of the older version */
    succeed(ott_checkpoint_load(parent, m, NULL));
    assert_file(parent, "module.json", false);
    /* with a file config.toml the folder looks like the checkpoint of a run, which must not be replaced */
    snprintf(path, sizeof path, "%s/config.toml", parent);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_error(ott_checkpoint_save(parent, m, NULL), OTT_ERR_IO, "is not a checkpoint of a module");
    ott_module_close(m);
    ott_context_close(c);
    remove_folder(parent);
}

/* ---- damage ---- */

static long file_bytes(const char *path) {
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    return (long)s.st_size;
}

static void flip(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc(c ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

/* If any one bit of a checkpoint is flipped, loading fails and the module stays unchanged. */
static void test_damage(void **state) {
    (void)state;
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "float8.safetensors",
                                        "state.json"};
    char parent[64], folder[128], path[160];
    run r, other;
    make_folder(parent);
    path_in(folder, parent, "x");
    open_run(&r, (style){"delayed", false}, 1);
    open_run(&other, (style){"delayed", false}, 2);
    train(&r, 0, 2);
    succeed(ott_checkpoint_save(folder, r.m, r.o));
    float *before = values_of(value_of(other.m, "1.weight"));
    for (int n = 0; n < 4; n++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[n]);
        long bytes = file_bytes(path);
        for (long i = 0; i < 24; i++) {
            long at = (bytes - 1) * i / 23;
            flip(path, at);
            ott_status status = ott_checkpoint_load(folder, other.m, other.o);
            if (status == OTT_OK) fail_msg("%s: byte %ld of %ld: not detected", names[n], at, bytes);
            if (!strstr(ott_error_text(), folder)) fail_msg("\"%s\" names no file", ott_error_text());
            flip(path, at);
        }
    }
    float *after = values_of(value_of(other.m, "1.weight"));
    assert_memory_equal(before, after, 8 * 32 * sizeof *before);
    free(before);
    free(after);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    flip(path, file_bytes(path) - 1);
    assert_error(ott_checkpoint_load(folder, other.m, other.o), OTT_ERR_FORMAT,
                 "model.safetensors: is damaged");
    assert_int_equal(truncate(path, file_bytes(path) - 4), 0);
    assert_error(ott_checkpoint_load(folder, other.m, other.o), OTT_ERR_FORMAT, "model.safetensors");
    assert_int_equal(unlink(path), 0);
    assert_error(ott_checkpoint_load(folder, other.m, other.o), OTT_ERR_FORMAT,
                 "model.safetensors: is missing");
    close_run(&r);
    close_run(&other);
    remove_folder(parent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume),       cmocka_unit_test(test_fresh_module_in_a_region),
        cmocka_unit_test(test_other_recipe), cmocka_unit_test(test_history_lengths),
        cmocka_unit_test(test_mismatch),     cmocka_unit_test(test_damage),
        cmocka_unit_test(test_old_format),   cmocka_unit_test(test_weights_drawn_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
