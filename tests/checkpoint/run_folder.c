/* run_folder: the folder, models and checks that the checkpoint tests share. */
#define _GNU_SOURCE
#include "checkpoint/run_folder.h"
#include "backend/open.h"
#include "base/file/file.h"
#include "base/rng.h"
#include "folders/hf/model.h"
#include "nn/layer_harness.h"
#include "resolve/resolve.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

int run_folder_setup(void **state) {
    run_folder *f = calloc(1, sizeof *f);
    if (!f) return -1;
    strcpy(f->root, "test-checkpoint-XXXXXX");
    *state = f;
    if (!mkdtemp(f->root) || mem_open(&f->account) != OTT_OK) return -1;
    if (test_device_open(f->account, 1, NULL, &f->device) != OTT_OK) return -1;
    return config_parse(f->account, NULL, 0, NULL, &f->cfg) == OTT_OK ? 0 : -1;
}

int run_folder_teardown(void **state) {
    run_folder *f = *state;
    config_close(f->cfg);
    device_close(f->device);
    int64_t leaked = mem_read(f->account).now;
    if (leaked == 0) mem_close(f->account);
    ott_status removed = file_remove_tree(f->root);
    free(f);
    return leaked == 0 && removed == OTT_OK ? 0 : -1;
}

const char *at(run_folder *f, const char *format, ...) {
    char *out = f->text[f->next++ % 4];
    int length = snprintf(out, sizeof f->text[0], "%s/", f->root);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + length, sizeof f->text[0] - (size_t)length, format, arguments);
    va_end(arguments);
    return out;
}

model_options folder_model_options(mem *account, const char *folder) {
    char argument[300];
    config *cfg;
    model_options o;
    snprintf(argument, sizeof argument, "--model.hf_path=%s", folder);
    const char *arguments[] = {argument, "--train.seq_len=24"};
    HARNESS_OK(config_parse(account, NULL, 2, arguments, &cfg));
    HARNESS_OK(hf_model_configure(account, cfg, NULL));
    HARNESS_OK(model_options_resolve(cfg, &o));
    config_close(cfg);
    o.freeze = NULL; /* the list is freed with the configuration */
    return o;
}

model_options small_options(void) {
    return (model_options){.family = family_find("llama"),
                           .dim = 16,
                           .layers = 2,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = 8,
                           .hidden = 24,
                           .vocab = 20000,
                           .max_positions = 32,
                           .rope = {.kind = ROPE_PLAIN, .theta = 1e4},
                           .norm_epsilon = 1e-5f,
                           .init_style = INIT_HF,
                           .init_std = 0.02,
                           .optimizer = optimizer_find("adamw")};
}

/* Fills a tensor with random bits, which include NaNs and subnormals: a checkpoint must copy any bits. */
static void fill(device *d, const tensor *t, uint64_t seed, uint64_t stream) {
    uint32_t *bits = malloc((size_t)tensor_bytes(*t));
    assert_non_null(bits);
    for (int64_t i = 0; i < tensor_count(*t); i++)
        bits[i] = (uint32_t)((seed * 0x9e3779b97f4a7c15u + stream * 0xbf58476d1ce4e5b9u + (uint64_t)i) *
                                 0x94d049bb133111ebu >>
                             32);
    assert_int_equal(device_copy_in(d, t->data, bits, tensor_bytes(*t)), OTT_OK);
    free(bits);
}

model *small_model(run_folder *f, const model_options *o, model_use use, uint64_t seed) {
    model *m;
    assert_int_equal(model_open(f->device, o, use, 8, &m), OTT_OK);
    for (int i = 0; seed && i < m->parameter_count; i++) {
        fill(f->device, &m->parameters[i].value, seed, 3 * (uint64_t)i);
        if (use == MODEL_INFERENCE || m->parameters[i].frozen) continue;
        fill(f->device, &m->parameters[i].shard.slot[0], seed, 3 * (uint64_t)i + 1);
        fill(f->device, &m->parameters[i].shard.slot[1], seed, 3 * (uint64_t)i + 2);
    }
    return m;
}

static void assert_same_block(const model *a, const void *block_a, const model *b, const void *block_b,
                              int64_t bytes) {
    void *x = test_device_fetch(a->device, block_a, bytes), *y = test_device_fetch(b->device, block_b, bytes);
    assert_memory_equal(x, y, (size_t)bytes);
    free(x);
    free(y);
}

void assert_same_model(const model *a, const model *b) {
    assert_int_equal(a->block_bytes, b->block_bytes);
    assert_same_block(a, a->values, b, b->values, a->block_bytes);
    if (!a->options.optimizer || !b->options.optimizer) return;
    assert_same_block(a, a->slot[0], b, b->slot[0], a->trained_bytes);
    assert_same_block(a, a->slot[1], b, b->slot[1], a->trained_bytes);
}

float *parameter_values(const model *m, const parameter *p) {
    return test_device_fetch(m->device, p->value.data, tensor_bytes(p->value));
}

void set_parameter(const model *m, const parameter *p, const float *values) {
    assert_int_equal(device_copy_in(m->device, p->value.data, values, tensor_bytes(p->value)), OTT_OK);
}

/* Fails unless this rank's shard `own` is equal, bit for bit, to the shard's elements of the tensor `all`. */
static void assert_rows(device *d, const parameter *part, const tensor *all, const tensor *own) {
    int64_t bytes = tensor_bytes(*own);
    parameter_part at = parameter_shard_part(part);
    char *expected = malloc((size_t)bytes), *found = malloc((size_t)bytes);
    assert_int_equal(tensor_count(*all), parameter_count(part));
    const float *from = (const float *)all->data + parameter_run_at(&at, part->columns, 0, 1).first;
    assert_int_equal(device_copy_out(d, expected, from, bytes), OTT_OK);
    assert_int_equal(device_copy_out(d, found, own->data, bytes), OTT_OK);
    assert_memory_equal(expected, found, (size_t)bytes);
    free(expected);
    free(found);
}

void assert_shard_of(const model *full, const model *part) {
    bool both = full->options.optimizer && part->options.optimizer;
    for (int i = 0; i < full->parameter_count; i++) {
        const parameter *p = &full->parameters[i], *q = &part->parameters[i];
        assert_rows(full->device, q, &p->shard.value, &q->shard.value);
        for (int j = 0; both && !p->frozen && j < 2; j++)
            assert_rows(full->device, q, &p->shard.slot[j], &q->shard.slot[j]);
    }
}

run_state state_at(int64_t step) {
    return (run_state){.step = step,
                       .updates = step > 2 ? step - 2 : step,
                       .samples = (INT64_C(1) << 53) + 1 + step, /* a double cannot represent this number */
                       .tokens = INT64_MAX - step,
                       .nan_steps = step > 1 ? 1 : 0,
                       .loss_scale = 65536.0f,
                       .good_steps = 1999};
}

void save_step(run_folder *f, int64_t step, uint64_t seed, int64_t keep) {
    model_options o = small_options();
    o.vocab = 64;
    model *m = small_model(f, &o, MODEL_TRAINING, seed);
    run_state state = state_at(step);
    ott_status status = checkpoint_save(m, f->cfg, "bf16", &state, NULL, f->root, keep, NULL);
    if (status != OTT_OK) fail_msg("%s", status_text());
    model_close(m);
}

char *read_text(run_folder *f, const char *path, int64_t *bytes) {
    char *data;
    int64_t size;
    if (file_read(f->account, path, 1 << 30, &data, &size) != OTT_OK) fail_msg("%s", status_text());
    if (bytes) *bytes = size;
    return data;
}

void write_bytes(const char *path, const void *data, int64_t bytes) {
    if (file_write_atomic(path, data, bytes) != OTT_OK) fail_msg("%s", status_text());
}

const char *names_in_root(run_folder *f) {
    file_list list;
    char *out = f->text[f->next++ % 4];
    size_t length = 0;
    assert_int_equal(file_list_folder(f->account, f->root, &list), OTT_OK);
    out[0] = '\0';
    for (int64_t i = 0; i < list.count; i++)
        length += (size_t)snprintf(out + length, sizeof f->text[0] - length, "%s ", list.names[i]);
    assert_true(length < sizeof f->text[0]);
    file_list_free(&list);
    return out;
}

void assert_error(ott_status status, ott_status expected, ...) {
    const char *part, *text = status_text();
    if (status != expected)
        fail_msg("%s instead of %s: %s", status_name(status), status_name(expected), text);
    if (strchr(text, '\n')) fail_msg("the error is not one line: %s", text);
    va_list parts;
    va_start(parts, expected);
    while ((part = va_arg(parts, const char *)))
        if (!strstr(text, part)) fail_msg("the error \"%s\" does not contain \"%s\"", text, part);
    va_end(parts);
}
