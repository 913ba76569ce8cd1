/*
 * Adapters (peft.*). Adapters train, and the other weights keep their bits. The first step's loss equals the
 * loss of a model without adapters. Recomputation, data-parallel ranks, and a stop with a resume change no
 * bit, also with dropout. Sums over ranks that share a layer stay within the rounding bound of the test
 * train.layer_ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/file/file.h"
#include "model/tiny_model.h"
#include "nn/golden.h"
#include "model/cache.h"
#include "model/pack.h"
#include "export/export.h"
#include "run/inference.h"
#include "train/mesh_run.h"

#define LORA        "--peft.dim=4", "--peft.alpha=6"
#define DROP_BEFORE "--peft.dropout=0.25", "--peft.dropout_position=pre"
#define DROP_AFTER  "--peft.dropout=0.25", "--peft.dropout_position=post"
#define BOUND       6.1e-4

static bool is_adapter(const parameter *p) {
    return strstr(p->name, ".lora_A.weight") || strstr(p->name, ".lora_B.weight") ||
           strstr(p->name, ".lora_magnitude_vector");
}

/* ---- which layers have an adapter ---- */

/* Writes the first letter of each adapted layer's name, in the model's order: q, k, v, o, g, u, d. */
static void spell(const rig *r, char *out) {
    const model *m = r->t->m;
    for (int i = 0; i < m->modules.count; i++)
        if (m->modules.items[i].lora_a) *out++ = strrchr(m->modules.items[i].name, '.')[1];
    *out = '\0';
}

static void targets(void **state) {
    static const struct {
        const char *arguments[3], *layers;
    } rows[] = {
        {{"--peft.dim=2"}, "qkvogudqkvogud"},
        {{"--peft.target_modules=*_proj"}, "qkvogudqkvogud"},
        {{"--peft.target_modules=q_proj,v_proj"}, "qvqv"},
        {{"--peft.target_modules=model.layers.1.*"}, "qkvogud"},
        {{"--peft.target_modules=mlp.up_proj", "--peft.exclude_modules=layers.0.mlp.*"}, "u"},
        {{"--peft.target_modules=wq"}, "qq"}, /* torchtitan's name of q_proj */
        {{"--peft.match_all_linear=true", "--peft.exclude_modules=*.self_attn.*"}, "gudgud"},
        {{"--peft.layers_to_transform=1", "--peft.exclude_modules=*.self_attn.*"}, "gud"},
        {{"--peft.layers_to_transform=1", "--peft.target_modules=q_proj,model.layers.0.self_attn.k_proj"},
         "kq"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        char found[64];
        rig_open(&r, *state,
                 &(rig_options){.precision = &fixture_precisions[BF16], .more = rows[i].arguments});
        spell(&r, found);
        assert_string_equal(found, rows[i].layers);
        for (int k = 0; k < r.t->m->parameter_count; k++)
            assert_int_equal(r.t->m->parameters[k].frozen, !is_adapter(&r.t->m->parameters[k]));
        rig_close(&r);
    }
}

static void refused(void **state) {
    static const struct {
        const char *argument, *part, *other;
    } rows[] = {{"--peft.target_modules=*_proj", "not supported for adapters", "--float8.smooth_swiglu=true"},
                {"--peft.target_modules=qq_proj",
                 "peft.target_modules has \"qq_proj\", which names no linear "
                 "layer of a block; the nearest is",
                 NULL},
                {"--peft.target_modules=lm_head", "the head cannot", NULL},
                {"--peft.exclude_modules=out_proj", "peft.exclude_modules has \"out_proj\"", NULL},
                {"--peft.exclude_modules=*", "no layer has an adapter", NULL},
                {"--peft.rank_pattern=q_proj", "write the name of a layer, = and a rank", NULL},
                {"--peft.rank_pattern=q_proj=1.5", "a rank from 1 to 65536", NULL},
                {"--peft.rank_pattern=qq_proj=2", "peft.rank_pattern has \"qq_proj\"", NULL},
                {"--peft.alpha_pattern=q_proj=0", "a number above 0", NULL},
                {"--peft.layers_to_transform=2", "the model has blocks 0 to 1", NULL},
                {"--peft.layers_pattern=h", "the blocks of a llama model are called layers",
                 "--peft.layers_to_transform=1"},
                {"--peft.modules_to_save=classifier", "which names no module of a llama model", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        mem *account;
        const char *more[] = {rows[i].argument, rows[i].other, NULL};
        FIXTURE_OK(mem_open(&account));
        assert_int_equal(rig_try(&r, account, *state,
                                 &(rig_options){.precision = &fixture_precisions[BF16], .more = more}),
                         OTT_ERR_CONFIG);
        if (!strstr(status_text(), rows[i].part)) fail_msg("%s", status_text());
        mem_close(account);
    }
}

/* ---- trained parameters ---- */

static void check_step(const fixture *f, int which) {
    const char *const more[] = {LORA, NULL};
    rig plain, adapted;
    rig_open(&plain, f, &(rig_options){.precision = &fixture_precisions[which]});
    rig_open(&adapted, f, &(rig_options){.precision = &fixture_precisions[which], .more = more});
    const model *m = adapted.t->m;
    snapshot before = snapshot_take(&adapted);
    assert_true(m->trained_bytes < plain.t->m->trained_bytes / 2);
    double loss = rig_step(&plain).loss;
    assert_true(rig_step(&adapted).loss == loss); /* B is zero in the first step */
    int64_t products = m->modules.count > 0 ? 2 * 14 : 0;
    assert_int_equal(adapted.t->cx.gemms[GEMM_GRAD_WEIGHT][0], products);
    assert_int_equal(adapted.t->cx.gemms[GEMM_GRAD_WEIGHT][1], 0);
    rig_step(&adapted);
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter *p = &m->parameters[i];
        const char *start =
            (const char *)before.data + ((const char *)p->value.data - (const char *)m->values);
        float *now = rig_copy(&adapted, p->value.data, parameter_count(p));
        bool same = memcmp(now, start, (size_t)parameter_count(p) * sizeof *now) == 0;
        if (same != p->frozen) fail_msg("%s: %s", fixture_precisions[which].name, p->name);
        free(now);
    }
    snapshot_free(&before);
    rig_close(&plain);
    rig_close(&adapted);
}

static void only_adapters_move(void **state) {
    static const int precisions[] = {FP32, BF16, TENSORWISE, ROWWISE_WITH_GW_HP, DELAYED, BLOCK};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) check_step(*state, precisions[i]);
}

/* ---- equal bits ---- */

static snapshot after_steps(const fixture *f, const char *const *more, int steps) {
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[TENSORWISE], .more = more});
    for (int i = 0; i < steps; i++) rig_step(&r);
    snapshot s = snapshot_take(&r);
    rig_close(&r);
    return s;
}

static void recomputation(void **state) {
    static const char *const modes[] = {"none", "selective", "full", "op"};
    static const char *const before[] = {DROP_BEFORE}, *const after[] = {DROP_AFTER};
    for (int position = 0; position < 2; position++) {
        snapshot kept = {0};
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
            char mode[64];
            const char *const *drop = position ? after : before;
            const char *const more[] = {LORA, drop[0], drop[1], mode, NULL};
            snprintf(mode, sizeof mode, "--train.activation_checkpointing=%s", modes[i]);
            snapshot s = after_steps(*state, more, 3);
            if (i == 0)
                kept = s;
            else if (!snapshot_equal(&kept, &s))
                fail_msg("%s: other bits", modes[i]);
            if (i > 0) snapshot_free(&s);
        }
        snapshot_free(&kept);
    }
}

static void resume_equally(void **state) {
    static const char *const more[] = {LORA, DROP_BEFORE, "--train.max_steps=4", "--checkpoint.interval=2",
                                       NULL};
    static const char *const again[] = {
        LORA, DROP_BEFORE, "--train.max_steps=4", "--checkpoint.interval=2", "--checkpoint.load_path=latest",
        NULL};
    run_options o = {.name = "whole", .precision = &fixture_precisions[TENSORWISE], .more = more};
    FIXTURE_OK(fixture_run(*state, &o));
    o.name = "parts";
    o.stop_after = 2;
    FIXTURE_OK(fixture_run(*state, &o));
    o.stop_after = 0;
    o.more = again;
    FIXTURE_OK(fixture_run(*state, &o));
    fixture_expect_same_run(*state, "whole", "parts", 4);
}

/* ---- a checkpoint without base weights ---- */

/* Exports FOLDER/run to the Hugging Face folder FOLDER/goal. from: as in ott_export_options. */
static ott_status export_to(const fixture *f, const char *run, const char *goal, const char *from) {
    char path[160], to[160];
    mem *account;
    const ott_export_options o = {
        .struct_size = sizeof o, .format = OTT_EXPORT_HF, .dtype = OTT_BF16, .from = from};
    FIXTURE_OK(mem_open(&account));
    str summary = {.account = account};
    snprintf(path, sizeof path, "%s/%s", f->folder, run);
    snprintf(to, sizeof to, "%s/%s", f->folder, goal);
    ott_status status = export_run(account, NULL, path, to, &o, &summary);
    str_free(&summary);
    mem_close(account);
    return status;
}

/* Trains four steps from the folder FOLDER/name. The run is FOLDER/run. */
static ott_status run_on(const fixture *f, const char *folder, const char *run, int stop_after,
                         bool resumes) {
    char base[160];
    const char *const more[] = {base,
                                LORA,
                                "--data.format=bytes",
                                "--train.frozen_dtype=fp8",
                                "--train.max_steps=4",
                                "--checkpoint.interval=2",
                                resumes ? "--checkpoint.load_path=latest" : NULL,
                                NULL};
    snprintf(base, sizeof base, "--model.hf_path=%s/%s", f->folder, folder);
    return fixture_run(f, &(run_options){.name = run,
                                         .precision = &fixture_precisions[ROWWISE],
                                         .more = more,
                                         .stop_after = stop_after});
}

static void expect_refused(ott_status status, const char *part) {
    assert_int_not_equal(status, OTT_OK);
    if (!strstr(status_text(), part)) fail_msg("%s", status_text());
}

/* A checkpoint contains only adapters. The base weights are read from the path that the run used, or from the
   configured path, and from nowhere else. */
static void checkpoints_leave_the_base(void **state) {
    static const char *const short_run[] = {"--train.max_steps=2", "--checkpoint.interval=2", NULL};
    const fixture *f = *state;
    char old[160], moved[160], weights[200];
    int64_t bytes;
    FIXTURE_OK(fixture_run(
        f, &(run_options){.name = "made", .precision = &fixture_precisions[BF16], .more = short_run}));
    FIXTURE_OK(export_to(f, "made", "base", NULL));
    FIXTURE_OK(run_on(f, "base", "slim", 0, false));
    char *file = fixture_read(f, "slim/checkpoints/step-4/model.safetensors", &bytes);
    assert_null(strstr(file + 8, "embed_tokens"));
    assert_non_null(strstr(file + 8, "lora_A"));
    free(file);
    FIXTURE_OK(run_on(f, "base", "slim_parts", 2, false));
    FIXTURE_OK(run_on(f, "base", "slim_parts", 0, true));
    fixture_expect_same_run(f, "slim", "slim_parts", 4);
    FIXTURE_OK(run_on(f, "base", "slim_moved", 2, false));
    snprintf(old, sizeof old, "%s/base", f->folder);
    snprintf(moved, sizeof moved, "%s/elsewhere", f->folder);
    FIXTURE_OK(file_rename(old, moved));
    expect_refused(run_on(f, "base", "slim_moved", 0, true), "model.hf_path");
    expect_refused(export_to(f, "slim", "out", ""), "is not a folder");
    FIXTURE_OK(export_to(f, "slim", "out", moved));
    FIXTURE_OK(run_on(f, "elsewhere", "slim_moved", 0, true));
    snprintf(weights, sizeof weights, "%s/model.safetensors", moved);
    file = fixture_read(f, "elsewhere/model.safetensors", &bytes);
    file[bytes - 1] ^= 1;
    FIXTURE_OK(file_write_atomic(weights, file, bytes));
    free(file);
    expect_refused(export_to(f, "slim", "other", moved), "need other base weights than");
    FIXTURE_OK(file_rename(moved, old));
    expect_refused(export_to(f, "slim", "other", NULL), "need other base weights than");
    FIXTURE_OK(export_to(f, "made", "base again", NULL));
    snprintf(moved, sizeof moved, "%s/base again", f->folder);
    FIXTURE_OK(export_to(f, "slim", "other", moved));
}

/* ---- an FP8 folder of an MoE model ---- */

enum { VOCABULARY = 256, PROMPT = 12 };

/* Computes logits of the model in FOLDER/name. The model is opened as for generation. masters: whether the
   model keeps masters of its weights. */
static void read_logits(const fixture *f, const char *name, bool masters, float logits[VOCABULARY]) {
    char path[160], *checkpoint;
    int32_t prompt[PROMPT];
    mem *account;
    config *cfg;
    inference_plan how;
    device *d;
    model *m;
    model_cache *cache;
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    for (int i = 0; i < PROMPT; i++) prompt[i] = 32 + 7 * i;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(inference_find(account, path, NULL, 0, &cfg, &checkpoint));
    if (masters) FIXTURE_OK(config_set(cfg, "train.frozen_dtype", "fp32"));
    FIXTURE_OK(inference_read(account, cfg, checkpoint, &how));
    FIXTURE_OK(test_device_open(account, 1, NULL, &d));
    FIXTURE_OK(inference_open(&how, d, cfg->train.seq_len, NULL, &m));
    for (int i = 0; i < m->all_parameter_count; i++)
        if (m->all_parameters[i]->of_experts) assert_int_equal(m->all_parameters[i]->codes != NULL, !masters);
    FIXTURE_OK(model_pack(m));
    FIXTURE_OK(model_cache_open(m, NULL, PROMPT, &cache));
    FIXTURE_OK(model_cache_extend(cache, prompt, PROMPT, logits));
    model_cache_close(cache);
    model_close(m);
    device_close(d);
    config_close(cfg);
    mem_free(account, checkpoint);
    mem_close(account);
}

static void expect_same_logits(const fixture *f, const char *name, float codes[VOCABULARY]) {
    static float masters[VOCABULARY];
    read_logits(f, name, false, codes);
    read_logits(f, name, true, masters);
    assert_memory_equal(codes, masters, sizeof masters);
}

static void export_as(const fixture *f, const char *run, const char *goal, ott_export_options o) {
    char path[160], to[160];
    mem *account;
    FIXTURE_OK(mem_open(&account));
    str summary = {.account = account};
    o.struct_size = sizeof o;
    snprintf(path, sizeof path, "%s/%s", f->folder, run);
    snprintf(to, sizeof to, "%s/%s", f->folder, goal);
    FIXTURE_OK(export_run(account, NULL, path, to, &o, &summary));
    str_free(&summary);
    mem_close(account);
}

/* Adapters on frozen FP8 expert weights give the same results as on masters with the same values. Evaluation
   and generation of the trained model need no masters. */
static void mixtures_stay_in_fp8(void **state) {
    static const char *const made[] = {"--model.family=mixtral", "--model.num_experts=4",
                                       "--train.max_steps=1", "--checkpoint.interval=1", NULL};
    static float base_logits[VOCABULARY], adapted[VOCABULARY];
    const fixture *f = *state;
    char base[160], kept[40];
    const char *const more[] = {
        base, kept, LORA, "--data.format=bytes", "--train.max_steps=2", "--checkpoint.interval=2", NULL};
    run_options o = {.name = "mixture", .precision = &fixture_precisions[BF16], .more = made};
    FIXTURE_OK(fixture_run(f, &o));
    export_as(f, "mixture", "mixture_fp8",
              (ott_export_options){.format = OTT_EXPORT_HF_FP8,
                                   .dtype = OTT_BF16,
                                   .method = OTT_EXPORT_COMPRESSED_TENSORS,
                                   .granularity = OTT_EXPORT_CHANNEL});
    expect_same_logits(f, "mixture_fp8", base_logits);
    snprintf(base, sizeof base, "--model.hf_path=%s/mixture_fp8", f->folder);
    o.more = more;
    for (int i = 0; i < 2; i++) {
        o.name = i == 0 ? "with_codes" : "with_masters";
        snprintf(kept, sizeof kept, "--train.frozen_dtype=%s", i == 0 ? "fp8" : "fp32");
        FIXTURE_OK(fixture_run(f, &o));
    }
    fixture_expect_same_run(f, "with_codes", "with_masters", 2);
    export_as(f, "with_codes", "mixture_peft", (ott_export_options){.format = OTT_EXPORT_PEFT});
    expect_same_logits(f, "mixture_peft", adapted);
    assert_memory_not_equal(base_logits, adapted, sizeof base_logits);
}

/* Runs an example configuration for an 8B model. The model folder has the keys of the 8B model, but the small
   sizes of the test's model. */
static void ready_configuration(void **state) {
    static const char *const keys[] = {"--model.rope_scaling=llama3", "--model.rope_theta=5e5",
                                       "--train.max_steps=1", "--checkpoint.interval=1", NULL};
    const fixture *f = *state;
    char folder[160];
    const char *const more[] = {TEST_SOURCE_DIR "/configs/llama3_1_8b_lora_fp8.yaml",
                                folder,
                                "--data.format=bytes",
                                "--data.pack_sequences=false",
                                "--train.max_steps=2",
                                NULL};
    captured_log *logged = calloc(1, sizeof *logged);
    FIXTURE_OK(
        fixture_run(f, &(run_options){.name = "keys", .precision = &fixture_precisions[BF16], .more = keys}));
    FIXTURE_OK(export_to(f, "keys", "llama", NULL));
    snprintf(folder, sizeof folder, "--model.hf_path=%s/llama", f->folder);
    FIXTURE_OK(fixture_run(f, &(run_options){.name = "ready", .more = more, .logged = logged}));
    assert_true(captured_log_has(logged, "recipe=TENSORWISE"));
    assert_true(captured_log_has(logged, "Loaded the weights of"));
    free(logged);
}

/* ---- ranks ---- */

typedef struct spread {
    const char *name;
    mesh_layout layout;
    int micro_batches, of_one; /* micro-batches per step: of each rank; of the single rank that is compared */
    bool exact;
} spread;

#define SIZES(...) .size = {__VA_ARGS__}
static const spread spreads[] = {
    {"dp_shard", .layout = {SIZES([MESH_DP_SHARD] = 2)}, .micro_batches = 1, .of_one = 2, .exact = true},
    {"dp_shard of 4", .layout = {SIZES([MESH_DP_SHARD] = 4)}, .micro_batches = 1, .of_one = 4, .exact = true},
    {"pp", .layout = {SIZES([MESH_PP] = 2)}, .micro_batches = 2, .of_one = 2, .exact = true},
    {"tp", .layout = {SIZES([MESH_TP] = 2)}, .micro_batches = 1, .of_one = 1},
    {"tp, sequence_parallel", .layout = {SIZES([MESH_TP] = 2), .sequence_parallel = true}, .micro_batches = 1,
     .of_one = 1},
    {"cp", .layout = {SIZES([MESH_CP] = 2)}, .micro_batches = 1, .of_one = 1},
    {"dp_shard x tp", .layout = {SIZES([MESH_DP_SHARD] = 2, [MESH_TP] = 2)}, .micro_batches = 1, .of_one = 2},
};

static void check_spread(const fixture *f, const spread *s, int which, const char *const drop[2],
                         const char *more_of_both) {
    char own[48], all[48], what[160];
    const char *const one_more[] = {LORA, drop[0], drop[1], more_of_both, all, NULL};
    const char *const more[] = {LORA, drop[0], drop[1], more_of_both, own, NULL};
    outcome one, ranks;
    snprintf(own, sizeof own, "--train.grad_accum_steps=%d", s->micro_batches);
    snprintf(all, sizeof all, "--train.grad_accum_steps=%d", s->of_one);
    mesh_run(f, &(mesh_run_options){.precision = &fixture_precisions[which], .more = one_more}, &one);
    mesh_run(f,
             &(mesh_run_options){.precision = &fixture_precisions[which], .more = more, .layout = s->layout},
             &ranks);
    if (s->exact && !outcome_equal(&one, &ranks, what)) fail_msg("%s: %s", s->name, what);
    for (int kind = OUTCOME_GRADIENT; kind <= OUTCOME_VALUE; kind++) {
        double distance = outcome_distance(&one, &ranks, (outcome_kind)kind);
        if (!(distance <= BOUND)) fail_msg("%s: %g apart in %d", s->name, distance, kind);
    }
    outcome_free(&one);
    outcome_free(&ranks);
}

static void on_ranks(void **state) {
    static const char *const before[] = {DROP_BEFORE}, *const after[] = {DROP_AFTER};
    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
        const spread *s = &spreads[i];
        check_spread(*state, s, s->exact ? TENSORWISE : FP32, i % 2 ? before : after,
                     "--model.fused_qkv=true");
        check_spread(*state, s, FP32, i % 2 ? after : before, "--model.fused_qkv=false");
    }
}

/* Tests layers with different ranks, adapters in one block only, and fully trained modules: embedding, head
   and norms. */
static void patterns_on_ranks(void **state) {
    static const char *const choice[] = {"--peft.modules_to_save=lm_head,embed_tokens,input_layernorm",
                                         "--peft.rank_pattern=q_proj=2,down_proj=8"};
    static const int which[] = {0, 2, 4, 5};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        check_spread(*state, &spreads[which[i]], FP32, choice, "--peft.layers_to_transform=1");
}

/* FP8 weights of experts are sharded and gathered as codes. */
static void with_experts_on_ranks(void **state) {
    static const spread ways[] = {
        {"dp_shard", .layout = {SIZES([MESH_DP_SHARD] = 2)}, .micro_batches = 1, .of_one = 2, .exact = true},
        {"ep", .layout = {SIZES([MESH_EP] = 2)}, .micro_batches = 1, .of_one = 2, .exact = true},
        {"dp_shard x ep", .layout = {SIZES([MESH_DP_SHARD] = 2, [MESH_EP] = 2)}, .micro_batches = 1,
         .of_one = 4, .exact = true}};
    static const char *const experts[] = {"--model.num_experts=4", "--train.frozen_dtype=fp8"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        check_spread(*state, &ways[i], i % 2 ? ROWWISE : TENSORWISE, experts, "--model.fused_qkv=false");
}

/* ---- DoRA ---- */

#define DORA LORA, "--peft.use_dora=true"

/* A DoRA run starts at the base model, its A, B and magnitudes train, and the base weights keep their
   bits. */
static void decomposed_begin_at_the_base(void **state) {
    static const char *const more[] = {DORA, NULL}, *const kept[] = {DORA, "--train.frozen_dtype=fp8", NULL};
    rig plain, r;
    rig_open(&plain, *state, &(rig_options){.precision = &fixture_precisions[FP32]});
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    double loss = rig_step(&plain).loss;
    assert_true(fabs(rig_step(&r).loss - loss) < 1e-5 * loss);
    rig_close(&plain);
    for (int i = 0; i < r.t->m->parameter_count; i++) {
        const parameter *p = &r.t->m->parameters[i];
        assert_int_equal(p->frozen, !is_adapter(p));
        if (!p->frozen && !strstr(p->name, "lora_A")) assert_true(rig_peek(&r, &p->grad, 0) != 0);
    }
    rig_close(&r);
    static const int precisions[] = {BF16, TENSORWISE, DELAYED, BLOCK};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        rig_open(
            &r, *state,
            &(rig_options){.precision = &fixture_precisions[precisions[i]], .more = i % 2 ? kept : more});
        double first = rig_validate(&r);
        for (int k = 0; k < 6; k++) rig_step(&r);
        assert_true(rig_validate(&r) < first);
        if (precisions[i] != BF16) assert_true(r.t->cx.gemms[GEMM_OUTPUT][1] > 0);
        const linear *l = &r.t->m->blocks[0].attention.q;
        if (l->weight->codes)
            assert_int_equal(weight_get_codes_use(&l->source, false),
                             precisions[i] == BF16 ? WEIGHT_CODES_DEQUANTIZED : WEIGHT_CODES_REQUANTIZED);
        rig_close(&r);
    }
}

/* The memory plan covers DoRA's initial magnitudes, which are computed before the first step. */
static void decomposed_take_what_is_planned(void **state) {
    static const char *const formats[] = {"--train.frozen_dtype=fp32", "--train.frozen_dtype=fp8"};
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int i = 0; i < 2; i++) {
            const char *const more[] = {DORA, "--model.dim=256", "--model.ffn_hidden_dim=1024", formats[i],
                                        NULL};
            const mesh_run_options how = {.precision = &fixture_precisions[BF16],
                                          .more = more,
                                          .layout.size = {[MESH_DP_SHARD] = ranks}};
            outcome o;
            mesh_run(*state, &how, &o);
            double ratio = (double)o.peak / (double)o.planned;
            print_message("  %d ranks, %s: planned %.1f MiB, peak %.1f\n", ranks, formats[i],
                          (double)o.planned / 1048576, (double)o.peak / 1048576);
            assert_true(ratio > 0.95 && ratio < 1.05);
            outcome_free(&o);
        }
}

static void decomposed_are_refused(void **state) {
    static const char *const more[] = {DORA, DROP_AFTER, NULL};
    rig r;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    assert_int_equal(
        rig_try(&r, account, *state, &(rig_options){.precision = &fixture_precisions[BF16], .more = more}),
        OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "set peft.dropout_position = pre"));
    mem_close(account);
}

/* Compares DoRA on several ranks with one rank. Without tensor parallelism all bits are equal, also with a
   base in FP8 or with dropout. */
static void decomposed_on_ranks(void **state) {
    static const char *const kept[] = {"--train.frozen_dtype=fp8", "--peft.dropout=0"}, *const before[] = {
                                                                                            DROP_BEFORE};
    static const int which[] = {0, 2, 3, 6};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        const spread *s = &spreads[which[i]];
        check_spread(*state, s, s->exact ? TENSORWISE : FP32, i % 2 ? before : kept, "--peft.use_dora=true");
        if (i == 0) check_spread(*state, s, BF16, before, "--peft.use_dora=true");
    }
}

/* ---- PEFT's reference values (tests/golden/README.md) ---- */

#define GOLDEN_BOUND 1e-5 /* of a difference, relative to the tensor's norm */

typedef struct variant {
    const char *name, *family;
    adapter_options adapter;
} variant;

#define LIST_OF(...)                                                                                         \
    &(const str_list) {                                                                                      \
        (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)           \
    }

static const variant variants[] = {
    {"llama", "llama", {.rank = 4, .scale = 1.5f, .targets = LIST_OF("*_proj")}},
    {"rslora", "llama", {.rank = 4, .scale = 3.0f, .targets = LIST_OF("q_proj", "v_proj")}},
    {"phi3", "phi3", {.rank = 4, .scale = 1.5f, .targets = LIST_OF("*_proj")}},
    {"dora", "llama", {.rank = 4, .scale = 1.5f, .targets = LIST_OF("*_proj"), .decomposed = true}},
    {"patterns",
     "llama",
     {.rank = 4,
      .alpha = 6,
      .scale = 1.5f,
      .ranks = LIST_OF("q_proj=2", "model.layers.1.mlp.down_proj=6"),
      .alphas = LIST_OF("v_proj=12"),
      .layers = LIST_OF("1"),
      .layer_lists = LIST_OF("layers"),
      .saved = LIST_OF("lm_head", "input_layernorm")}}};

/* Puts a fused base weight together: it joins the rows of the tensors that the golden file stores
   separately. */
static void put_base(tiny *t, const golden *base, const model_module *e) {
    module_part part[MODULES_PARTS];
    int parts = modules_parts(&t->m->options, e, part);
    for (int i = 0; i < parts; i++) {
        char name[MODULES_NAME_BYTES];
        modules_name(t->m->options.family, part[i].role, NAMING_HUGGING_FACE, e->layer, name);
        golden_tensor w = golden_read(base, "weight/%s.weight", name);
        tensor to =
            e->rank == 1 ? e->weight->value : tensor_rows(e->weight->value, part[i].first, part[i].count);
        assert_int_equal(w.count, tensor_count(to));
        harness_put(&t->h, &to, w.values);
        golden_free(base, &w);
    }
}

static void put_adapter(tiny *t, const golden *g, const char *name, const parameter *p) {
    golden_tensor w = golden_read(g, "%s/weight/%s", name, p->name);
    assert_int_equal(w.count, parameter_count(p));
    harness_put(&t->h, &p->value, w.values);
    golden_free(g, &w);
}

static void expect_near(const float *ours, const golden_tensor *theirs, const char *what) {
    double squares = 0, apart = 0;
    for (int64_t i = 0; i < theirs->count; i++) {
        double x = (double)theirs->values[i], d = (double)ours[i] - x;
        squares += x * x;
        apart += d * d;
    }
    if (!(sqrt(apart) <= GOLDEN_BOUND * sqrt(squares)))
        fail_msg("%s: %g of %g apart", what, sqrt(apart), sqrt(squares));
}

static void expect_gradient(tiny *t, const golden *g, const char *name, const parameter *p) {
    golden_tensor theirs = golden_read(g, "%s/grad/%s", name, p->name);
    float *ours = malloc((size_t)theirs.count * sizeof *ours);
    harness_get(&t->h, &p->grad, ours);
    expect_near(ours, &theirs, p->name);
    free(ours);
    golden_free(g, &theirs);
}

static void check_variant(const variant *v) {
    tiny t;
    golden base, g;
    model_options o = tiny_options();
    o.family = family_find(v->family);
    o.fused_qkv = o.family->fused_qkv;
    o.fused_gate_up = o.family->fused_gate_up;
    o.adapter = v->adapter;
    tiny_open(&t, &o, 1, NULL);
    golden_open(&base, t.h.account, "model_fp32");
    golden_open(&g, t.h.account, "adapters");
    for (int i = 0; i < t.m->modules.count; i++) {
        const model_module *e = &t.m->modules.items[i];
        put_base(&t, &base, e);
        if (e->saved) put_adapter(&t, &g, v->name, e->weight);
        if (!e->lora_a) continue;
        put_adapter(&t, &g, v->name, e->lora_a);
        put_adapter(&t, &g, v->name, e->lora_b);
        if (v->adapter.decomposed) put_adapter(&t, &g, v->name, e->lora_m);
    }
    tiny_convert(&t, recipe_high_precision(OTT_F32), NULL, NULL);
    golden_tensor token = golden_read(&base, "tokens"), target = golden_read(&base, "targets");
    tiny_batch(&t, 2, 24, token.t.data, target.t.data);
    tiny_run(&t);
    golden_tensor theirs = golden_read(&g, "%s/losses", v->name);
    float *ours = tiny_losses(&t);
    expect_near(ours, &theirs, v->name);
    for (int i = 0; i < t.m->parameter_count; i++)
        if (!t.m->parameters[i].frozen) expect_gradient(&t, &g, v->name, &t.m->parameters[i]);
    free(ours);
    golden_free(&g, &theirs);
    golden_free(&base, &token);
    golden_free(&base, &target);
    golden_close(&base);
    golden_close(&g);
    tiny_close(&t);
}

static void are_pefts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) check_variant(&variants[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets),
        cmocka_unit_test(refused),
        cmocka_unit_test(only_adapters_move),
        cmocka_unit_test(recomputation),
        cmocka_unit_test(resume_equally),
        cmocka_unit_test(checkpoints_leave_the_base),
        cmocka_unit_test(mixtures_stay_in_fp8),
        cmocka_unit_test(ready_configuration),
        cmocka_unit_test(on_ranks),
        cmocka_unit_test(patterns_on_ranks),
        cmocka_unit_test(with_experts_on_ranks),
        cmocka_unit_test(decomposed_begin_at_the_base),
        cmocka_unit_test(decomposed_take_what_is_planned),
        cmocka_unit_test(decomposed_are_refused),
        cmocka_unit_test(decomposed_on_ranks),
        cmocka_unit_test(are_pefts),
    };
    return cmocka_run_group_tests_name("train.adapters", tests, fixture_setup, fixture_teardown);
}
