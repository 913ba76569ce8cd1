/* Tests checkpoints that are damaged, incomplete, forged or of another model. Loading must fail with one line
   that names the file, the damage and the fix, and must not change the model. */
#define _GNU_SOURCE
#include "base/file/file.h"
#include "checkpoint/run_folder.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define WAY_OUT "--checkpoint.load_path="

/* Loads the checkpoint of step `step` into a model with options `o`. After a failure the model must be
   unchanged. */
static ott_status try_load_as(run_folder *f, const model_options *o, int step) {
    model *m = small_model(f, o, MODEL_TRAINING, 5), *before = small_model(f, o, MODEL_TRAINING, 5);
    bool fell_back;
    run_state run = {.step = -7};
    ott_status status = checkpoint_load(m, NULL, NULL, at(f, "step-%d", step), &run, &fell_back);
    assert_int_equal(run.step, status == OTT_OK ? step : -7);
    if (status != OTT_OK) assert_same_model(m, before);
    model_close(m);
    model_close(before);
    return status;
}

static ott_status try_load(run_folder *f, int step) {
    model_options o = small_options();
    o.vocab = 64;
    return try_load_as(f, &o, step);
}

static ott_status try_find(run_folder *f, int step) {
    char *path;
    ott_status status = checkpoint_find(f->account, at(f, "step-%d", step), f->root, &path);
    mem_free(f->account, path);
    return status;
}

/* Saves steps 10 and 20. The tests damage step 20. */
static run_folder *two_steps(void **state) {
    save_step(*state, 10, 1, 0);
    save_step(*state, 20, 2, 0);
    assert_int_equal(try_load(*state, 20), OTT_OK);
    return *state;
}

static void flip_byte(run_folder *f, const char *path, int64_t offset) {
    int64_t bytes;
    char *data = read_text(f, path, &bytes);
    data[offset < 0 ? bytes + offset : offset] ^= 0x10;
    write_bytes(path, data, bytes);
    mem_free(f->account, data);
}

/* ---- files ---- */

static void test_truncated(void **state) {
    run_folder *f = two_steps(state);
    const char *const names[] = {"model.safetensors", "optimizer.safetensors", "config.toml"};
    for (int i = 0; i < 3; i++) {
        const char *path = at(f, "step-20/%s", names[i]);
        int64_t bytes;
        char *data = read_text(f, path, &bytes);
        assert_int_equal(truncate(path, bytes - 1), 0);
        assert_error(try_find(f, 20), OTT_ERR_FORMAT, names[i], "is truncated", WAY_OUT, "/step-10", NULL);
        assert_error(try_load(f, 20), OTT_ERR_FORMAT, names[i], "is truncated", WAY_OUT, "/step-10", NULL);
        assert_int_equal(truncate(path, 0), 0);
        assert_error(try_load(f, 20), OTT_ERR_FORMAT, names[i], "is truncated", NULL);
        write_bytes(path, data, bytes);
        mem_free(f->account, data);
    }
    assert_int_equal(try_load(f, 20), OTT_OK);
}

static void test_grown(void **state) {
    run_folder *f = two_steps(state);
    int64_t bytes;
    char *data = read_text(f, at(f, "step-20/model.safetensors"), &bytes);
    /* the file grows by the NUL that file_read adds */
    write_bytes(at(f, "step-20/model.safetensors"), data, bytes + 1);
    mem_free(f->account, data);
    assert_error(try_find(f, 20), OTT_ERR_FORMAT, "model.safetensors", "has grown", "/step-10", NULL);
}

static void test_flipped_byte(void **state) {
    run_folder *f = two_steps(state);
    const char *const names[] = {"model.safetensors", "optimizer.safetensors", "config.toml"};
    const int64_t offsets[] = {0, 20, 3000, -1};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) {
            const char *path = at(f, "step-20/%s", names[i]);
            flip_byte(f, path, offsets[k]);
            assert_error(try_load(f, 20), OTT_ERR_FORMAT, names[i], "is damaged", WAY_OUT, "/step-10", NULL);
            flip_byte(f, at(f, "step-20/%s", names[i]), offsets[k]);
        }
    assert_int_equal(try_load(f, 20), OTT_OK);
}

static void test_missing(void **state) {
    run_folder *f = two_steps(state);
    const char *const names[] = {"config.toml", "float8.safetensors", "optimizer.safetensors",
                                 "model.safetensors", "state.json"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(unlink(at(f, "step-20/%s", names[i])), 0);
        assert_error(try_find(f, 20), OTT_ERR_FORMAT, names[i], WAY_OUT, "/step-10", NULL);
    }
    char *path;
    assert_error(checkpoint_find(f->account, "latest", f->root, &path), OTT_ERR_FORMAT, "step-20",
                 "not a complete checkpoint", "/step-10", NULL);
}

static void test_a_folder_for_a_file(void **state) {
    run_folder *f = two_steps(state);
    assert_int_equal(unlink(at(f, "step-20/model.safetensors")), 0);
    assert_int_equal(file_make_folder(at(f, "step-20/model.safetensors")), OTT_OK);
    assert_error(try_find(f, 20), OTT_ERR_ARGUMENT, "model.safetensors", "a folder", "/step-10", NULL);
}

/* An error about damage suggests an earlier checkpoint without damage, or reports that there is none. */
static void test_advice(void **state) {
    run_folder *f = two_steps(state);
    save_step(f, 30, 3, 0);
    flip_byte(f, at(f, "step-20/model.safetensors"), -1);
    flip_byte(f, at(f, "step-30/model.safetensors"), -1);
    assert_error(try_load(f, 30), OTT_ERR_FORMAT, "step-30/model.safetensors", WAY_OUT, "/step-10", NULL);
    flip_byte(f, at(f, "step-10/optimizer.safetensors"), 100);
    assert_error(try_load(f, 30), OTT_ERR_FORMAT, "no complete checkpoint next to it", NULL);
    assert_null(strstr(status_text(), WAY_OUT));
}

/* ---- state.json ---- */

static void replace_state(run_folder *f, const char *text) {
    write_bytes(at(f, "step-20/state.json"), text, (int64_t)strlen(text));
}

static void test_state_is_no_json(void **state) {
    run_folder *f = two_steps(state);
    char *text = read_text(f, at(f, "step-20/state.json"), NULL);
    const char *const bad[] = {"",
                               "{",
                               "[]",
                               "null",
                               "{\"version\": 2}",
                               "{\"version\": \"1\"}",
                               "\xff\xfe",
                               "{\"version\": 2, \"version\": 2}"};
    for (int i = 0; i < 8; i++) {
        replace_state(f, bad[i]);
        assert_error(try_find(f, 20), OTT_ERR_FORMAT, "step-20/state.json", WAY_OUT, "/step-10", NULL);
    }
    text[strlen(text) / 2] = '\0';
    replace_state(f, text);
    assert_error(try_find(f, 20), OTT_ERR_FORMAT, "state.json", "is not JSON", "/step-10", NULL);
    mem_free(f->account, text);
}

/* A changed digit of any counter must be detected, by the checksum of state.json. */
static void test_state_digit_changed(void **state) {
    run_folder *f = two_steps(state);
    char *text = read_text(f, at(f, "step-20/state.json"), NULL);
    char *run = strstr(text, "\"run\""), *end = strstr(text, "\"model\"");
    int changed = 0;
    for (char *c = run; c < end; c++) {
        if (*c < '1' || *c > '8') continue;
        ++*c;
        replace_state(f, text);
        assert_error(try_find(f, 20), OTT_ERR_FORMAT, "state.json", "/step-10", NULL);
        --*c;
        changed++;
    }
    assert_true(changed > 20);
    mem_free(f->account, text);
}

static void test_newer_version(void **state) {
    run_folder *f = two_steps(state);
    replace_state(f, "{\"version\": 4, \"something\": \"new\"}");
    assert_error(try_find(f, 20), OTT_ERR_UNSUPPORTED, "version 4", "reads up to version 3", "/step-10",
                 NULL);
}

/* Forges a checkpoint's state.json: sets section.name to `value` and corrects the checksum. value: JSON; NULL
   removes the member. */
static void forge(run_folder *f, const char *section, const char *name, const char *value) {
    char *text = read_text(f, at(f, "step-20/state.json"), NULL);
    json_t *root = json_loads(text, 0, NULL);
    json_t *object = section ? json_object_get(root, section) : root;
    assert_non_null(object);
    if (value)
        json_object_set_new(object, name, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(object, name);
    json_object_del(root, "crc32c");
    char *body = json_dumps(root, JSON_SORT_KEYS | JSON_REAL_PRECISION(17) | JSON_COMPACT);
    json_object_set_new(root, "crc32c", json_integer(file_crc32c(0, body, (int64_t)strlen(body))));
    char *forged = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    replace_state(f, forged);
    free(body);
    free(forged);
    json_decref(root);
    mem_free(f->account, text);
}

static void test_forged_state(void **state) {
    run_folder *f = two_steps(state);
    static const struct {
        const char *section, *name, *value, *expected;
    } cases[] = {
        {"run", "step", "-1", "'run.step' is -1"},
        {"run", "step", "\"20\"", "'run.step' is not an integer"},
        {"run", "step", "20.0", "'run.step' is not an integer"},
        {"run", "step", NULL, "'run.step' is missing"},
        {"run", "steps", "3", "'run.steps' is not a member"},
        {"run", "updates", "21", "'run.updates' is more than the number of steps"},
        {"run", "nan_steps", "21", "'run.nan_steps' is more than the number of steps"},
        {"run", "loss_scale", "0", "'run.loss_scale' is not positive"},
        {"run", "loss_scale", "1e39", "'run.loss_scale' is negative or too large"},
        {"run", "good_steps", "-1", "'run.good_steps' is negative"},
        {"run", "good_steps", "true", "'run.good_steps' is not a number"},
        {"model", "dim", "0", "'model.dim' is 0"},
        {"model", "dim", "null", "'model.dim' is not an integer"},
        {"model", "tie_embeddings", "0", "'model.tie_embeddings' is not true or false"},
        {"model", "rope_scaling", "\"ntk\"", "'model.rope_scaling' is not one of"},
        {"files", "../../etc/passwd", "{\"bytes\": 1, \"crc32c\": 1}", "is not a member"},
        {"files", "model.safetensors", NULL, "'files.model.safetensors' is missing"},
        {"files", "config.toml", "3", "'config.toml' is not an object"},
        {"files", "config.toml", "{\"bytes\": -1, \"crc32c\": 1}", "'config.toml.bytes' is -1"},
        {"files", "config.toml", "{\"bytes\": 1, \"crc32c\": 4294967296}",
         "'config.toml.crc32c' is 4294967296"},
        {NULL, "run", "[1]", "'run' is not an object"},
        {NULL, "model", NULL, "'model' is missing"},
        {NULL, "extra", "1", "'extra' is not a member"},
    };
    char *good = read_text(f, at(f, "step-20/state.json"), NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forge(f, cases[i].section, cases[i].name, cases[i].value);
        assert_error(try_find(f, 20), OTT_ERR_FORMAT, "step-20/state.json", cases[i].expected, "/step-10",
                     NULL);
        replace_state(f, good);
    }
    assert_int_equal(try_load(f, 20), OTT_OK);
    mem_free(f->account, good);
}

/* state.json fits the model, but the tensors do not. */
static void test_tensors_of_another_model(void **state) {
    run_folder *f = two_steps(state);
    model_options o = small_options();
    o.vocab = 64;
    o.hidden = 32;
    model *m = small_model(f, &o, MODEL_TRAINING, 1);
    run_state run = state_at(20);
    assert_int_equal(checkpoint_save(m, f->cfg, "bf16", &run, NULL, f->root, 0, NULL), OTT_OK);
    model_close(m);
    forge(f, "model", "ffn_hidden_dim", "24");
    assert_error(try_load(f, 20), OTT_ERR_SHAPE, "model.safetensors", "model.layers.0.mlp.", NULL);
}

/* ---- another model ---- */

static void test_other_shape(void **state) {
    run_folder *f = *state;
    save_step(f, 20, 1, 0);
    struct {
        model_options o;
        const char *key, *theirs, *ours;
    } cases[9];
    for (int i = 0; i < 9; i++) {
        cases[i].o = small_options();
        cases[i].o.vocab = 64;
    }
#define CASE(i, change, k, a, b)                                                                             \
    cases[i].o.change;                                                                                       \
    cases[i].key = "model." k " = " a ",";                                                                   \
    cases[i].theirs = "set --model." k "=" a ",";                                                            \
    cases[i].ours = "this run's has " b ":";
    CASE(0, dim = 24, "dim", "16", "24")
    CASE(1, layers = 3, "n_layers", "2", "3")
    CASE(2, kv_heads = 2, "n_kv_heads", "1", "2")
    CASE(3, hidden = 32, "ffn_hidden_dim", "24", "32")
    CASE(4, vocab = 65, "vocab_size", "64", "65")
    CASE(5, tied = true, "tie_embeddings", "false", "true")
    CASE(6, rope.theta = 5e5, "rope_theta", "10000", "500000")
    CASE(7, norm_epsilon = 1e-6f, "norm_eps", "1e-05", "1e-06")
    CASE(8, rope.kind = ROPE_LLAMA3, "rope_scaling", "none", "llama3")
#undef CASE
    for (int i = 0; i < 9; i++)
        assert_error(try_load_as(f, &cases[i].o, 20), OTT_ERR_SHAPE, "step-20", cases[i].key, cases[i].theirs,
                     cases[i].ours, NULL);
}

/* The checkpoint and the model differ in their fused projections. The error names the keys to set. */
static void test_other_projections(void **state) {
    static const struct {
        bool saved[2], wanted[2]; /* values of fused_qkv and fused_gate_up */
        const char *says;
    } cases[] = {
        {{false, false}, {true, true}, "set --model.fused_qkv=false --model.fused_gate_up=false,"},
        {{true, true}, {false, false}, "set --model.fused_qkv=true --model.fused_gate_up=true,"},
        {{false, true}, {false, false}, "set --model.fused_qkv=false --model.fused_gate_up=true,"},
        {{true, false}, {false, true}, "set --model.fused_qkv=true --model.fused_gate_up=false,"},
    };
    run_folder *f = *state;
    for (int i = 0; i < 4; i++) {
        model_options saved = small_options(), wanted = saved;
        saved.fused_qkv = cases[i].saved[0];
        saved.fused_gate_up = cases[i].saved[1];
        wanted.fused_qkv = cases[i].wanted[0];
        wanted.fused_gate_up = cases[i].wanted[1];
        model *m = small_model(f, &saved, MODEL_TRAINING, 1);
        run_state run = state_at(10 + i);
        assert_int_equal(checkpoint_save(m, f->cfg, "bf16", &run, NULL, f->root, 0, NULL), OTT_OK);
        model_close(m);
        assert_error(try_load_as(f, &wanted, 10 + i), OTT_ERR_SHAPE, "model.safetensors", cases[i].says,
                     NULL);
    }
}

/* Old checkpoints have no keys for fused projections in config.toml. They must be read as false. */
static void test_projections_not_named(void **state) {
    run_folder *f = *state;
    config *cfg;
    assert_int_equal(config_set(f->cfg, "model.fused_qkv", "true"), OTT_OK);
    assert_int_equal(config_set(f->cfg, "model.fused_gate_up", "true"), OTT_OK);
    save_step(f, 20, 1, 0);
    char *text = read_text(f, at(f, "step-20/config.toml"), NULL), *line;
    while ((line = strstr(text, "\nfused_"))) line[1] = '#';
    write_bytes(at(f, "step-20/config.toml"), text, (int64_t)strlen(text));
    mem_free(f->account, text);
    assert_int_equal(checkpoint_config(f->account, at(f, "step-20"), &cfg), OTT_OK);
    assert_true(config_was_set(cfg, "model.fused_qkv") && !cfg->model.fused_qkv);
    assert_true(config_was_set(cfg, "model.fused_gate_up") && !cfg->model.fused_gate_up);
    config_close(cfg);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, run_folder_setup, run_folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_truncated),
        TEST(test_grown),
        TEST(test_flipped_byte),
        TEST(test_missing),
        TEST(test_a_folder_for_a_file),
        TEST(test_advice),
        TEST(test_state_is_no_json),
        TEST(test_state_digit_changed),
        TEST(test_newer_version),
        TEST(test_forged_state),
        TEST(test_tensors_of_another_model),
        TEST(test_other_shape),
        TEST(test_other_projections),
        TEST(test_projections_not_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
