/*
 * Compares model families with Hugging Face transformers (tests/golden/README.md). The test reads a folder
 * that transformers saved, trains a micro-batch, generates, and writes the folder again. Ottava and
 * transformers compute in fp32, but in different orders. The tolerance is twice as large as in
 * tests/model/test_model_golden.c, because some families scale their logits or their residual stream.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "folders/hf/model.h"
#include "folders/hf/save.h"
#include "checkpoint/run_folder.h"
#include "formats/safetensors/shards.h"
#include "model/cache.h"
#include "model/tiny_model.h"
#include "nn/golden.h"

enum { SEQUENCES = 2, LENGTH = 24, VOCAB = 32, MODES = 4 };
#define BOUND 1e-5 /* allowed error of an element, relative to its tensor's largest element */

static const char *const names[] = {"yarn",
                                    "linear",
                                    "longrope",
                                    "baichuan",
                                    "granite",
                                    "glm",
                                    "glm4",
                                    "olmo2",
                                    "gemma2",
                                    "gemma3",
                                    "cohere",
                                    "cohere2",
                                    "starcoder2",
                                    "gpt2",
                                    "mixtral",
                                    "qwen3_moe",
                                    "dots1",
                                    "deepseek_v3",
                                    "deepseek_v3_direct",
                                    "deepseek_v2",
                                    "llama_biases",
                                    "dynamic",
                                    "qwen2_windows",
                                    "cohere_norms",
                                    "deepseek_v3_wide",
                                    "gpt2_layers"};
enum { FAMILIES_HELD = sizeof names / sizeof *names };

/* ---- setting up ---- */

static const char *folder_of(const char *name, char out[256]) {
    snprintf(out, 256, "%s/tests/golden/families/%s", TEST_SOURCE_DIR, name);
    return out;
}

typedef struct held {
    tiny t;
    golden g;
    char folder[256];
} held;

static void open_family(held *f, mem *account, const char *name) {
    char file[64];
    model_options o = folder_model_options(account, folder_of(name, f->folder));
    snprintf(file, sizeof file, "families/%s/golden", name);
    tiny_open(&f->t, &o, 1, NULL);
    golden_open(&f->g, f->t.h.account, file);
    HARNESS_OK(hf_model_load(f->t.m, f->folder));
    tiny_convert(&f->t, recipe_high_precision(OTT_F32), NULL, NULL);
    golden_tensor token = golden_read(&f->g, "tokens"), target = golden_read(&f->g, "targets");
    tiny_batch(&f->t, SEQUENCES, LENGTH, token.t.data, target.t.data);
    golden_free(&f->g, &token);
    golden_free(&f->g, &target);
}

static void close_family(held *f) {
    golden_close(&f->g);
    tiny_close(&f->t);
}

/* ---- comparing ---- */

static void compare(const char *name, const char *what, const float *ours, const float *theirs,
                    int64_t count) {
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)theirs[i]));
        difference = fmax(difference, fabs((double)ours[i] - (double)theirs[i]));
    }
    if (!(largest > 0 && difference <= BOUND * largest))
        fail_msg("%s: %s is off by %.2e of %.2e", name, what, difference, largest);
}

static void compare_losses(held *f, const char *name) {
    golden_tensor theirs = golden_read(&f->g, "losses");
    float *ours = tiny_losses(&f->t);
    compare(name, "losses", ours, theirs.values, theirs.count);
    free(ours);
    golden_free(&f->g, &theirs);
}

static void compare_gradients(held *f, const char *name) {
    for (int i = 0; i < f->t.m->parameter_count; i++) {
        const parameter *p = &f->t.m->parameters[i];
        if (p->frozen) continue; /* the only frozen parameter is the bias that selects experts */
        golden_tensor theirs = golden_read(&f->g, "grad/%s", p->name);
        float *ours = malloc((size_t)theirs.count * sizeof *ours);
        assert_int_equal(theirs.count, parameter_count(p));
        harness_get(&f->t.h, &p->grad, ours);
        compare(name, p->name, ours, theirs.values, theirs.count);
        free(ours);
        golden_free(&f->g, &theirs);
    }
}

/* ---- tests ---- */

/* Losses and gradients must be close to transformers', and must have the same bits with every kind of
   recomputation. */
static void equals_transformers(void **state) {
    run_folder *r = *state;
    for (int i = 0; i < FAMILIES_HELD; i++) {
        float *first = NULL;
        for (int mode = CHECKPOINT_NONE; mode <= CHECKPOINT_FULL; mode++) {
            held f;
            open_family(&f, r->account, names[i]);
            for (int64_t k = 0; k < f.t.m->options.layers; k++)
                f.t.m->blocks[k].checkpointing = (checkpointing)mode;
            tiny_run(&f.t);
            compare_losses(&f, names[i]);
            compare_gradients(&f, names[i]);
            float *grads = tiny_gradients(&f.t);
            size_t bytes = (size_t)tiny_gradient_count(&f.t) * sizeof *grads;
            if (first && memcmp(first, grads, bytes) != 0) fail_msg("%s: recomputed otherwise", names[i]);
            if (first)
                free(grads);
            else
                first = grads;
            close_family(&f);
        }
        free(first);
    }
}

/* Feeds a sequence in pieces to a model with a KV cache. Checks the loss that the last logits give. */
static void generates_with_a_cache(void **state) {
    run_folder *r = *state;
    static const int64_t pieces[] = {10, 1, 13};
    for (int i = 0; i < FAMILIES_HELD; i++) {
        held f;
        model_cache *cache;
        float logits[VOCAB];
        double sum = 0;
        open_family(&f, r->account, names[i]);
        golden_tensor token = golden_read(&f.g, "tokens"), target = golden_read(&f.g, "targets");
        golden_tensor losses = golden_read(&f.g, "losses");
        const int32_t *next = (const int32_t *)token.t.data + LENGTH, *wanted = target.t.data;
        HARNESS_OK(model_cache_open(f.t.m, NULL, LENGTH, &cache));
        for (int k = 0; k < 3; k++) {
            HARNESS_OK(model_cache_extend(cache, next, pieces[k], logits));
            next += pieces[k];
        }
        for (int k = 0; k < VOCAB; k++) sum += exp((double)logits[k]);
        float loss = (float)(log(sum) - (double)logits[wanted[2 * LENGTH - 1]]);
        compare(names[i], "the loss with a KV cache", &loss, losses.values + 2 * LENGTH - 1, 1);
        model_cache_close(cache);
        golden_free(&f.g, &token);
        golden_free(&f.g, &target);
        golden_free(&f.g, &losses);
        close_family(&f);
    }
}

/* Copies a file's tensors to a folder, and adds a tensor `more`. rootless: names lose their first part. */
static void write_more(mem *account, const char *path, const char *folder, bool rootless, const char *more) {
    enum { MOST = 64, BYTES = 4096 };
    safetensors_tensor declared[MOST];
    char values[BYTES] = {0};
    safetensors *from;
    safetensors_writer *w;
    HARNESS_OK(safetensors_open(account, path, &from));
    /* before: number of tensors before the new one, in name order */
    int64_t count = safetensors_count(from), before = 0;
    assert_true(count < MOST);
    for (int64_t i = 0; i < count; i++) {
        const safetensors_entry *e = safetensors_at(from, i);
        const char *name = rootless ? strchr(e->name, '.') + 1 : e->name;
        before += strcmp(name, more) < 0;
        safetensors_tensor *t = &declared[i < before ? i : i + 1];
        *t = (safetensors_tensor){.name = name, .dtype = e->dtype, .rank = e->rank};
        memcpy(t->shape, e->shape, sizeof e->shape);
    }
    declared[before] =
        (safetensors_tensor){.name = more, .dtype = OTT_BF16, .rank = 4, .shape = {1, 1, 4, 4}};
    HARNESS_OK(safetensors_writer_join_shards(account, folder, declared, count + 1, 0, NULL, 0, 0, 1, &w));
    for (int64_t i = 0; i <= count; i++) {
        const safetensors_entry *e = i == before ? NULL : safetensors_at(from, i - (i > before));
        int64_t bytes = e ? safetensors_elements(e) * 2 : 2 * 4 * 4;
        assert_true(bytes <= BYTES);
        if (e) HARNESS_OK(safetensors_read(from, e, 0, bytes, values));
        HARNESS_OK(safetensors_writer_append(w, values, bytes));
    }
    HARNESS_OK(safetensors_writer_commit(w));
    safetensors_close(from);
}

/* OpenAI's GPT-2 files contain the model without its head. Tensor names lack the first component
   "transformer", and there are attention masks. */
static void reads_an_older_folder(void **state) {
    run_folder *r = *state;
    char path[300];
    held f;
    open_family(&f, r->account, "gpt2");
    snprintf(path, sizeof path, "%s/model.safetensors", f.folder);
    write_more(r->account, path, at(r, "older"), true, "h.0.attn.bias");
    HARNESS_OK(device_zero(f.t.h.device, f.t.m->parameters[0].shard.value.data, VOCAB * 16 * 4));
    HARNESS_OK(hf_model_load(f.t.m, at(r, "older")));
    tiny_run(&f.t);
    compare_losses(&f, "gpt2, older");
    close_family(&f);
}

/* DeepSeek-V3's published files have an extra layer after the last, which predicts a second token. This layer
   is skipped. In other families such tensors are an error. */
static void passes_over_a_layer_behind_the_last(void **state) {
    static const struct {
        const char *family, *more;
        bool is_read;
    } folders[] = {{"deepseek_v3", "model.layers.2.eh_proj.weight", true},
                   {"deepseek_v3", "model.layers.1.eh_proj.weight", false},
                   {"dots1", "model.layers.2.eh_proj.weight", false}};
    run_folder *r = *state;
    for (int i = 0; i < 3; i++) {
        char path[300];
        held f;
        open_family(&f, r->account, folders[i].family);
        snprintf(path, sizeof path, "%s/model.safetensors", f.folder);
        write_more(r->account, path, at(r, "more-%d", i), false, folders[i].more);
        ott_status status = hf_model_load(f.t.m, at(r, "more-%d", i));
        if (folders[i].is_read)
            HARNESS_OK(status);
        else
            assert_error(status, OTT_ERR_UNSUPPORTED, folders[i].more, "does not belong to a", NULL);
        close_family(&f);
    }
}

static void ends_where_its_positions_do(void **state) {
    run_folder *r = *state;
    held f;
    model *longer;
    open_family(&f, r->account, "gpt2");
    ott_status status = model_open(f.t.h.device, &f.t.m->options, MODEL_INFERENCE, LENGTH + 1, &longer);
    assert_error(status, OTT_ERR_CONFIG, "25 tokens", "24 positions", "model.max_seq_len", NULL);
    close_family(&f);
}

/* Checks that every tensor of one file is in the other, with the same bytes. */
static void same_tensors(mem *account, const char *path, const char *other_path) {
    safetensors *a, *b;
    HARNESS_OK(safetensors_open(account, path, &a));
    HARNESS_OK(safetensors_open(account, other_path, &b));
    assert_int_equal(safetensors_count(a), safetensors_count(b));
    for (int64_t i = 0; i < safetensors_count(a); i++) {
        const safetensors_entry *x = safetensors_at(a, i), *y = safetensors_find(b, x->name);
        if (!y) fail_msg("%s has no %s", other_path, x->name);
        int64_t bytes = safetensors_elements(x) * 2;
        char *values = malloc((size_t)bytes), *others = malloc((size_t)bytes);
        HARNESS_OK(safetensors_read(a, x, 0, bytes, values));
        HARNESS_OK(safetensors_read(b, y, 0, bytes, others));
        assert_memory_equal(values, others, (size_t)bytes);
        free(values);
        free(others);
    }
    safetensors_close(a);
    safetensors_close(b);
}

enum { OPTION_NUMBERS = 18 };

static void list_numbers(const model_options *o, double out[OPTION_NUMBERS]) {
    const double all[OPTION_NUMBERS] = {o->embedding_multiplier, o->residual_multiplier,
                                        o->attention_multiplier, o->logit_multiplier,
                                        o->norm_epsilon,         o->attention_softcap,
                                        o->logit_softcap,        o->local_theta,
                                        (double)o->window,       (double)o->full_attention_every,
                                        o->rope.theta,           o->rope.partial_rotary_factor,
                                        o->rope.mscale,          o->rope.mscale_all_dim,
                                        o->rope.factor,          o->rope.beta_fast,
                                        o->rope.beta_slow,       (double)o->rope.original_max_position};
    memcpy(out, all, sizeof all);
}

static void assert_same_options(const model_options *a, const model_options *b) {
    double x[OPTION_NUMBERS], y[OPTION_NUMBERS];
    list_numbers(a, x);
    list_numbers(b, y);
    assert_ptr_equal(a->family, b->family);
    assert_int_equal(a->rope.kind, b->rope.kind);
    assert_int_equal(a->rope.interleaved, b->rope.interleaved);
    assert_int_equal(model_mlp(a), model_mlp(b));
    assert_int_equal(a->scales_by_layer, b->scales_by_layer);
    for (int64_t i = 0; i < a->layers; i++)
        assert_int_equal(model_has_full_attention(a, i), model_has_full_attention(b, i));
    assert_memory_equal(x, y, sizeof x);
    assert_memory_equal(&a->latent, &b->latent, sizeof a->latent);
    assert_memory_equal(a->rope.short_factor, b->rope.short_factor, sizeof a->rope.short_factor);
    assert_memory_equal(a->rope.long_factor, b->rope.long_factor, sizeof a->rope.long_factor);
}

/* The folder is written with the original config.json and with a generated one. Both folders must give the
   same model. */
static void writes_what_it_read(void **state) {
    run_folder *r = *state;
    for (int i = 0; i < FAMILIES_HELD; i++) {
        held f;
        open_family(&f, r->account, names[i]);
        for (int own = 0; own < 2; own++) {
            char path[300];
            hf_save_summary sum;
            const char *out = at(r, "%s-%d", names[i], own);
            const hf_save_options o = {.dtype = OTT_BF16, .original = own ? NULL : f.folder};
            HARNESS_OK(hf_model_save(f.t.m, &o, out, &sum));
            assert_string_equal(sum.family, f.t.m->options.family->name);
            snprintf(path, sizeof path, "%s/model.safetensors", f.folder);
            same_tensors(r->account, path, at(r, "%s-%d/model.safetensors", names[i], own));
            model_options again = folder_model_options(r->account, out);
            assert_same_options(&again, &f.t.m->options);
        }
        close_family(&f);
    }
}

/* config.json lists the layers without experts by their numbers. The model must have the same layers. */
static void names_single_layers_without_experts(void **state) {
    run_folder *r = *state;
    held f;
    open_family(&f, r->account, "qwen3_moe");
    f.t.m->options.moe_every = 1;
    f.t.m->options.dense[f.t.m->options.dense_count++] = 0;
    for (int own = 0; own < 2; own++) {
        char path[300];
        hf_save_summary sum;
        const char *out = at(r, "dense-%d", own);
        const hf_save_options o = {.dtype = OTT_BF16, .original = own ? NULL : f.folder};
        HARNESS_OK(hf_model_save(f.t.m, &o, out, &sum));
        assert_string_equal(sum.family, "qwen3_moe");
        snprintf(path, sizeof path, "%s/model.safetensors", f.folder);
        same_tensors(r->account, path, at(r, "dense-%d/model.safetensors", own));
        model_options again = folder_model_options(r->account, out);
        assert_int_equal(again.moe_every, 1);
        assert_int_equal(again.dense_count, 1);
        assert_false(modules_has(&again, 0, ROLE_ROUTER));
        assert_true(modules_has(&again, 1, ROLE_ROUTER));
    }
    close_family(&f);
}

/* Baichuan 2 normalizes the rows of its head to length 1. Such a model is recognized by its vocabulary size.
   A trained head would not stay normalized. */
static void divides_baichuan2s_head(void **state) {
    enum { SEEN = 100 };
    run_folder *r = *state;
    tiny t;
    model *m;
    char folder[256];
    hf_save_summary sum;
    float rows[SEEN * 16];
    model_options o = folder_model_options(r->account, folder_of("baichuan", folder));
    o.vocab = 125696;
    tiny_open(&t, &o, 1, NULL);
    tiny_randomize(&t);
    const char *out = at(r, "baichuan2");
    HARNESS_OK(hf_model_save(t.m, &(hf_save_options){.dtype = OTT_BF16}, out, &sum));
    assert_error(hf_model_load(t.m, out), OTT_ERR_UNSUPPORTED, "Baichuan 2 normalizes the rows of its head",
                 "train.freeze", NULL);
    HARNESS_OK(model_open(t.h.device, &o, MODEL_INFERENCE, LENGTH, &m));
    HARNESS_OK(hf_model_load(m, out));
    harness_get(
        &t.h,
        &(tensor){
            .data = m->loss.head.weight->value.data, .dtype = OTT_F32, .rows = SEEN, .columns = 16, .ld = 16},
        rows);
    for (int i = 0; i < SEEN; i++) {
        double squares = 0;
        for (int k = 0; k < 16; k++) squares += (double)rows[i * 16 + k] * (double)rows[i * 16 + k];
        assert_true(fabs(squares - 1) < 1e-6);
    }
    model_close(m);
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equals_transformers, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(generates_with_a_cache, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(reads_an_older_folder, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(passes_over_a_layer_behind_the_last, run_folder_setup,
                                        run_folder_teardown),
        cmocka_unit_test_setup_teardown(ends_where_its_positions_do, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(writes_what_it_read, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(names_single_layers_without_experts, run_folder_setup,
                                        run_folder_teardown),
        cmocka_unit_test_setup_teardown(divides_baichuan2s_head, run_folder_setup, run_folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
