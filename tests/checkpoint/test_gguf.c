/*
 * GGUF files of the families in tests/golden/families. Every weight that transformers saved must be in the
 * file with llama.cpp's name and row order, and the metadata must match config.json. tools/check_gguf.sh runs
 * llama.cpp on such files.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "folders/gguf_save.h"
#include "folders/hf/model.h"
#include "checkpoint/run_folder.h"
#include "formats/safetensors/shards.h"
#include "model/tiny_model.h"
#include "support/gguf_reader.h"

/* ---- a family ---- */

typedef struct held {
    tiny t;
    char folder[256];
    shards *weights; /* the tensors of the folder that transformers saved */
} held;

static void open_family(held *f, mem *account, const char *name) {
    snprintf(f->folder, sizeof f->folder, "%s/tests/golden/families/%s", TEST_SOURCE_DIR, name);
    model_options o = folder_model_options(account, f->folder);
    tiny_open(&f->t, &o, 1, NULL);
    HARNESS_OK(hf_model_load(f->t.m, f->folder));
    HARNESS_OK(shards_open(account, f->folder, &f->weights));
}

static void close_family(held *f) {
    shards_close(f->weights);
    tiny_close(&f->t);
}

static ott_status save(run_folder *r, held *f, gguf_type type) {
    const gguf_save_options o = {.type = type, .fallback_type = GGUF_F16};
    gguf_metadata m = {.bytes = {.account = r->account}};
    gguf_save_summary sum;
    ott_status status = gguf_model_save(f->t.m, &o, &m, at(r, "x.gguf"), &sum);
    gguf_metadata_free(&m);
    return status;
}

/* ---- where llama.cpp's tensors are in the folder ---- */

/* Name of a GGUF tensor; the names that a Hugging Face folder may use for the same weight in a block. */
typedef struct source {
    const char *gguf, *name[3];
} source;

static const source sources[] = {
    {"attn_norm", {"input_layernorm", "ln_1"}},
    {"attn_qkv", {"attn.c_attn", "self_attn.qkv_proj"}},
    {"attn_q", {"self_attn.q_proj"}},
    {"attn_k", {"self_attn.k_proj"}},
    {"attn_v", {"self_attn.v_proj"}},
    {"attn_output", {"self_attn.o_proj", "attn.c_proj"}},
    {"attn_q_norm", {"self_attn.q_norm"}},
    {"attn_k_norm", {"self_attn.k_norm"}},
    {"post_attention_norm", {"post_self_attn_layernorm", "post_attention_layernorm"}},
    {"ffn_norm", {"pre_feedforward_layernorm", "post_attention_layernorm", "ln_2"}},
    {"ffn_gate", {"mlp.gate_proj"}},
    {"ffn_up", {"mlp.up_proj", "mlp.gate_up_proj", "mlp.c_fc"}},
    {"ffn_down", {"mlp.down_proj", "mlp.c_proj"}},
    {"post_ffw_norm", {"post_mlp_layernorm", "post_feedforward_layernorm"}},
    {"ffn_gate_inp", {"block_sparse_moe.gate"}},
    {"ffn_gate_exps", {"block_sparse_moe.experts.*.w1"}},
    {"ffn_up_exps", {"block_sparse_moe.experts.*.w3"}},
    {"ffn_down_exps", {"block_sparse_moe.experts.*.w2"}},
};

static const source outside[] = {
    {"token_embd.weight", {"model.embed_tokens.weight", "transformer.wte.weight"}},
    {"position_embd.weight", {"transformer.wpe.weight"}},
    {"output_norm.weight", {"model.norm.weight", "transformer.ln_f.weight"}},
    {"output_norm.bias", {"transformer.ln_f.bias"}},
    {"output.weight", {"lm_head.weight"}},
};

static bool is_gpt2(const held *f) {
    return f->t.m->options.family->transposed;
}

/* Returns the folder's tensor that a GGUF tensor was made from. expert: chooses one of several tensors. */
static const shard_tensor *find_source(const held *f, const gguf_entry *e, int64_t expert) {
    char part[64], name[160], own[64];
    int layer;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        for (int k = 0; k < 2 && strcmp(outside[i].gguf, e->name) == 0; k++)
            if (outside[i].name[k] && shards_find(f->weights, outside[i].name[k]))
                return shards_find(f->weights, outside[i].name[k]);
    assert_int_equal(sscanf(e->name, "blk.%d.%63[^.].%63s", &layer, part, own), 3);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        for (int k = 0; k < 3 && strcmp(sources[i].gguf, part) == 0; k++) {
            if (!sources[i].name[k]) continue;
            const char *star = strchr(sources[i].name[k], '*');
            int before = star ? (int)(star - sources[i].name[k]) : (int)strlen(sources[i].name[k]);
            snprintf(name, sizeof name, "%s.%d.%.*s", is_gpt2(f) ? "transformer.h" : "model.layers", layer,
                     before, sources[i].name[k]);
            if (star)
                snprintf(name + strlen(name), sizeof name - strlen(name), "%d%s", (int)expert, star + 1);
            snprintf(name + strlen(name), sizeof name - strlen(name), ".%s", own);
            if (shards_find(f->weights, name)) return shards_find(f->weights, name);
        }
    fail_msg("no tensor of the folder matches %s", e->name);
    return NULL;
}

/* Returns the row of transformers' q or k that is row `row` in llama.cpp. llama.cpp's "llama" and "granite"
   rotate elements 2 p and 2 p + 1 of a head, transformers rotates p and p + half. */
static int64_t turned_row(const model_options *o, int64_t row) {
    int64_t pair = row % o->head_dim / 2, head = row / o->head_dim;
    return head * o->head_dim + pair + (row % 2 ? o->head_dim / 2 : 0);
}

static bool is_turned(const gguf_reader *r, const gguf_entry *e) {
    bool turns = gguf_reader_says(r, "general.architecture", "llama") ||
                 gguf_reader_says(r, "general.architecture", "granite");
    return turns && (strstr(e->name, "attn_q.") || strstr(e->name, "attn_k."));
}

/* Compares a GGUF tensor with the tensor that it was made from. Returns the number of elements. */
static int64_t compare_tensor(held *f, const gguf_reader *r, const gguf_entry *e) {
    static float values[1 << 14];
    const model_options *o = &f->t.m->options;
    int64_t columns = e->rank > 1 ? e->size[0] : 1, experts = e->rank == 3 ? e->size[2] : 1;
    int64_t rows = e->count / columns / experts;
    bool is_gemma = gguf_reader_says(r, "general.architecture", "gemma2") ||
                    gguf_reader_says(r, "general.architecture", "gemma3");
    /* Gemma's norms multiply by 1 + weight */
    float more = is_gemma && strstr(e->name, "norm.weight") ? 1 : 0;
    bool turns_over = is_gpt2(f) && e->rank == 2 && strncmp(e->name, "blk.", 4) == 0;
    for (int64_t i = 0; i < experts; i++) {
        const shard_tensor *from = find_source(f, e, i);
        HARNESS_OK(shards_read_floats(f->weights, from, 0, rows * columns, values));
        for (int64_t k = 0; k < rows * columns; k++) {
            int64_t row = is_turned(r, e) ? turned_row(o, k / columns) : k / columns;
            int64_t at = turns_over ? k % columns * rows + row : row * columns + k % columns;
            if (gguf_reader_element(e, i * rows * columns + k) != values[at] + more)
                fail_msg("%s: %s differs at %lld", f->folder, e->name, (long long)k);
        }
    }
    return e->count;
}

static int64_t source_elements(const held *f) {
    int64_t sum = 0;
    for (int64_t i = 0; i < shards_count(f->weights); i++)
        sum += safetensors_elements(shards_at(f->weights, i)->entry);
    return sum;
}

/* ---- the files ---- */

static const struct {
    const char *name, *arch, *refusal;
} families[] = {{"linear", "llama", NULL},
                {"yarn", "llama", NULL},
                {"longrope", "phi3", NULL},
                {"granite", "granite", NULL},
                {"glm4", "glm4", NULL},
                {"mixtral", "llama", NULL},
                {"gpt2", "gpt2", NULL},
                {"gemma2", NULL, "no model.attention_multiplier of this value"},
                {"gemma3", "gemma3", NULL},
                {"cohere", NULL, "only n_heads * head_dim = dim"},
                {"cohere2", NULL, "only tied embeddings"},
                {"glm", NULL, "llama.cpp's architecture chatglm, for models of glm, supports only n_heads"},
                {"qwen3_moe", NULL, "only experts in every block"},
                {"dots1", NULL, "only models without GQA"},
                {"llama_biases", NULL, "only SwiGLU"},
                {"dynamic", NULL, "no model.rope_scaling = \"dynamic\""},
                {"qwen2_windows", "qwen2", NULL},
                {"cohere_norms", NULL, "only n_heads * head_dim = dim"},
                {"gpt2_layers", NULL, "no model.scale_attention_by_layer"},
                {"deepseek_v3_wide", NULL, "models of the family deepseek_v3 cannot be exported as GGUF"}};
enum { COUNT = sizeof families / sizeof *families };

static void expect_weights(run_folder *r, held *f, const char *arch) {
    HARNESS_OK(save(r, f, GGUF_F32));
    gguf_reader g = gguf_reader_open(at(r, "x.gguf"));
    assert_true(gguf_reader_says(&g, "general.architecture", arch));
    int64_t elements = 0;
    for (int64_t k = 0; k < g.entry_count; k++)
        if (strncmp(g.entry[k].name, "rope_", 5) != 0) elements += compare_tensor(f, &g, &g.entry[k]);
    assert_int_equal(elements, source_elements(f));
    gguf_reader_close(&g);
}

static void has_every_weight(void **state) {
    run_folder *r = *state;
    for (int i = 0; i < COUNT; i++) {
        held f;
        if (families[i].refusal) continue;
        open_family(&f, r->account, families[i].name);
        expect_weights(r, &f, families[i].arch);
        close_family(&f);
    }
}

/* The file has the biases of projections and of the feed-forward. Biases of q and k are reordered like the
   rows of their matrices. */
static void has_every_bias(void **state) {
    run_folder *r = *state;
    held f;
    open_family(&f, r->account, "llama_biases");
    f.t.m->options.activation = ACTIVATION_SILU; /* llama.cpp supports only this activation here */
    expect_weights(r, &f, "llama");
    close_family(&f);
}

/* Command R+ has 64 layers, and head norms with weights for each head. llama.cpp reads these norms only with
   64 or more layers, so fewer layers are refused. */
static void has_norms_of_heads(void **state) {
    run_folder *r = *state;
    held f;
    snprintf(f.folder, sizeof f.folder, "%s/tests/golden/families/cohere_norms", TEST_SOURCE_DIR);
    model_options o = folder_model_options(r->account, f.folder);
    o.dim = o.heads * o.head_dim;
    o.tied = true;
    for (o.layers = 64; o.layers >= 63; o.layers--) {
        tiny_open(&f.t, &o, 1, NULL);
        tiny_randomize(&f.t);
        ott_status status = save(r, &f, GGUF_Q8_0);
        if (o.layers == 63)
            assert_error(status, OTT_ERR_UNSUPPORTED,
                         "QK norms in models with 64 or more layers, and only there", NULL);
        if (o.layers == 64) {
            HARNESS_OK(status);
            gguf_reader g = gguf_reader_open(at(r, "x.gguf"));
            const gguf_entry *e = gguf_reader_tensor(&g, "blk.63.attn_q_norm.weight");
            assert_true(e->rank == 2 && e->size[0] == o.head_dim && e->size[1] == o.heads);
            assert_int_equal(e->type, GGUF_F32);
            gguf_reader_close(&g);
        }
        tiny_close(&f.t);
    }
}

static void refuses_what_llama_cpp_has_not(void **state) {
    run_folder *r = *state;
    for (int i = 0; i < COUNT; i++) {
        held f;
        if (!families[i].refusal) continue;
        open_family(&f, r->account, families[i].name);
        assert_int_equal(save(r, &f, GGUF_F32), OTT_ERR_UNSUPPORTED);
        if (!strstr(status_text(), families[i].refusal)) fail_msg("%s", status_text());
        close_family(&f);
    }
}

/* Blocks without experts between blocks with experts are refused: llama.cpp would treat them as mixtures. */
static void refuses_single_blocks_without_experts(void **state) {
    run_folder *r = *state;
    held f;
    open_family(&f, r->account, "qwen3_moe");
    model_options *o = &f.t.m->options;
    o->moe.rule.normalized = true;
    o->moe_every = 1;
    o->dense[o->dense_count++] = 0;
    assert_int_equal(save(r, &f, GGUF_F32), OTT_ERR_UNSUPPORTED);
    if (!strstr(status_text(), "only experts in every block")) fail_msg("%s", status_text());
    close_family(&f);
}

static void assert_number(const gguf_reader *g, const char *key, double expected) {
    double number = gguf_reader_number(g, key);
    if (fabs(number - expected) > 1e-6 * fabs(expected)) fail_msg("%s is %g, not %g", key, number, expected);
}

/* Compares the metadata with config.json of models in tests/golden/families. */
static void says_what_the_model_is(void **state) {
    run_folder *r = *state;
    held f;
    open_family(&f, r->account, "yarn");
    const rope_options *o = &f.t.m->options.rope;
    HARNESS_OK(save(r, &f, GGUF_BF16));
    gguf_reader g = gguf_reader_open(at(r, "x.gguf"));
    assert_number(&g, "general.file_type", 32);
    assert_number(&g, "llama.vocab_size", 32);
    assert_number(&g, "llama.embedding_length", 16);
    assert_number(&g, "llama.block_count", 2);
    assert_number(&g, "llama.feed_forward_length", 24);
    assert_number(&g, "llama.attention.head_count", 4);
    assert_number(&g, "llama.attention.head_count_kv", 2);
    assert_number(&g, "llama.attention.key_length", 8);
    assert_number(&g, "llama.rope.dimension_count", 8);
    assert_true(gguf_reader_says(&g, "llama.rope.scaling.type", "yarn"));
    assert_number(&g, "llama.rope.scaling.factor", o->factor);
    assert_number(&g, "llama.rope.scaling.original_context_length", (double)o->original_max_position);
    double rule = 0.1 * log(o->factor) + 1;
    assert_number(&g, "llama.rope.scaling.attn_factor",
                  o->attention_factor > 0 ? o->attention_factor / rule : 1);
    assert_int_equal(gguf_reader_tensor(&g, "blk.0.ffn_norm.weight")->type, GGUF_F32);
    assert_int_equal(gguf_reader_tensor(&g, "token_embd.weight")->type, GGUF_BF16);
    gguf_reader_close(&g);
    close_family(&f);

    open_family(&f, r->account, "longrope");
    HARNESS_OK(save(r, &f, GGUF_F32));
    g = gguf_reader_open(at(r, "x.gguf"));
    const gguf_entry *factors = gguf_reader_tensor(&g, "rope_factors_long.weight");
    assert_int_equal(factors->count, f.t.m->options.rope.factors);
    for (int64_t i = 0; i < factors->count; i++)
        assert_true(gguf_reader_element(factors, i) == f.t.m->options.rope.long_factor[i]);
    assert_true(gguf_reader_says(&g, "phi3.rope.scaling.type", "longrope"));
    gguf_reader_close(&g);
    close_family(&f);
}

static void says_what_a_mixture_is(void **state) {
    run_folder *r = *state;
    held f;
    open_family(&f, r->account, "mixtral");
    HARNESS_OK(save(r, &f, GGUF_Q8_0));
    gguf_reader g = gguf_reader_open(at(r, "x.gguf"));
    assert_number(&g, "general.file_type", 7);
    assert_number(&g, "llama.expert_count", 4);
    assert_number(&g, "llama.expert_used_count", 2);
    assert_int_equal(gguf_reader_tensor(&g, "blk.1.ffn_gate_inp.weight")->type, GGUF_F32);
    /* Q8_0 needs row lengths in multiples of 32: attn_output has 32, the other matrices have 16 */
    assert_int_equal(gguf_reader_tensor(&g, "blk.1.attn_output.weight")->type, GGUF_Q8_0);
    assert_int_equal(gguf_reader_tensor(&g, "blk.1.ffn_gate_exps.weight")->type, GGUF_F16);
    gguf_reader_close(&g);
    close_family(&f);
}

/* Llama 3.1 divides low rotary frequencies by 8 and keeps high ones. The first pair has the highest. */
static void gives_llama3_factors(void **state) {
    run_folder *r = *state;
    held f;
    open_family(&f, r->account, "linear");
    f.t.m->options.rope = (rope_options){.kind = ROPE_LLAMA3,
                                         .theta = 1e6,
                                         .factor = 8,
                                         .low_frequency_factor = 1,
                                         .high_frequency_factor = 4,
                                         .original_max_position = 1024};
    HARNESS_OK(save(r, &f, GGUF_F32));
    gguf_reader g = gguf_reader_open(at(r, "x.gguf"));
    const gguf_entry *e = gguf_reader_tensor(&g, "rope_freqs.weight");
    assert_int_equal(e->count, 4);
    assert_true(gguf_reader_element(e, 0) == 1);
    assert_true(gguf_reader_element(e, 3) == 8);
    assert_null(gguf_reader_find(&g, "llama.rope.scaling.type"));
    gguf_reader_close(&g);
    close_family(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, run_folder_setup, run_folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(has_every_weight),
                                       TEST(has_every_bias),
                                       TEST(has_norms_of_heads),
                                       TEST(refuses_what_llama_cpp_has_not),
                                       TEST(refuses_single_blocks_without_experts),
                                       TEST(says_what_the_model_is),
                                       TEST(says_what_a_mixture_is),
                                       TEST(gives_llama3_factors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
