/*
 * Hugging Face folders and weights stored in FP8. Codes and scales of a folder are read and written without
 * change. Unquantized values get the codes that a recipe would cast them to. Weights that would be rounded
 * twice are refused.
 */
#include "base/rng.h"
#include "formats/safetensors/shards.h"
#include "model/convert.h"
#include "folders/hf/model.h"
#include "folders/hf/save.h"
#include "checkpoint/run_folder.h"
#include "resolve/resolve.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TEST(f) cmocka_unit_test_setup_teardown(f, run_folder_setup, run_folder_teardown)

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

/* A small model. dim is no multiple of 128, so a row's last scale block is smaller. Rows of fused projections
   are multiples of 128, so that no block is in two projections. */
static model_options options_of(const char *name) {
    model_options o = small_options();
    o.family = family_find(name);
    o.fused_qkv = o.family->fused_qkv;
    o.fused_gate_up = o.family->fused_gate_up;
    o.dim = 144;
    o.heads = o.kv_heads = 2;
    o.head_dim = 64;
    o.hidden = 256;
    o.vocab = 64;
    return o;
}

/* Opens a model with values that bf16 represents exactly. */
static model *filled_model(run_folder *f, const model_options *o) {
    model *m = small_model(f, o, MODEL_INFERENCE, 0);
    for (int i = 0; i < m->parameter_count; i++) {
        float *values = parameter_values(m, &m->parameters[i]);
        for (int64_t j = 0; j < parameter_count(&m->parameters[i]); j++)
            values[j] = cast_from_bf16(
                cast_to_bf16(rng_normal(7, (uint64_t)i, (uint64_t)j) * ldexpf(1, (int)(j % 5) - 8)));
        set_parameter(m, &m->parameters[i], values);
        free(values);
    }
    return m;
}

static void convert(model *m, const char *recipe_name) {
    succeed(model_convert(m, &(convert_options){.recipe = recipe_find(recipe_name)}, NULL));
}

static void save(model *m, hf_method method, const char *folder) {
    hf_save_summary sum;
    succeed(hf_model_save(
        m,
        &(hf_save_options){
            .dtype = OTT_BF16, .fp8 = true, .method = method, .granularity = HF_SCALE_AS_TRAINED},
        folder, &sum));
}

static void save_plain(model *m, const char *folder) {
    hf_save_summary sum;
    succeed(hf_model_save(m, &(hf_save_options){.dtype = OTT_BF16}, folder, &sum));
}

typedef struct opening {
    const char *recipe, *folder;
    const char *granularity; /* value of train.frozen_granularity; NULL: not set */
    const char *freeze;      /* value of train.freeze; NULL: all projections of the blocks */
    group *shard_ranks;
    bool fused; /* the model fuses q, k and v, and gate and up */
} opening;

/* Opens a model that stores the folder's block weights in FP8, as a run would. */
static ott_status open_kept(run_folder *f, const opening *w, model **out) {
    char path[320], key[64], freeze[64];
    const char *arguments[8] = {"--train.seq_len=8", "--train.frozen_dtype=fp8", freeze};
    int count = 3;
    config *cfg;
    model_options o;
    const convert_options c = {.recipe = recipe_find("bf16"), .kept = recipe_find(w->recipe)};
    snprintf(path, sizeof path, "--model.hf_path=%s", w->folder);
    snprintf(freeze, sizeof freeze, "--train.freeze=%s", w->freeze ? w->freeze : "model.layers.*_proj");
    arguments[count++] = path;
    snprintf(key, sizeof key, "--train.frozen_granularity=%s", w->granularity ? w->granularity : "");
    if (w->granularity) arguments[count++] = key;
    if (w->fused) arguments[count++] = "--model.fused_qkv=true";
    succeed(config_parse(f->account, NULL, count, arguments, &cfg));
    succeed(hf_model_configure(f->account, cfg, NULL));
    succeed(model_options_resolve(cfg, &o));
    o.frozen_convert = &c;
    o.shard_ranks = w->shard_ranks;
    succeed(model_open(f->device, &o, MODEL_TRAINING, 8, out));
    config_close(cfg);
    ott_status status = hf_model_load(*out, w->folder);
    if (status != OTT_OK) model_close(*out);
    return status;
}

static model *must_open(run_folder *f, const opening *w) {
    model *m;
    succeed(open_kept(f, w, &m));
    return m;
}

/* Checks that every tensor of one folder has the same bytes in the other. */
static void assert_same_folder(run_folder *f, const char *a, const char *b) {
    shards *x, *y;
    succeed(shards_open(f->account, a, &x));
    succeed(shards_open(f->account, b, &y));
    assert_int_equal(shards_count(x), shards_count(y));
    for (int64_t i = 0; i < shards_count(x); i++) {
        const shard_tensor *s = shards_at(x, i), *t = shards_find(y, s->entry->name);
        int64_t bytes = dtype_bytes(s->entry->dtype);
        if (!t || t->entry->dtype != s->entry->dtype) fail_msg("%s: %s differs", b, s->entry->name);
        for (int r = 0; r < s->entry->rank; r++) bytes *= s->entry->shape[r];
        char *p = malloc((size_t)bytes), *q = malloc((size_t)bytes);
        succeed(shards_read(x, s, 0, bytes, p));
        succeed(shards_read(y, t, 0, bytes, q));
        if (memcmp(p, q, (size_t)bytes) != 0) fail_msg("%s: %s differs", b, s->entry->name);
        free(p);
        free(q);
    }
    shards_close(x);
    shards_close(y);
}

static const struct {
    const char *recipe, *family;
    hf_method method;
} folders[] = {{"rowwise", "llama", HF_METHOD_COMPRESSED}, {"rowwise", "phi3", HF_METHOD_COMPRESSED},
               {"tensorwise", "llama", HF_METHOD_FP8},     {"tensorwise", "phi3", HF_METHOD_COMPRESSED},
               {"block", "llama", HF_METHOD_FP8},          {"block", "phi3", HF_METHOD_COMPRESSED},
               {"current", "llama", HF_METHOD_COMPRESSED}};

/* An FP8 folder that a run exported is loaded and saved again: codes and scales must not change. The same
   codes must result if the folder with the unquantized weights is loaded into FP8. */
static void codes_stay(void **state) {
    run_folder *f = *state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        model_options o = options_of(folders[i].family);
        model *m = filled_model(f, &o);
        save_plain(m, at(f, "plain %zu", i));
        convert(m, folders[i].recipe);
        save(m, folders[i].method, at(f, "fp8 %zu", i));
        model_close(m);
        static const char *const from[] = {"fp8", "plain"};
        for (int k = 0; k < 2; k++) {
            const opening w = {.recipe = folders[i].recipe, .folder = at(f, "%s %zu", from[k], i)};
            m = must_open(f, &w);
            convert(m, "bf16");
            save(m, folders[i].method, at(f, "again %zu %d", i, k));
            model_close(m);
            assert_same_folder(f, at(f, "fp8 %zu", i), at(f, "again %zu %d", i, k));
        }
    }
}

static model_options mixture_options(void) {
    model_options o = options_of("mixtral");
    o.hidden = 144;
    o.moe_every = 1;
    o.moe = (moe_options){.experts = 3,
                          .choices = 2,
                          .hidden = o.hidden,
                          .rule = {.score = ROUTE_SOFTMAX, .normalized = true, .scale = 1.0f}};
    return o;
}

/* Loads a folder with FP8 experts into one parameter with all experts, and saves it again. Codes and scales
   must not change, whether a scale is for a matrix, a row or a block. */
static void experts_stay(void **state) {
    static const hf_scales grains[] = {HF_SCALE_TENSOR, HF_SCALE_CHANNEL, HF_SCALE_BLOCK};
    run_folder *f = *state;
    hf_save_summary sum;
    hf_save_options how = {.dtype = OTT_BF16, .fp8 = true, .method = HF_METHOD_COMPRESSED};
    model_options o = mixture_options();
    model *m = filled_model(f, &o), *kept;
    for (int i = 0; i < 3; i++) {
        const opening w = {.recipe = "rowwise", .folder = at(f, "experts %d", i), .freeze = "model.layers.*"};
        how.granularity = grains[i];
        succeed(hf_model_save(m, &how, w.folder, &sum));
        kept = must_open(f, &w);
        assert_int_equal(kept->blocks[1].moe.up.weight->value.dtype, OTT_E4M3);
        convert(kept, "bf16");
        save(kept, HF_METHOD_COMPRESSED, at(f, "again %d", i));
        model_close(kept);
        assert_same_folder(f, at(f, "experts %d", i), at(f, "again %d", i));
    }
    model_close(m);
}

/* Tests hf_model_list_codes: it lists a folder's FP8 matrices, with one entry for the matrices of all
   experts. It reports whether all other matrices are bf16. */
static void codes_are_listed(void **state) {
    static const ott_dtype others[] = {OTT_BF16, OTT_F32};
    run_folder *f = *state;
    model_options o = mixture_options();
    o.layers = 1;
    model *m = filled_model(f, &o);
    for (int i = 0; i < 2; i++) {
        hf_save_summary sum;
        const hf_save_options how = {
            .dtype = others[i], .fp8 = true, .method = HF_METHOD_FP8, .granularity = HF_SCALE_BLOCK};
        str names = {.account = f->account};
        bool others_are_bf16;
        succeed(hf_model_save(m, &how, at(f, "listed %d", i), &sum));
        succeed(hf_model_list_codes(f->account, at(f, "listed %d", i), &names, &others_are_bf16));
        assert_int_equal(others_are_bf16, i == 0);
        assert_non_null(strstr(names.text, "model.layers.0.block_sparse_moe.experts.w2.weight"));
        int count = 1;
        for (const char *c = names.text; *c; c++) count += *c == ',';
        assert_int_equal(count, 4 + 3); /* 4 attention matrices and 3 expert weights, but not the router */
        str_free(&names);
    }
    model_close(m);
}

/* Loads separate projections into a model that fuses them, and saves them separately again. */
static void together_or_apart(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o), *kept;
    convert(m, "rowwise");
    save(m, HF_METHOD_COMPRESSED, at(f, "apart"));
    kept = must_open(f, &(opening){.recipe = "block", .folder = at(f, "apart"), .fused = true});
    convert(kept, "rowwise");
    save(kept, HF_METHOD_COMPRESSED, at(f, "together"));
    model_close(kept);
    assert_same_folder(f, at(f, "apart"), at(f, "together"));
    convert(m, "tensorwise");
    save(m, HF_METHOD_COMPRESSED, at(f, "scales"));
    model_close(m);
    opening w = {.recipe = "rowwise", .folder = at(f, "scales"), .fused = true};
    assert_error(open_kept(f, &w, &kept), OTT_ERR_UNSUPPORTED, "have different scales", "fused_qkv = false",
                 NULL);
    w.granularity = "channel"; /* rows of q, k and v have different scales */
    kept = must_open(f, &w);
    assert_true(kept->blocks[1].attention.qkv.weight->codes->scale_inv[0] !=
                kept->blocks[1].attention.qkv.weight->codes->scale_inv[128]);
    model_close(kept);
}

/* A rank loads its own rows of the codes, and all scales. */
static void ranks_have_their_rows(void **state) {
    run_folder *f = *state;
    group second = {.rank = 1, .size = 2};
    model_options o = options_of("llama");
    model *m = filled_model(f, &o), *full, *part;
    save_plain(m, at(f, "plain"));
    model_close(m);
    opening w = {.recipe = "tensorwise", .folder = at(f, "plain")};
    full = must_open(f, &w);
    w.shard_ranks = &second;
    part = must_open(f, &w);
    for (int i = 0; i < full->parameter_count; i++) {
        const parameter *p = &full->parameters[i], *q = &part->parameters[i];
        int64_t bytes = tensor_bytes(q->shard.value);
        if (!p->codes || bytes == 0) continue;
        assert_true(p->codes->scale_inv[0] == q->codes->scale_inv[0]);
        char *a = malloc((size_t)bytes), *b = malloc((size_t)bytes);
        succeed(device_copy_out(f->device, a, (char *)p->value.data + q->shard.first * q->columns, bytes));
        succeed(device_copy_out(f->device, b, q->shard.value.data, bytes));
        assert_memory_equal(a, b, (size_t)bytes);
        free(a);
        free(b);
    }
    model_close(full);
    model_close(part);
}

static void what_would_round_twice_is_refused(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o), *kept;
    convert(m, "rowwise");
    save(m, HF_METHOD_COMPRESSED, at(f, "rows"));
    model_close(m);
    const opening w = {.recipe = "rowwise", .folder = at(f, "rows"), .granularity = "block"};
    assert_error(open_kept(f, &w, &kept), OTT_ERR_UNSUPPORTED, "has a scale per 1 x 144 block",
                 "train.frozen_granularity", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(codes_stay),        TEST(experts_stay),          TEST(codes_are_listed),
        TEST(together_or_apart), TEST(ranks_have_their_rows), TEST(what_would_round_twice_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
