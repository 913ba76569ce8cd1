/*
 * Saves models as Hugging Face folders and loads them: configuration, weights, files kept from the original
 * folder, FP8. (transformers computes the same results from such folders. This was checked manually for all
 * five families.)
 */
#include "base/file/file.h"
#include "base/rng.h"
#include "fp8/cast.h"
#include "fp8/reference.h"
#include "formats/hf/config.h"
#include "formats/safetensors/shards.h"
#include "model/convert.h"
#include "nn/draw.h"
#include "folders/hf/model.h"
#include "folders/hf/save.h"
#include "checkpoint/run_folder.h"
#include "resolve/resolve.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define TEST(f) cmocka_unit_test_setup_teardown(f, run_folder_setup, run_folder_teardown)

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

/* ---- models ---- */

static model_options options_of(const char *name) {
    model_options o = small_options();
    o.family = family_find(name);
    o.qkv_bias = o.family->qkv_bias;
    o.qk_norm = o.family->qk_norm;
    o.fused_qkv = o.family->fused_qkv;
    o.fused_gate_up = o.family->fused_gate_up;
    o.vocab = 64;
    return o;
}

/* Returns the options with separate projections. */
static model_options apart(model_options o) {
    o.fused_qkv = o.fused_gate_up = false;
    return o;
}

/* Opens a model with values of many magnitudes, like a trained model. */
static model *filled_model(run_folder *f, const model_options *o, uint64_t seed) {
    model *m = small_model(f, o, MODEL_INFERENCE, 0);
    for (int i = 0; i < m->parameter_count; i++) {
        float *values = parameter_values(m, &m->parameters[i]);
        for (int64_t j = 0; j < parameter_count(&m->parameters[i]); j++)
            values[j] = rng_normal(seed, (uint64_t)i, (uint64_t)j) * ldexpf(1, (int)(j % 7) - 8);
        set_parameter(m, &m->parameters[i], values);
        free(values);
    }
    return m;
}

static hf_save_summary save(model *m, const char *folder, const hf_save_options *o) {
    hf_save_summary sum;
    succeed(hf_model_save(m, o, folder, &sum));
    return sum;
}

/* Returns the configuration of a run that starts from the folder. Close it with config_close. */
static config *configuration(run_folder *f, const char *folder) {
    char argument[320];
    config *cfg;
    snprintf(argument, sizeof argument, "--model.hf_path=%s", folder);
    const char *arguments[] = {argument, "--train.seq_len=8"};
    succeed(config_parse(f->account, NULL, 2, arguments, &cfg));
    return cfg;
}

static model_options read_options(run_folder *f, const char *folder) {
    model_options o;
    config *cfg = configuration(f, folder);
    succeed(hf_model_configure(f->account, cfg, NULL));
    succeed(model_options_resolve(cfg, &o));
    config_close(cfg);
    return o;
}

static void assert_same_options(const model_options *a, const model_options *b) {
    assert_string_equal(a->family->name, b->family->name);
    const int64_t x[] = {a->dim,    a->layers, a->heads,         a->kv_heads, a->head_dim,
                         a->hidden, a->vocab,  a->max_positions, a->window};
    const int64_t y[] = {b->dim,    b->layers, b->heads,         b->kv_heads, b->head_dim,
                         b->hidden, b->vocab,  b->max_positions, b->window};
    assert_memory_equal(x, y, sizeof x);
    assert_true(a->norm_epsilon == b->norm_epsilon && a->tied == b->tied);
    assert_true(a->qkv_bias == b->qkv_bias && a->qk_norm == b->qk_norm);
    assert_true(a->fused_qkv == b->fused_qkv && a->fused_gate_up == b->fused_gate_up);
    assert_int_equal(a->rope.kind, b->rope.kind);
    assert_true(a->rope.theta == b->rope.theta);
    if (a->rope.kind == ROPE_PLAIN) return;
    assert_true(a->rope.factor == b->rope.factor &&
                a->rope.low_frequency_factor == b->rope.low_frequency_factor &&
                a->rope.high_frequency_factor == b->rope.high_frequency_factor &&
                a->rope.original_max_position == b->rope.original_max_position);
}

/* ---- save and load ---- */

/* Several ranks load a folder. Each reads its own rows. */
static void check_shards(run_folder *f, const model_options *o, const model *full, const char *folder) {
    for (int rank = 0; rank < 3; rank++) {
        group ranks = {.rank = rank, .size = 3};
        model_options own = *o;
        own.shard_ranks = &ranks;
        model *m = small_model(f, &own, MODEL_INFERENCE, 0);
        succeed(hf_model_load(m, folder));
        assert_shard_of(full, m);
        model_close(m);
    }
}

static void check_round_trip(run_folder *f, const model_options *o, const char *name) {
    model *saved = filled_model(f, o, 3);
    save(saved, at(f, "%s", name), &(hf_save_options){.dtype = OTT_F32});
    model_options again = read_options(f, at(f, "%s", name));
    assert_same_options(o, &again);
    model *loaded = small_model(f, &again, MODEL_INFERENCE, 0);
    succeed(hf_model_load(loaded, at(f, "%s", name)));
    assert_same_model(saved, loaded);
    check_shards(f, &again, saved, at(f, "%s", name));
    model_close(saved);
    model_close(loaded);
}

static void test_round_trip_of_families(void **state) {
    static const char *const names[] = {"llama", "mistral", "qwen2", "qwen3", "phi3"};
    for (int i = 0; i < 5; i++) {
        model_options o = options_of(names[i]);
        check_round_trip(*state, &o, names[i]);
    }
}

static void test_round_trip_of_features(void **state) {
    model_options tied = options_of("qwen3"), window = options_of("mistral"), llama3 = options_of("llama");
    tied.tied = true;
    tied.norm_epsilon = 1e-6f;
    window.window = 7;
    window.head_dim = 16; /* so that head_dim is not dim / heads */
    llama3.rope = (rope_options){.kind = ROPE_LLAMA3,
                                 .theta = 5e5,
                                 .factor = 32,
                                 .low_frequency_factor = 1,
                                 .high_frequency_factor = 4,
                                 .original_max_position = 8192};
    check_round_trip(*state, &tied, "tied");
    check_round_trip(*state, &window, "window");
    check_round_trip(*state, &llama3, "llama3");
}

static void assert_rounded(const model *saved, const model *loaded, ott_dtype d) {
    for (int i = 0; i < saved->parameter_count; i++) {
        float *x = parameter_values(saved, &saved->parameters[i]);
        float *y = parameter_values(loaded, &loaded->parameters[i]);
        for (int64_t j = 0; j < parameter_count(&saved->parameters[i]); j++)
            assert_true(y[j] == (d == OTT_BF16 ? cast_from_bf16(cast_to_bf16(x[j]))
                                               : cast_from_f16(cast_to_f16(x[j]))));
        free(x);
        free(y);
    }
}

static void test_formats_round_once(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *saved = filled_model(f, &o, 5), *loaded = small_model(f, &o, MODEL_INFERENCE, 0);
    save(saved, at(f, "bf16"), &(hf_save_options){.dtype = OTT_BF16});
    save(saved, at(f, "f16"), &(hf_save_options){.dtype = OTT_F16});
    succeed(hf_model_load(loaded, at(f, "bf16")));
    assert_rounded(saved, loaded, OTT_BF16);
    succeed(hf_model_load(loaded, at(f, "f16")));
    assert_rounded(saved, loaded, OTT_F16);
    model_close(saved);
    model_close(loaded);
}

/* ---- master dither ---- */

/* Checks that dither raised some values and lowered others, and that all still round to the loaded values.
   Frozen parameters and norms must not change. */
static void assert_dithered(const model *plain, const model *dithered, ott_dtype d) {
    int64_t moved = 0, up = 0, all = 0, frozen = 0;
    for (int i = 0; i < plain->parameter_count; i++) {
        const parameter *p = &plain->parameters[i];
        float *x = parameter_values(plain, p), *y = parameter_values(dithered, &dithered->parameters[i]);
        bool dithers = !p->frozen && p->rank > 1;
        for (int64_t j = 0; j < parameter_count(p); j++) {
            float back =
                d == OTT_BF16 ? cast_from_bf16(cast_to_bf16(y[j])) : cast_from_f16(cast_to_f16(y[j]));
            assert_true(back == x[j]);
            assert_true(dithers || x[j] == y[j]);
            moved += y[j] != x[j];
            up += y[j] > x[j];
            all += dithers && x[j] != 0;
            frozen += p->frozen;
        }
        free(x);
        free(y);
    }
    assert_true(frozen > 0);
    assert_true(moved > all * 99 / 100 && moved <= all);
    assert_true(up > moved * 48 / 100 && up < moved * 52 / 100);
}

/* Dithering adds the same offsets to a shard as to the shard's elements in the full tensor. */
static void check_dithered_shards(run_folder *f, const model_options *o, const model *full,
                                  const char *folder) {
    for (int rank = 0; rank < 3; rank++) {
        group ranks = {.rank = rank, .size = 3};
        model_options own = *o;
        own.shard_ranks = &ranks;
        model *m = small_model(f, &own, MODEL_TRAINING, 0);
        succeed(hf_model_load_dithered(m, folder, 7));
        assert_shard_of(full, m);
        model_close(m);
    }
}

static void check_dither(run_folder *f, const model_options *o, ott_dtype d) {
    const char *folder = at(f, "%s", dtype_name(d));
    model *plain = small_model(f, o, MODEL_TRAINING, 0), *dithered = small_model(f, o, MODEL_TRAINING, 0);
    succeed(hf_model_load(plain, folder));
    succeed(hf_model_load_dithered(dithered, folder, 7));
    assert_true(plain->masters_from == d && dithered->masters_from == d);
    assert_dithered(plain, dithered, d);
    check_dithered_shards(f, o, dithered, folder);
    save(dithered, at(f, "%s-again", dtype_name(d)), &(hf_save_options){.dtype = d});
    succeed(hf_model_load(dithered, at(f, "%s-again", dtype_name(d))));
    assert_same_model(plain, dithered);
    model_close(plain);
    model_close(dithered);
}

static void test_masters_are_dithered(void **state) {
    run_folder *f = *state;
    static const char *const frozen[] = {"model.layers.0.mlp.*"};
    const ott_dtype formats[] = {OTT_BF16, OTT_F16};
    model_options o = options_of("llama");
    model *saved = filled_model(f, &o, 5);
    o.freeze = &(str_list){.items = frozen, .count = 1};
    for (int i = 0; i < 2; i++) {
        save(saved, at(f, "%s", dtype_name(formats[i])), &(hf_save_options){.dtype = formats[i]});
        check_dither(f, &o, formats[i]);
    }
    model_close(saved);
}

/* Masters that are loaded from an fp32 folder get no dither. */
static void test_fp32_folders_are_not_dithered(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *saved = filled_model(f, &o, 5), *loaded = small_model(f, &o, MODEL_INFERENCE, 0);
    save(saved, at(f, "f32"), &(hf_save_options){.dtype = OTT_F32});
    succeed(hf_model_load_dithered(loaded, at(f, "f32"), 7));
    assert_true(loaded->masters_from == OTT_F32);
    assert_same_model(saved, loaded);
    model_close(saved);
    model_close(loaded);
}

/* Dithers every value of bf16 and of fp16 16 times. The dithered value must round to the value itself. */
static void test_dither_rounds_away(void **state) {
    (void)state;
    enum { CODES = 1 << 16 };
    float *x = malloc(CODES * sizeof *x);
    for (int d = 0; d < 2; d++)
        for (uint64_t seed = 0; seed < 16; seed++) {
            for (int i = 0; i < CODES; i++)
                x[i] = d ? cast_from_f16((uint16_t)i) : cast_from_bf16((uint16_t)i);
            draw_dither(x, CODES, d ? OTT_F16 : OTT_BF16, seed, 1, 0);
            for (int i = 0; i < CODES; i++)
                if (!isnan(x[i])) assert_int_equal(d ? cast_to_f16(x[i]) : cast_to_bf16(x[i]), i);
        }
    free(x);
}

static parameter *find_parameter(model *m, const char *name) {
    for (int i = 0; i < m->parameter_count; i++)
        if (strcmp(m->parameters[i].name, name) == 0) return &m->parameters[i];
    fail_msg("the model has no %s", name);
    return NULL;
}

/* Reads a full tensor of a folder as fp32. The caller frees it. */
static float *read_tensor(shards *s, const char *name) {
    const shard_tensor *t = shards_find(s, name);
    if (!t) fail_msg("the folder has no %s", name);
    int64_t count = safetensors_elements(t->entry);
    float *out = malloc((size_t)count * sizeof *out);
    succeed(shards_read_floats(s, t, 0, count, out));
    return out;
}

/* In Phi-3's files one tensor has the rows of q, then k, then v; another has the rows of gate, then up. */
static void test_fused_tensors_hold_the_parts_in_order(void **state) {
    run_folder *f = *state;
    static const char *const parts[2][3] = {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                            {"mlp.gate_proj", "mlp.up_proj", NULL}};
    static const char *const fused_names[] = {"self_attn.qkv_proj", "mlp.gate_up_proj"};
    model_options o = apart(options_of("phi3"));
    model *m = filled_model(f, &o, 9);
    shards *s;
    char name[96];
    save(m, at(f, "phi"), &(hf_save_options){.dtype = OTT_F32});
    succeed(shards_open(f->account, at(f, "phi"), &s));
    assert_null(shards_find(s, "model.layers.1.self_attn.q_proj.weight"));
    for (int w = 0; w < 2; w++) {
        snprintf(name, sizeof name, "model.layers.1.%s.weight", fused_names[w]);
        float *full = read_tensor(s, name), *at_part = full;
        for (int i = 0; i < 3 && parts[w][i]; i++) {
            snprintf(name, sizeof name, "model.layers.1.%s.weight", parts[w][i]);
            const parameter *p = find_parameter(m, name);
            float *values = parameter_values(m, p);
            assert_memory_equal(at_part, values, (size_t)parameter_count(p) * sizeof(float));
            at_part += parameter_count(p);
            free(values);
        }
        free(full);
    }
    shards_close(s);
    model_close(m);
}

/* The saved folder must be the same for fused and for separate projections of the model. */
static void check_together_and_apart(run_folder *f, const char *family_name, const hf_save_options *options,
                                     const char *folder) {
    static const char *const names[] = {"apart", "qkv", "gate_up", "together"};
    model_options o = apart(options_of(family_name));
    char path[64], first[64];
    model *source = filled_model(f, &o, 31);
    snprintf(first, sizeof first, "%s-source", folder);
    save(source, at(f, "%s", first), &(hf_save_options){.dtype = OTT_F32});
    for (int i = 0; i < 4; i++) {
        o.fused_qkv = i & 1;
        o.fused_gate_up = i & 2;
        model *m = small_model(f, &o, MODEL_INFERENCE, 0);
        succeed(hf_model_load(m, at(f, "%s", first)));
        snprintf(path, sizeof path, "%s-%s", folder, names[i]);
        save(m, at(f, "%s", path), options);
        model_close(m);
        if (i == 0) continue;
        int64_t bytes, others;
        snprintf(path, sizeof path, "%s-apart/model.safetensors", folder);
        char *a = read_text(f, at(f, "%s", path), &bytes);
        snprintf(path, sizeof path, "%s-%s/model.safetensors", folder, names[i]);
        char *b = read_text(f, at(f, "%s", path), &others);
        assert_int_equal(bytes, others);
        assert_memory_equal(a, b, (size_t)bytes);
        mem_free(f->account, a);
        mem_free(f->account, b);
    }
    model_close(source);
}

static void test_projections_together_or_apart(void **state) {
    const hf_save_options plain = {.dtype = OTT_F32};
    const hf_save_options fp8 = {.dtype = OTT_BF16, .fp8 = true, .method = HF_METHOD_FP8};
    check_together_and_apart(*state, "llama", &plain, "llama");
    check_together_and_apart(*state, "phi3", &plain, "phi3");
    check_together_and_apart(*state, "qwen2", &plain, "biases");
    check_together_and_apart(*state, "mistral", &fp8, "mistral8");
    check_together_and_apart(*state, "phi3", &fp8, "phi8");
}

/* Saves models that Llama's config.json cannot describe. They are saved as another family that can. */
static void test_a_model_is_saved_as_the_family_that_can_say_it(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    hf_save_summary sum;
    const hf_save_options options = {.dtype = OTT_F32};
    o.qkv_bias = true;
    model *m = filled_model(f, &o, 1);
    assert_string_equal(save(m, at(f, "bias"), &options).family, "qwen2");
    model_options again = read_options(f, at(f, "bias"));
    assert_true(again.qkv_bias && !again.qk_norm);
    model_close(m);
    o.qk_norm = true;
    m = filled_model(f, &o, 1);
    assert_error(hf_model_save(m, &options, at(f, "both"), &sum), OTT_ERR_UNSUPPORTED, "model.attention_bias",
                 "model.qk_norm", NULL);
    assert_false(file_exists(at(f, "both")));
    model_close(m);
    o = options_of("llama");
    o.window = 5;
    m = filled_model(f, &o, 1);
    assert_string_equal(save(m, at(f, "window"), &options).family, "mistral");
    model_close(m);
    o = apart(options_of("phi3"));
    o.qk_norm = true;
    m = filled_model(f, &o, 1);
    assert_string_equal(save(m, at(f, "norms"), &options).family, "qwen3");
    model_options unfused = read_options(f, at(f, "norms"));
    model *loaded = small_model(f, &unfused, MODEL_INFERENCE, 0);
    succeed(hf_model_load(loaded, at(f, "norms")));
    assert_same_model(m, loaded);
    model_close(loaded);
    model_close(m);
}

/* Models with layer normalization and an MLP without a gate are saved as starcoder2 without biases. */
static void test_blocks_of_two_matrices_are_starcoder2(void **state) {
    run_folder *f = *state;
    const hf_save_options options = {.dtype = OTT_F32};
    for (int i = ACTIVATION_GELU; i <= ACTIVATION_RELU; i++) {
        model_options o = options_of("llama");
        o.layer_norm = true;
        o.activation = (kind_activation)i;
        model *m = filled_model(f, &o, 1);
        assert_string_equal(save(m, at(f, "matrices-%d", i), &options).family, "starcoder2");
        model_options again = read_options(f, at(f, "matrices-%d", i));
        assert_int_equal(again.activation, o.activation);
        assert_false(again.qkv_bias || again.o_bias || again.mlp_bias);
        model *loaded = small_model(f, &again, MODEL_INFERENCE, 0);
        succeed(hf_model_load(loaded, at(f, "matrices-%d", i)));
        assert_same_model(m, loaded);
        model_close(loaded);
        model_close(m);
    }
}

/* No family has layer normalization with SwiGLU, or RMSNorm with an MLP without a gate: saving must fail. */
static void test_blocks_that_no_family_has(void **state) {
    run_folder *f = *state;
    const hf_save_options options = {.dtype = OTT_F32};
    hf_save_summary sum;
    for (int i = 0; i < 2; i++) {
        model_options o = options_of("llama");
        o.layer_norm = i == 0;
        o.activation = i == 0 ? ACTIVATION_SILU : ACTIVATION_GELU;
        model *m = filled_model(f, &o, 1);
        assert_error(hf_model_save(m, &options, at(f, "no family"), &sum), OTT_ERR_UNSUPPORTED,
                     i == 0 ? "model.norm_type = layernorm with model.activation = silu"
                            : "model.norm_type = rmsnorm with model.activation = gelu",
                     "no Hugging Face family", NULL);
        assert_false(file_exists(at(f, "no family")));
        model_close(m);
    }
}

/* ---- the original folder ---- */

static const char original_config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",\n"
    " \"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,\n"
    " \"num_key_value_heads\": 1, \"vocab_size\": 64, \"max_position_embeddings\": 32, \"my_own\": [1,  "
    "2.50],\n"
    " \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"eos_token_id\": [2, 60], \"bos_token_id\": 1,\n"
    " \"torch_dtype\": \"float32\"}\n";

static void write_text(const char *path, const char *text) {
    write_bytes(path, text, (int64_t)strlen(text));
}

static void write_original(run_folder *f) {
    succeed(file_make_folder(at(f, "original")));
    write_text(at(f, "original/config.json"), original_config);
    write_bytes(at(f, "original/tokenizer.json"), "{\"a\":\0 1}\r\n", 11);
    write_text(at(f, "original/generation_config.json"), "{ }");
}

static void assert_file_text(run_folder *f, const char *path, const char *text) {
    char *data = read_text(f, path, NULL);
    assert_string_equal(data, text);
    mem_free(f->account, data);
}

static void test_what_the_original_gives(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    write_original(f);
    model *m = filled_model(f, &o, 1);
    const hf_save_options options = {.original = at(f, "original"), .dtype = OTT_F32};
    assert_int_equal(save(m, at(f, "same"), &options).copied, 2);
    assert_file_text(f, at(f, "same/config.json"), original_config); /* the copy equals the original */
    int64_t bytes;
    char *tokenizer = read_text(f, at(f, "same/tokenizer.json"), &bytes);
    assert_int_equal(bytes, 11);
    assert_memory_equal(tokenizer, "{\"a\":\0 1}\r\n", 11);
    mem_free(f->account, tokenizer);
    model_close(m);

    o.vocab = 48; /* one end-of-text token is outside of this vocabulary */
    o.hidden = 32;
    m = filled_model(f, &o, 1);
    save(m, at(f, "other"), &(hf_save_options){.original = at(f, "original"), .dtype = OTT_BF16});
    char *text = read_text(f, at(f, "other/config.json"), NULL);
    assert_non_null(strstr(text, "\"my_own\": [1,  2.50]"));
    assert_non_null(strstr(text, "\"vocab_size\": 48"));
    assert_non_null(strstr(text, "\"intermediate_size\": 32"));
    assert_non_null(strstr(text, "\"eos_token_id\": 2,"));
    assert_non_null(strstr(text, "\"torch_dtype\": \"bfloat16\""));
    mem_free(f->account, text);
    model_close(m);
}

static void test_keys_that_were_given_stay(void **state) {
    run_folder *f = *state;
    char argument[320];
    config *cfg;
    write_original(f);
    snprintf(argument, sizeof argument, "--model.hf_path=%s", at(f, "original"));
    const char *arguments[] = {argument, "--model.norm_eps=1e-3", "--model.preset=8B"};
    succeed(config_parse(f->account, NULL, 3, arguments, &cfg));
    succeed(hf_model_configure(f->account, cfg, NULL));
    assert_true(cfg->model.norm_eps == 1e-3 && cfg->model.dim == 16 && cfg->model.rope_theta == 1e4);
    config_close(cfg);
}

/* ---- refused folders ---- */

static void fails_to_configure(run_folder *f, const char *folder, ott_status expected, const char *part) {
    config *cfg = configuration(f, folder);
    assert_error(hf_model_configure(f->account, cfg, NULL), expected, "model.hf_path", part, NULL);
    config_close(cfg);
}

static void test_configurations_that_are_refused(void **state) {
    run_folder *f = *state;
    fails_to_configure(f, at(f, "absent"), OTT_ERR_CONFIG, "absent");
    succeed(file_make_folder(at(f, "empty")));
    fails_to_configure(f, at(f, "empty"), OTT_ERR_NOT_FOUND, "config.json");
    write_original(f);
    char changed[sizeof original_config + 120];
    snprintf(changed, sizeof changed, "{\"quantization_config\": {\"quant_method\": \"fp8\"}, %s",
             original_config + 1);
    write_text(at(f, "original/config.json"), changed);
    config *cfg = configuration(f, at(f, "original"));
    hf_model_notes notes;
    succeed(hf_model_configure(f->account, cfg, &notes));
    assert_string_equal(notes.quantization, "fp8");
    config_close(cfg);
    static const char *const refused[][2] = {
        {"\"quant_method\": \"gptq\"", "quantized (gptq)"},
        {"\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"",
         "quantized (compressed-tensors, pack-quantized)"},
        {"\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]", "in blocks of 64x128"}};
    for (int i = 0; i < 3; i++) {
        snprintf(changed, sizeof changed, "{\"quantization_config\": {%s}, %s", refused[i][0],
                 original_config + 1);
        write_text(at(f, "original/config.json"), changed);
        fails_to_configure(f, at(f, "original"), OTT_ERR_UNSUPPORTED, refused[i][1]);
    }
}

/* The weight of the router's auxiliary loss comes from config.json, unless the run sets its key. */
static void test_router_loss(void **state) {
    static const char key[] = "model.moe_aux_loss_weight";
    static const char path[] = TEST_SOURCE_DIR "/tests/golden/families/mixtral";
    run_folder *f = *state;
    hf_model_notes notes;
    for (int given = 0; given < 2; given++) {
        config *cfg = configuration(f, path);
        if (given) succeed(config_set(cfg, key, "0.5"));
        succeed(hf_model_configure(f->account, cfg, &notes));
        assert_true(notes.router_aux_loss_coef == 0.001);
        assert_true(cfg->model.moe_aux_loss_weight == (given ? 0.5 : 0.001));
        config_close(cfg);
    }
}

static void test_dropout_and_padding(void **state) {
    static const struct {
        const char *keys, *dropout;
        int64_t row;
    } cases[] = {{"", "", -1},
                 {"\"pad_token_id\": 3, \"attention_dropout\": 0.0,", "", 3},
                 {"\"pad_token_id\": null, \"attention_dropout\": 0.5,", "attention_dropout = 0.5", -1},
                 {"\"pad_token_id\": -1, \"resid_pdrop\": 0.1, \"embd_pdrop\": 1e-3,",
                  "resid_pdrop = 0.1, embd_pdrop = 0.001", 63},
                 {"\"pad_token_id\": 64,", "", -1}}; /* transformers' nn.Embedding would refuse this id */
    run_folder *f = *state;
    char changed[sizeof original_config + 120];
    hf_model_notes notes;
    write_original(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(changed, sizeof changed, "{%s%s", cases[i].keys, original_config + 1);
        write_text(at(f, "original/config.json"), changed);
        config *cfg = configuration(f, at(f, "original"));
        model_options o;
        succeed(hf_model_configure(f->account, cfg, &notes));
        succeed(model_options_resolve(cfg, &o));
        assert_string_equal(notes.dropout, cases[i].dropout);
        assert_int_equal(o.has_padding, cases[i].row >= 0);
        if (o.has_padding) assert_int_equal(o.padding, cases[i].row);
        config_close(cfg);
    }
    snprintf(changed, sizeof changed, "{\"attention_dropout\": \"much\", %s", original_config + 1);
    write_text(at(f, "original/config.json"), changed);
    fails_to_configure(f, at(f, "original"), OTT_ERR_FORMAT, "attention_dropout");
}

/* A list of a model's tensors, for a file with zeros as data. A test changes the list before the file is
   written. */
typedef struct spoiled {
    safetensors_tensor tensors[64];
    int64_t count;
    const char *nan; /* name of a tensor with all bytes 0xff, which are NaNs; NULL: none */
} spoiled;

static spoiled declare_model(const model *m) {
    spoiled s = {.count = m->parameter_count};
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter *p = &m->parameters[i];
        s.tensors[i] = (safetensors_tensor){p->name, OTT_F32, p->rank, {p->columns, p->columns}};
        if (p->rank == 2) s.tensors[i].shape[0] = p->rows;
    }
    return s;
}

static void write_spoiled(run_folder *f, const spoiled *s, const char *folder) {
    static const char zeroes[1 << 16];
    static char ones[1 << 16];
    memset(ones, 0xff, sizeof ones);
    safetensors_writer *w;
    succeed(safetensors_writer_join_shards(f->account, folder, s->tensors, s->count, 0, NULL, 0, 0, 1, &w));
    for (int64_t i; (i = safetensors_writer_next(w)) >= 0;) {
        int64_t bytes = dtype_bytes(s->tensors[i].dtype);
        for (int r = 0; r < s->tensors[i].rank; r++) bytes *= s->tensors[i].shape[r];
        bool is_nan = s->nan && strcmp(s->nan, s->tensors[i].name) == 0;
        succeed(safetensors_writer_append(w, is_nan ? ones : zeroes, bytes));
    }
    succeed(safetensors_writer_commit(w));
}

static void test_weights_that_are_refused_change_nothing(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o, 2), *untouched = filled_model(f, &o, 2);
    spoiled s = declare_model(m);
    const char *last = s.tensors[s.count - 1].name;
    s.count--;
    write_spoiled(f, &s, at(f, "missing"));
    assert_error(hf_model_load(m, at(f, "missing")), OTT_ERR_NOT_FOUND, last, NULL);
    s.count++;
    s.tensors[s.count++] = (safetensors_tensor){"model.layers.0.mlp.router.weight", OTT_F32, 1, {4}};
    write_spoiled(f, &s, at(f, "extra"));
    assert_error(hf_model_load(m, at(f, "extra")), OTT_ERR_UNSUPPORTED, "model.layers.0.mlp.router.weight",
                 "llama", NULL);
    s.count--;
    s.tensors[3].shape[0]++;
    write_spoiled(f, &s, at(f, "shape"));
    assert_error(hf_model_load(m, at(f, "shape")), OTT_ERR_SHAPE, s.tensors[3].name, NULL);
    s.tensors[3].shape[0]--;
    s.tensors[4].dtype = OTT_I32;
    write_spoiled(f, &s, at(f, "integers"));
    assert_error(hf_model_load(m, at(f, "integers")), OTT_ERR_DTYPE, s.tensors[4].name, NULL);
    assert_error(hf_model_load(m, at(f, "absent")), OTT_ERR_NOT_FOUND, "absent", NULL);
    assert_same_model(m, untouched);
    model_close(m);
    model_close(untouched);
}

/* Files may contain a tied head or rotary tables. Both are ignored. */
static void test_tensors_that_may_be_there(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    o.tied = true;
    model *m = filled_model(f, &o, 2);
    spoiled s = declare_model(m);
    s.tensors[s.count++] = (safetensors_tensor){"lm_head.weight", OTT_F32, 2, {64, 16}};
    s.tensors[s.count++] =
        (safetensors_tensor){"model.layers.0.self_attn.rotary_emb.inv_freq", OTT_F32, 1, {4}};
    write_spoiled(f, &s, at(f, "tied"));
    succeed(hf_model_load(m, at(f, "tied")));
    float *of_norm = parameter_values(m, find_parameter(m, "model.norm.weight"));
    assert_true(of_norm[0] == 0);
    free(of_norm);
    model_close(m);
}

/* FP8 weights with wrong scales are refused. */
static void test_scales_that_are_refused(void **state) {
    static const struct {
        const char *name; /* name of the folder */
        struct {
            const char *tail;
            ott_dtype dtype;
            int rank;
            int64_t rows, columns;
        } scales[2];
        bool nan;
        ott_status expected;
        const char *part;
    } cases[] = {{"none", {{NULL, OTT_F32, 0, 0, 0}}, false, OTT_ERR_FORMAT, "has no scale"},
                 {"two",
                  {{"_scale", OTT_F32, 0, 0, 0}, {"_scale_inv", OTT_F32, 0, 0, 0}},
                  false,
                  OTT_ERR_FORMAT,
                  "has two scales"},
                 {"shape", {{"_scale", OTT_F32, 2, 3, 1}}, false, OTT_ERR_SHAPE, "has 3 x 1 scales"},
                 {"rank", {{"_scale", OTT_F32, 3, 1, 1}}, false, OTT_ERR_SHAPE, "scales"},
                 {"codes", {{"_scale", OTT_E4M3, 0, 0, 0}}, false, OTT_ERR_DTYPE, "F32, BF16 or F16"},
                 {"nan", {{"_scale", OTT_F32, 0, 0, 0}}, true, OTT_ERR_FORMAT, "which is not a valid scale"},
                 {"good", {{"_scale", OTT_BF16, 1, 1, 0}}, false, OTT_OK, ""}};
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o, 4);
    char names[2][128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spoiled s = declare_model(m);
        safetensors_tensor *weight = &s.tensors[1];
        while (!strstr(weight->name, "up_proj")) weight++;
        weight->dtype = OTT_E4M3;
        for (int k = 0; k < 2 && cases[i].scales[k].tail; k++) {
            snprintf(names[k], sizeof names[k], "%s%s", weight->name, cases[i].scales[k].tail);
            s.tensors[s.count++] =
                (safetensors_tensor){names[k],
                                     cases[i].scales[k].dtype,
                                     cases[i].scales[k].rank,
                                     {cases[i].scales[k].rows, cases[i].scales[k].columns, 1}};
        }
        if (cases[i].nan) s.nan = names[0];
        write_spoiled(f, &s, at(f, "%s", cases[i].name));
        ott_status status = hf_model_load(m, at(f, "%s", cases[i].name));
        if (cases[i].expected == OTT_OK)
            succeed(status);
        else
            assert_error(status, cases[i].expected, "up_proj.weight", cases[i].part, NULL);
    }
    /* A scale is refused if its weight is not FP8. */
    spoiled s = declare_model(m);
    snprintf(names[0], sizeof names[0], "%s_scale", s.tensors[1].name);
    s.tensors[s.count++] = (safetensors_tensor){names[0], OTT_F32, 0, {0}};
    write_spoiled(f, &s, at(f, "left"));
    assert_error(hf_model_load(m, at(f, "left")), OTT_ERR_UNSUPPORTED, names[0], NULL);
    model_close(m);
}

static void test_half_a_folder_is_no_model(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o, 2);
    hf_save_summary sum;
    const hf_save_options options = {.dtype = OTT_F32};
    save(m, at(f, "whole"), &options);
    assert_error(hf_model_save(m, &options, at(f, "whole"), &sum), OTT_ERR_ARGUMENT, "whole", NULL);
    succeed(file_make_folder(at(f, "index")));
    write_text(at(f, "index/model.safetensors.index.json"),
               "{\"metadata\": {}, \"weight_map\": {\"model.norm.weight\": \"model-1.safetensors\"}}");
    assert_error(hf_model_load(m, at(f, "index")), OTT_ERR_NOT_FOUND, "model-1.safetensors", NULL);
    int64_t bytes;
    char *data = read_text(f, at(f, "whole/model.safetensors"), &bytes);
    succeed(file_make_folder(at(f, "truncated")));
    write_bytes(at(f, "truncated/model.safetensors"), data, bytes - 100);
    mem_free(f->account, data);
    assert_error(hf_model_load(m, at(f, "truncated")), OTT_ERR_FORMAT, "model.safetensors", "truncated",
                 NULL);
    model_close(m);
}

/* ---- FP8 ---- */

typedef struct fp8_case {
    const char *family, *name;
    hf_method method;
    hf_scales granularity;
    const char *scale; /* name of the scale: this suffix follows the weight's name */
    int rank;
} fp8_case;

/* Upper bound of |scale * code - w| for the nearest E4M3 code: half the distance of two codes. 1e-6 and 1e-7
   allow for rounding errors of the division. */
static double half_unit(double w, double scale) {
    int exponent;
    frexp(w / scale, &exponent); /* w / scale is in [0.5, 1) 2^exponent */
    if (exponent < -5) exponent = -5;
    return ldexp(scale, exponent - 5) * (1 + 1e-6) + fabs(w) * 1e-7;
}

static void expect_shape(const fp8_case *c, const shard_tensor *t, int64_t rows, int64_t columns) {
    assert_string_equal(t->entry->format, "F32");
    assert_int_equal(t->entry->rank, c->rank);
    bool channels = c->granularity == HF_SCALE_CHANNEL, blocks = c->granularity == HF_SCALE_BLOCK;
    int64_t shape[2] = {channels ? rows : 1, 1};
    if (blocks) shape[0] = (rows + 127) / 128, shape[1] = (columns + 127) / 128;
    for (int i = 0; i < c->rank; i++) assert_int_equal(t->entry->shape[i], shape[i]);
}

/* Checks parameter p in a folder. Its rows begin at row `row` of the tensor `name`. Codes times scales must
   be close to the saved values w, and equal to the loaded values `read` (NULL: not loaded). */
static void compare_rows(shards *s, const fp8_case *c, const char *name, const parameter *p, const float *w,
                         const float *read, int64_t row) {
    char scale_name[128];
    snprintf(scale_name, sizeof scale_name, "%s%s", name, c->scale);
    const shard_tensor *codes = shards_find(s, name), *scales = shards_find(s, scale_name);
    assert_non_null(codes);
    if (!scales) fail_msg("no %s", scale_name);
    assert_string_equal(codes->entry->format, "F8_E4M3");
    expect_shape(c, scales, codes->entry->shape[0], p->columns);
    float *code = read_tensor(s, name), *scale = read_tensor(s, scale_name);
    int64_t wide = (p->columns + 127) / 128;
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            int64_t r = row + i;
            int64_t at_scale = c->granularity == HF_SCALE_BLOCK     ? r / 128 * wide + j / 128
                               : c->granularity == HF_SCALE_CHANNEL ? r
                                                                    : 0;
            double by = (double)scale[at_scale];
            double master = (double)w[i * p->columns + j];
            assert_true(fabs(master - (double)code[r * p->columns + j] * by) <= half_unit(master, by));
            assert_true(read[i * p->columns + j] == code[r * p->columns + j] * scale[at_scale]);
        }
    free(code);
    free(scale);
}

/* Checks a parameter that the folder stores in bf16. It must have the saved values w, rounded, and equal the
   loaded values `read` (NULL: not loaded). */
static void compare_plain(shards *s, const parameter *p, const float *w, const float *read) {
    const shard_tensor *t = shards_find(s, p->name);
    assert_non_null(t);
    assert_string_equal(t->entry->format, "BF16");
    float *values = read_tensor(s, p->name);
    for (int64_t i = 0; i < parameter_count(p); i++)
        assert_true(values[i] == cast_from_bf16(cast_to_bf16(w[i])) && (!read || values[i] == read[i]));
    free(values);
}

/* Finds projection `part` in a phi3 folder. out = name of its fused tensor. Returns its first row there. */
static int64_t find_fused(const model *m, const char *part, char out[128]) {
    const model_options *o = &m->options;
    int64_t q = o->heads * o->head_dim, kv = o->kv_heads * o->head_dim;
    const struct {
        const char *part, *full;
        int64_t row;
    } table[] = {{"q_proj", "qkv_proj", 0},
                 {"k_proj", "qkv_proj", q},
                 {"v_proj", "qkv_proj", q + kv},
                 {"gate_proj", "gate_up_proj", 0},
                 {"up_proj", "gate_up_proj", o->hidden}};
    snprintf(out, 128, "%s", part);
    for (size_t i = 0; i < sizeof table / sizeof *table && o->family->fused_qkv; i++) {
        const char *found = strstr(part, table[i].part);
        if (!found) continue;
        snprintf(out, 128, "%.*s%s.weight", (int)(found - part), part, table[i].full);
        return table[i].row;
    }
    return 0;
}

/* Sizes that FP8 allows (multiples of 16) but 128x128 blocks do not divide: the last blocks are smaller. */
static model_options wide_options(const char *name) {
    model_options o = apart(options_of(name));
    o.dim = 144;
    o.hidden = 208;
    o.heads = 4;
    o.kv_heads = 2;
    o.head_dim = 40;
    return o;
}

static void check_fp8(run_folder *f, const fp8_case *c) {
    model_options o = wide_options(c->family);
    model *m = filled_model(f, &o, 17), *loaded = small_model(f, &o, MODEL_INFERENCE, 0);
    char name[128];
    shards *s;
    const hf_save_options options = {
        .dtype = OTT_BF16, .fp8 = true, .method = c->method, .granularity = c->granularity};
    hf_save_summary sum = save(m, at(f, "%s", c->name), &options);
    assert_int_equal(sum.matrices, o.family->fused_qkv ? 8 : 14);
    succeed(hf_model_load(loaded, at(f, "%s", c->name)));
    succeed(shards_open(f->account, at(f, "%s", c->name), &s));
    assert_int_equal(shards_count(s), sum.tensors);
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter *p = &m->parameters[i];
        float *w = parameter_values(m, p), *read = parameter_values(loaded, &loaded->parameters[i]);
        if (p->rank == 2 && strncmp(p->name, "model.layers.", 13) == 0) {
            int64_t row = find_fused(m, p->name, name);
            compare_rows(s, c, name, p, w, read, row);
        } else {
            compare_plain(s, p, w, read);
        }
        free(w);
        free(read);
    }
    shards_close(s);
    model_close(m);
    model_close(loaded);
}

static void test_fp8_weights_are_the_masters_rounded_once(void **state) {
    static const fp8_case cases[] = {
        {"llama", "t", HF_METHOD_FP8, HF_SCALE_TENSOR, "_scale", 0},
        {"qwen2", "b", HF_METHOD_FP8, HF_SCALE_BLOCK, "_scale_inv", 2},
        {"mistral", "ct", HF_METHOD_COMPRESSED, HF_SCALE_TENSOR, "_scale", 1},
        {"qwen3", "cc", HF_METHOD_COMPRESSED, HF_SCALE_CHANNEL, "_scale", 2},
        {"llama", "cb", HF_METHOD_COMPRESSED, HF_SCALE_BLOCK, "_scale", 2},
        {"phi3", "pt", HF_METHOD_FP8, HF_SCALE_TENSOR, "_scale", 0},
        {"phi3", "pb", HF_METHOD_FP8, HF_SCALE_BLOCK, "_scale_inv", 2},
        {"phi3", "pc", HF_METHOD_COMPRESSED, HF_SCALE_CHANNEL, "_scale", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_fp8(*state, &cases[i]);
}

static float scale_of(shards *s, const char *module) {
    char name[128];
    snprintf(name, sizeof name, "%s.weight_scale", module);
    float *read = read_tensor(s, name), scale = read[0];
    free(read);
    return scale;
}

static float amax_of(model *m, const char *module) {
    char name[128];
    snprintf(name, sizeof name, "%s.weight", module);
    const parameter *p = find_parameter(m, name);
    float *w = parameter_values(m, p);
    float amax = reference_amax(w, OTT_F32, p->rows, p->columns, p->columns);
    free(w);
    return amax;
}

static void poke(const model *m, const parameter *p, int64_t index, float value) {
    succeed(device_copy_in(m->device, (float *)p->value.data + index, &value, sizeof value));
}

/* Serving programs fuse q, k and v, and gate and up. So these matrices must have one scale in the folder,
   computed from the largest of their amaxes. Other matrices have their own scales. */
static void test_scales_are_shared(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o, 23);
    shards *s;
    poke(m, find_parameter(m, "model.layers.1.self_attn.q_proj.weight"), 0, 7);
    poke(m, find_parameter(m, "model.layers.1.mlp.up_proj.weight"), 0, -9);
    save(m, at(f, "fp8"), &(hf_save_options){.dtype = OTT_BF16, .fp8 = true});
    succeed(shards_open(f->account, at(f, "fp8"), &s));
#define LAYER "model.layers.1."
    assert_true(scale_of(s, LAYER "self_attn.q_proj") == 7.0f / 448);
    assert_true(scale_of(s, LAYER "self_attn.k_proj") == 7.0f / 448);
    assert_true(scale_of(s, LAYER "self_attn.v_proj") == 7.0f / 448);
    assert_true(scale_of(s, LAYER "mlp.gate_proj") == 9.0f / 448);
    assert_true(scale_of(s, LAYER "mlp.up_proj") == 9.0f / 448);
    assert_true(scale_of(s, LAYER "self_attn.o_proj") == amax_of(m, LAYER "self_attn.o_proj") / 448);
    assert_true(scale_of(s, LAYER "mlp.down_proj") == amax_of(m, LAYER "mlp.down_proj") / 448);
    assert_true(scale_of(s, "model.layers.0.self_attn.q_proj") < 6.0f / 448);
    shards_close(s);
    model_close(m);
}

static void test_zeroes_and_what_is_not_finite(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o, 23);
    hf_save_summary sum;
    shards *s;
    const hf_save_options options = {.dtype = OTT_BF16, .fp8 = true};
    parameter *down = find_parameter(m, "model.layers.0.mlp.down_proj.weight");
    succeed(device_zero(m->device, down->value.data, tensor_bytes(down->value)));
    save(m, at(f, "zero"), &options);
    succeed(shards_open(f->account, at(f, "zero"), &s));
    assert_true(scale_of(s, "model.layers.0.mlp.down_proj") > 0);
    float *codes = read_tensor(s, down->name);
    for (int64_t i = 0; i < parameter_count(down); i++) assert_true(codes[i] == 0);
    free(codes);
    shards_close(s);
    poke(m, down, 5, NAN);
    assert_error(hf_model_save(m, &options, at(f, "nan"), &sum), OTT_ERR_UNSUPPORTED, down->name, "NaN",
                 NULL);
    poke(m, down, 5, -INFINITY);
    assert_error(hf_model_save(m, &options, at(f, "inf"), &sum), OTT_ERR_UNSUPPORTED, down->name, NULL);
    assert_false(file_exists(at(f, "inf")));
    model_close(m);
}

/* ---- quantization_config ---- */

static void check_quantization(run_folder *f, model *m, hf_method method, hf_scales g, const char *expected) {
    static int number;
    char folder[32];
    json_error_t error;
    snprintf(folder, sizeof folder, "q%d", number++);
    save(m, at(f, "%s", folder),
         &(hf_save_options){.dtype = OTT_BF16, .fp8 = true, .method = method, .granularity = g});
    json_t *file = json_load_file(at(f, "%s/config.json", folder), 0, &error);
    json_t *wanted = json_loads(expected, 0, &error);
    assert_non_null(wanted);
    if (!json_equal(json_object_get(file, "quantization_config"), wanted)) {
        char *text = json_dumps(json_object_get(file, "quantization_config"), JSON_COMPACT | JSON_ENCODE_ANY);
        fail_msg("%s instead of %s", text, expected);
    }
    assert_string_equal(json_string_value(json_object_get(file, "torch_dtype")), "bfloat16");
    json_decref(file);
    json_decref(wanted);
}

#define COMPRESSED(strategy, structure, activation, group)                                                   \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\","                               \
    "\"quantization_status\":\"compressed\",\"kv_cache_scheme\":null,\"ignore\":[\"lm_head\"],"              \
    "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,"                  \
    "\"type\":\"float\",\"symmetric\":true,\"dynamic\":false,\"strategy\":\"" strategy                       \
    "\",\"block_structure\":" structure "},\"input_activations\":{\"num_bits\":8,\"type\":\"float\","        \
    "\"symmetric\":true,\"dynamic\":true,\"strategy\":\"" activation "\",\"group_size\":" group "}}}}"

static void test_what_config_json_says(void **state) {
    run_folder *f = *state;
    model_options o = options_of("llama");
    model *m = filled_model(f, &o, 1);
    check_quantization(f, m, HF_METHOD_FP8, HF_SCALE_TENSOR,
                       "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\","
                       "\"ignored_layers\":[\"lm_head\"],\"modules_to_not_convert\":[\"lm_head\"]}");
    check_quantization(f, m, HF_METHOD_FP8, HF_SCALE_BLOCK,
                       "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\","
                       "\"weight_block_size\":[128,128],"
                       "\"ignored_layers\":[\"lm_head\"],\"modules_to_not_convert\":[\"lm_head\"]}");
    check_quantization(f, m, HF_METHOD_COMPRESSED, HF_SCALE_TENSOR,
                       COMPRESSED("tensor", "null", "token", "null"));
    check_quantization(f, m, HF_METHOD_COMPRESSED, HF_SCALE_CHANNEL,
                       COMPRESSED("channel", "null", "token", "null"));
    check_quantization(f, m, HF_METHOD_COMPRESSED, HF_SCALE_BLOCK,
                       COMPRESSED("block", "[128,128]", "group", "128"));
    model_close(m);
}

/* ---- codes as in training ---- */

static void convert(model *m, const char *recipe_name, const char *filter) {
    succeed(model_convert(m,
                          &(convert_options){.recipe = recipe_find(recipe_name),
                                             .filter = &filter,
                                             .filter_count = filter ? 1 : 0},
                          NULL));
}

/* Compares the codes and scales in the folder with a training cast of w[rows, columns]. */
static void check_trained_matrix(shards *s, const recipe *r, const char *tensor_name, const float *w,
                                 int64_t rows, int64_t columns, const char *scale_name) {
    enum { MOST = 2 * 208 * 144 };
    static float amax[MOST], scale[MOST], scale_inv[MOST];
    static uint8_t codes[MOST], read[MOST];
    char name[128];
    const cast_spec *spec = &r->weight.rowwise;
    reference_quantize(w, OTT_F32, rows, columns, columns, spec, false, amax, scale, scale_inv, codes);
    const shard_tensor *t = shards_find(s, tensor_name);
    assert_non_null(t);
    succeed(shards_read(s, t, 0, rows * columns, read));
    assert_memory_equal(codes, read, (size_t)(rows * columns));
    snprintf(name, sizeof name, "%s%s", tensor_name, scale_name);
    float *scales = read_tensor(s, name);
    /* the folder stores the scales in row-major order, scale_inv is column-major */
    int64_t groups = granularity_groups(spec->grain, rows, columns);
    int64_t high = granularity_mn_groups(spec->grain, rows), wide = groups / high;
    for (int64_t i = 0; i < groups; i++) assert_true(scales[i] == scale_inv[i % wide * high + i / wide]);
    free(scales);
}

static void check_trained(shards *s, const recipe *r, const model *m, const parameter *p,
                          const char *scale_name) {
    float *w = parameter_values(m, p);
    check_trained_matrix(s, r, p->name, w, p->rows, p->columns, scale_name);
    free(w);
}

static void test_exactly_as_trained(void **state) {
    run_folder *f = *state;
    static const struct {
        const char *recipe, *scale;
        hf_method method;
    } rows[] = {{"tensorwise", "_scale", HF_METHOD_FP8},
                {"current", "_scale", HF_METHOD_FP8},
                {"rowwise", "_scale", HF_METHOD_COMPRESSED},
                {"block", "_scale_inv", HF_METHOD_FP8}};
    model_options o = wide_options("llama");
    model *m = filled_model(f, &o, 31);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shards *s;
        convert(m, rows[i].recipe, NULL);
        save(m, at(f, "%s", rows[i].recipe),
             &(hf_save_options){.dtype = OTT_BF16,
                                .fp8 = true,
                                .method = rows[i].method,
                                .granularity = HF_SCALE_AS_TRAINED});
        succeed(shards_open(f->account, at(f, "%s", rows[i].recipe), &s));
        for (int p = 0; p < m->parameter_count; p++)
            if (m->parameters[p].rank == 2 && strncmp(m->parameters[p].name, "model.layers.", 13) == 0)
                check_trained(s, recipe_find(rows[i].recipe), m, &m->parameters[p], rows[i].scale);
        shards_close(s);
    }
    model_close(m);
}

static void check_trained_experts(shards *s, const recipe *r, model *m, const char *scale_name) {
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    char name[128];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "model.layers.1.mlp.experts.%s.weight", parts[i]);
        const parameter *p = find_parameter(m, name);
        float *w = parameter_values(m, p);
        int64_t rows = p->rows / p->experts;
        for (int64_t e = 0; e < p->experts; e++) {
            snprintf(name, sizeof name, "model.layers.1.mlp.experts.%d.%s.weight", (int)e, parts[i]);
            check_trained_matrix(s, r, name, w + e * rows * p->columns, rows, p->columns, scale_name);
        }
        free(w);
    }
}

/* If experts ran in FP8, they are saved with the codes of training, and only routers stay unquantized. */
static void test_experts_as_trained(void **state) {
    run_folder *f = *state;
    static const struct {
        const char *recipe, *scale;
        hf_method method;
    } rows[] = {{"rowwise", "_scale", HF_METHOD_COMPRESSED}, {"block", "_scale_inv", HF_METHOD_FP8}};
    enum { EXPERTS = 3 };
    model_options o = wide_options("qwen3_moe");
    o.moe_every = 1;
    o.moe = (moe_options){
        .experts = EXPERTS, .choices = 1, .hidden = 160, .rule.normalized = true, .rule.scale = 1};
    model *m = filled_model(f, &o, 31);
    for (int experts = 0; experts < 2; experts++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            shards *s;
            convert_options how = {.recipe = recipe_find(rows[i].recipe), .experts = experts};
            succeed(model_convert(m, &how, NULL));
            const char *folder = at(f, "%s%d", rows[i].recipe, experts);
            hf_save_summary sum = save(m, folder,
                                       &(hf_save_options){.dtype = OTT_BF16,
                                                          .fp8 = true,
                                                          .method = rows[i].method,
                                                          .granularity = HF_SCALE_AS_TRAINED});
            assert_int_equal(sum.matrices, 2 * (4 + (experts ? 3 * EXPERTS : 0)));
            assert_int_equal(sum.kept, 2 * (1 + (experts ? 0 : 3 * EXPERTS)));
            succeed(shards_open(f->account, at(f, "%s%d", rows[i].recipe, experts), &s));
            if (experts) check_trained_experts(s, how.recipe, m, rows[i].scale);
            shards_close(s);
        }
    model_close(m);
}

/* Projections that training fused have one scale. In a folder with separate ones, each has this scale. */
static void test_as_trained_together(void **state) {
    run_folder *f = *state;
    static const char *const parts[] = {"q_proj", "k_proj", "v_proj"};
    const recipe *r = recipe_find("tensorwise");
    const hf_save_options options = {.dtype = OTT_BF16, .fp8 = true, .granularity = HF_SCALE_AS_TRAINED};
    model_options o = wide_options("phi3");
    o.fused_qkv = o.fused_gate_up = true;
    model *m = filled_model(f, &o, 31);
    shards *s;
    convert(m, r->name, NULL);
    save(m, at(f, "phi3"), &options);
    succeed(shards_open(f->account, at(f, "phi3"), &s));
    for (int i = 0; i < m->parameter_count; i++)
        if (m->parameters[i].rank == 2 && strncmp(m->parameters[i].name, "model.layers.", 13) == 0)
            check_trained(s, r, m, &m->parameters[i], "_scale");
    shards_close(s);
    float scale = scale_inverse(
        scale_from_amax(amax_of(m, "model.layers.1.self_attn.qkv_proj"), OTT_E4M3, &r->weight.rowwise.scale));
    m->options.family = family_find("llama");
    save(m, at(f, "llama"), &options);
    succeed(shards_open(f->account, at(f, "llama"), &s));
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.1.self_attn.%s", parts[i]);
        assert_true(scale_of(s, name) == scale);
    }
    shards_close(s);
    model_close(m);
}

/* A layer that a filter kept out of FP8 is saved in bf16. Two lists in config.json must name the layer. */
static void test_as_trained_keeps_what_the_run_kept(void **state) {
    run_folder *f = *state;
    model_options o = wide_options("llama");
    model *m = filled_model(f, &o, 31);
    shards *s;
    convert(m, "tensorwise", "down_proj");
    hf_save_summary sum =
        save(m, at(f, "kept"),
             &(hf_save_options){.dtype = OTT_BF16, .fp8 = true, .granularity = HF_SCALE_AS_TRAINED});
    assert_int_equal(sum.matrices, 12);
    assert_int_equal(sum.kept, 2);
    assert_int_equal(sum.granularity, HF_SCALE_TENSOR);
    succeed(shards_open(f->account, at(f, "kept"), &s));
    const parameter *kept = find_parameter(m, "model.layers.0.mlp.down_proj.weight");
    float *values = parameter_values(m, kept);
    compare_plain(s, kept, values, NULL);
    free(values);
    shards_close(s);
    char *text = read_text(f, at(f, "kept/config.json"), NULL);
    const char *first = strstr(text, "\"model.layers.1.mlp.down_proj\"");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "\"model.layers.1.mlp.down_proj\""));
    mem_free(f->account, text);
    model_close(m);
}

static void refuses_as_trained(run_folder *f, const char *name, const char *recipe_name, const char *part) {
    model_options o = wide_options(name);
    model *m = filled_model(f, &o, 1);
    hf_save_summary sum;
    convert(m, recipe_name, NULL);
    assert_error(
        hf_model_save(m,
                      &(hf_save_options){.dtype = OTT_BF16, .fp8 = true, .granularity = HF_SCALE_AS_TRAINED},
                      at(f, "none"), &sum),
        OTT_ERR_UNSUPPORTED, part, NULL);
    assert_false(file_exists(at(f, "none")));
    model_close(m);
}

static void test_as_trained_is_refused(void **state) {
    refuses_as_trained(*state, "llama", "bf16", "no matrix of this run ran in FP8");
    refuses_as_trained(*state, "llama", "delayed", "its scale is delayed");
    refuses_as_trained(*state, "llama", "mxfp8", "serving programs do not read the scale blocks");
    refuses_as_trained(*state, "llama", "rowwise", "compressed-tensors");
    refuses_as_trained(*state, "phi3", "tensorwise", "fuse projections differently");
    refuses_as_trained(*state, "phi3", "block", "k_proj.weight");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip_of_families),
        TEST(test_round_trip_of_features),
        TEST(test_masters_are_dithered),
        TEST(test_fp32_folders_are_not_dithered),
        cmocka_unit_test(test_dither_rounds_away),
        TEST(test_formats_round_once),
        TEST(test_fused_tensors_hold_the_parts_in_order),
        TEST(test_projections_together_or_apart),
        TEST(test_a_model_is_saved_as_the_family_that_can_say_it),
        TEST(test_blocks_of_two_matrices_are_starcoder2),
        TEST(test_blocks_that_no_family_has),
        TEST(test_what_the_original_gives),
        TEST(test_keys_that_were_given_stay),
        TEST(test_configurations_that_are_refused),
        TEST(test_dropout_and_padding),
        TEST(test_router_loss),
        TEST(test_scales_that_are_refused),
        TEST(test_weights_that_are_refused_change_nothing),
        TEST(test_tensors_that_may_be_there),
        TEST(test_half_a_folder_is_no_model),
        TEST(test_fp8_weights_are_the_masters_rounded_once),
        TEST(test_scales_are_shared),
        TEST(test_zeroes_and_what_is_not_finite),
        TEST(test_what_config_json_says),
        TEST(test_exactly_as_trained),
        TEST(test_experts_as_trained),
        TEST(test_as_trained_together),
        TEST(test_as_trained_keeps_what_the_run_kept),
        TEST(test_as_trained_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
