/* folders/hf/save: writes weights and config.json of a Hugging Face folder. */
#include "folders/hf/save.h"
#include "base/file/file.h"
#include "folders/hf/dequantize.h"
#include "folders/hf/fp8.h"
#include "folders/hf/merge.h"
#include "formats/hf/config.h"
#include "formats/hf/folder.h"
#include "formats/safetensors/shards.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef enum tensor_part { PART_VALUES, PART_CODES, PART_SCALES } tensor_part;

/* A tensor of the folder. */
typedef struct tensor_output {
    tensor_part part;
    int first;                   /* index in places.items of the tensor's first rows */
    const hf_fp8_matrix *matrix; /* the FP8 matrix with these codes or scales; else NULL */
} tensor_output;

typedef struct saving {
    model *m;
    mem *account;
    const hf_save_options *o;
    checkpoint_ranks ranks;
    const char *folder;
    const family *family;
    hf_places places;
    hf_fp8 fp8;
    arena *memory;
    safetensors_tensor *declared; /* `count` tensors */
    tensor_output *outputs;       /* `count` outputs, parallel to declared */
    int64_t count;
    float *buffer;  /* HF_BUFFER elements */
    uint8_t *codes; /* HF_BUFFER codes; NULL without FP8 */
} saving;

/* ---- choice of the family ---- */

/* True if the family's config.json can describe the model's experts, or if both have none. */
static bool can_express_experts(const family *f, const model_options *o) {
    const moe_options *e = &o->moe;
    if (e->experts == 0 || f->experts == FAMILY_EXPERTS_NONE)
        return e->experts == 0 && f->experts == FAMILY_EXPERTS_NONE;
    if (e->biased || f->experts == FAMILY_EXPERTS_SIGMOID)
        return e->biased && f->experts == FAMILY_EXPERTS_SIGMOID && o->moe_every == 1 && o->dense_count == 0;
    if (family_is(f, FAMILY_DEEPSEEK_V2))
        return !e->rule.normalized && o->moe_every == 1 && o->dense_count == 0;
    bool plain = e->shared_hidden == 0 && e->rule.groups == 0 && e->rule.scale == 1.0f && o->moe_first == 0;
    bool is_mixtral = family_is(f, FAMILY_MIXTRAL);
    return plain && (!is_mixtral || (e->rule.normalized && o->moe_every == 1 && o->dense_count == 0 &&
                                     e->hidden == o->hidden));
}

/* True if models of the family can have MLPs of kind m. Families with experts only have kind f->mlp. */
static bool can_express_mlp(const family *f, family_mlp m) {
    bool is_of_own_kind = family_mlp_is_gated(f->mlp) == family_mlp_is_gated(m);
    return f->mlp == m || (is_of_own_kind && !f->experts && m != FAMILY_MLP_SWIGLU);
}

static bool can_express_biases(const family *f, const model_options *o) {
    if (f->biases)
        return o->o_bias == o->mlp_bias && o->qkv_bias == o->o_bias && (o->o_bias || f->biases_key);
    if (o->mlp_bias && !f->mlp_bias_key) return false;
    if (f->bias_key) return o->qkv_bias == o->o_bias; /* one key sets both biases */
    return !o->o_bias && (f->qkv_bias_key || f->qkv_bias == o->qkv_bias);
}

/* True if family a's blocks compute what the model's blocks do, apart from biases, QK norms and windows. */
static bool is_same_block(const family *a, const model_options *o) {
    const family *b = o->family;
    return a->norms == b->norms && a->norm == model_norm(o) && can_express_mlp(a, model_mlp(o)) &&
           a->qk_norm_all_heads == b->qk_norm_all_heads && a->scale_embeddings == b->scale_embeddings &&
           a->rope_in_windows == b->rope_in_windows && a->learned_positions == b->learned_positions &&
           (a->interleave_key || a->rope_interleaved == o->rope.interleaved) &&
           (a->local_theta > 0) == (b->local_theta > 0) && a->latent == b->latent &&
           (!o->qk_norm || a->qk_norm_head_weights == b->qk_norm_head_weights) &&
           (!o->scales_by_layer || family_is(a, FAMILY_GPT2));
}

static bool can_express_windows(const family *f, const model_options *o) {
    bool by_layers = f->window == FAMILY_WINDOW_LAYERS && !f->experts;
    return !(f->window == FAMILY_WINDOW_NONE && o->window > 0) &&
           (f->window == FAMILY_WINDOW_PATTERN || by_layers || !model_mixes_windows(o));
}

static bool can_express(const family *f, const model_options *o) {
    return can_express_experts(f, o) && can_express_biases(f, o) && is_same_block(f, o) &&
           can_express_windows(f, o) && (f->qk_norm_key || f->qk_norm == o->qk_norm) &&
           !(f->partial_rotary_factor == 0 &&
             rope_columns(&o->rope, model_rope_width(o)) < model_rope_width(o));
}

static ott_status fail_block(const model_options *o) {
    static const char *const words[] = {KIND_ACTIVATIONS(KIND_WORD)};
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "model.norm_type = %s with model.activation = %s%s: no Hugging Face family that "
                       "Ottava writes supports this; starcoder2 has layernorm with gelu or relu",
                       model_norm(o) >= FAMILY_NORM_LAYER ? "layernorm" : "rmsnorm", words[o->activation],
                       o->qk_norm    ? " and model.qk_norm = true"
                       : o->qkv_bias ? " and model.attention_bias = true"
                                     : "");
}

ott_status hf_save_family(const model_options *o, const family **out) {
    *out = o->family;
    if (can_express(o->family, o)) return OTT_OK;
    for (*out = family_table; *out < family_table + FAMILY_COUNT; ++*out)
        if (!(*out)->fused_qkv && !(*out)->fused_gate_up && can_express(*out, o)) return OTT_OK;
    if (o->layer_norm || o->activation != ACTIVATION_SILU) return fail_block(o);
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "model.attention_bias = %s with model.qk_norm = %s%s%s%s: no Hugging Face family that "
                       "Ottava writes supports this",
                       o->qkv_bias ? "true" : "false", o->qk_norm ? "true" : "false",
                       o->o_bias ? " and model.attention_output_bias = true" : "",
                       o->mlp_bias ? " and model.mlp_bias = true" : "",
                       o->moe.experts > 0 ? " and this mixture of experts" : "");
}

/* ---- config.json ---- */

static void set_hf_rope(const model_options *o, hf_config *c) {
    static const hf_rope kinds[] = {
        [ROPE_PLAIN] = HF_ROPE_PLAIN, [ROPE_LLAMA3] = HF_ROPE_LLAMA3,     [ROPE_LINEAR] = HF_ROPE_LINEAR,
        [ROPE_YARN] = HF_ROPE_YARN,   [ROPE_LONGROPE] = HF_ROPE_LONGROPE, [ROPE_DYNAMIC] = HF_ROPE_DYNAMIC};
    const rope_options *r = &o->rope;
    hf_rope rule = c->rope = kinds[r->kind];
    c->rope_theta = r->theta;
    c->partial_rotary_factor = r->partial_rotary_factor > 0 ? r->partial_rotary_factor : 1;
    c->rope_factor = rule == HF_ROPE_PLAIN ? 0 : r->factor;
    c->rope_low_freq_factor = rule == HF_ROPE_LLAMA3 ? r->low_frequency_factor : 0;
    c->rope_high_freq_factor = rule == HF_ROPE_LLAMA3 ? r->high_frequency_factor : 0;
    c->rope_beta_fast = rule == HF_ROPE_YARN ? r->beta_fast : 0;
    c->rope_beta_slow = rule == HF_ROPE_YARN ? r->beta_slow : 0;
    c->rope_mscale = rule == HF_ROPE_YARN ? r->mscale : 0;
    c->rope_mscale_all_dim = rule == HF_ROPE_YARN ? r->mscale_all_dim : 0;
    c->rope_attention_factor = rule == HF_ROPE_YARN || rule == HF_ROPE_LONGROPE ? r->attention_factor : 0;
    c->rope_original_max_position = rule == HF_ROPE_PLAIN || rule == HF_ROPE_LINEAR || rule == HF_ROPE_DYNAMIC
                                        ? 0
                                        : r->original_max_position;
    c->rope_factors = rule == HF_ROPE_LONGROPE ? r->factors : 0;
    memcpy(c->rope_short_factor, r->short_factor, sizeof c->rope_short_factor);
    memcpy(c->rope_long_factor, r->long_factor, sizeof c->rope_long_factor);
}

/* A multiplier of 0 means 1. */
static double multiplier_of(float m) {
    return m != 0 ? (double)m : 1;
}

/* Members for which the family's config.json has no key stay 0. */
static void set_hf_experts(const model_options *o, hf_config *c) {
    const moe_options *e = &o->moe;
    bool sigmoid = c->family->experts == FAMILY_EXPERTS_SIGMOID,
         is_qwen = family_is(c->family, FAMILY_QWEN3_MOE);
    bool shares = sigmoid || family_is(c->family, FAMILY_DEEPSEEK_V2);
    c->experts = e->experts;
    c->experts_per_token = e->choices;
    c->expert_size = shares || is_qwen ? e->hidden : 0;
    c->sparse_step = is_qwen ? o->moe_every : 0;
    c->first_dense = shares ? o->moe_first : 0;
    c->dense_count = o->dense_count;
    _Static_assert(sizeof c->dense == sizeof o->dense,
                   "config.json must be able to list all layers of a model");
    memcpy(c->dense, o->dense, sizeof c->dense);
    c->shared_experts = shares ? e->shared_hidden / e->hidden : 0;
    c->expert_groups = !shares ? 0 : e->rule.groups > 0 ? e->rule.groups : 1;
    c->top_groups = !shares ? 0 : e->rule.groups > 0 ? e->rule.chosen_groups : 1;
    c->normalizes_weights = (sigmoid || is_qwen) && e->rule.normalized;
    c->route_scale = shares ? (double)e->rule.scale : 0;
}

/* Gemma divides q k^T by sqrt(query_pre_attn_scalar). It has no key for its embedding multiplier. */
static void set_hf_multipliers(const model_options *o, hf_config *c) {
    bool gemma = o->family->scale_embeddings;
    bool cohere = o->family->norms == FAMILY_NORMS_SHARED;
    double scale = (double)o->attention_multiplier, logits = multiplier_of(o->logit_multiplier);
    double scalar = scale > 0 ? rint(1 / (scale * scale)) : (double)o->head_dim;
    c->embedding_multiplier = gemma ? 1 : multiplier_of(o->embedding_multiplier);
    c->residual_multiplier = multiplier_of(o->residual_multiplier);
    c->attention_multiplier = gemma ? 0 : scale;
    c->query_pre_attn_scalar = gemma ? (int64_t)scalar : 0;
    c->logits_scaling = cohere ? 1 : 1 / logits;
    c->logit_scale = cohere ? logits : 1;
    c->attention_softcap = (double)o->attention_softcap;
    c->logit_softcap = (double)o->logit_softcap;
    c->rope_local_theta = o->local_theta;
}

/* config.json has the period of a repeated pattern of windowed layers, or else the layers without windows. */
static ott_status set_hf_windows(const model_options *o, hf_config *c) {
    c->sliding_window = o->window;
    c->full_attention_every = c->family->window == FAMILY_WINDOW_PATTERN ? o->full_attention_every : 0;
    c->full_count = 0;
    for (int64_t i = 0; c->full_attention_every == 0 && o->window > 0 && i < o->layers; i++) {
        if (!model_has_full_attention(o, i)) continue;
        if (c->full_count == HF_CONFIG_MOST_FULL)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "model.full_attention_every = %" PRId64
                               ": config.json of a %s model lists at most %d layers without a window",
                               o->full_attention_every, c->family->name, HF_CONFIG_MOST_FULL);
        c->full[c->full_count++] = (int32_t)i;
    }
    return OTT_OK;
}

/* Sets the values of config.json that describe the model, and keeps the original folder's other values. */
static ott_status set_hf_model(const saving *s, hf_config *c) {
    const model_options *o = &s->m->options;
    c->family = s->family;
    c->hidden_size = o->dim;
    c->intermediate_size = o->hidden;
    c->layers = o->layers;
    c->heads = o->heads;
    c->kv_heads = o->kv_heads;
    c->head_dim = o->head_dim;
    c->vocab_size = o->vocab;
    c->max_position_embeddings = o->max_positions;
    c->norm_eps = (double)o->norm_epsilon;
    c->mlp = model_mlp(o);
    const family *f = c->family;
    c->attention_bias = (f->qkv_bias_key || f->biases_key || f->bias_key) && o->qkv_bias;
    c->mlp_bias = f->mlp_bias_key && o->mlp_bias;
    c->qk_norm = f->qk_norm_key && o->qk_norm;
    c->rope_interleave = f->interleave_key && o->rope.interleaved;
    c->scales_by_layer = o->scales_by_layer;
    c->tie_word_embeddings = o->tied;
    c->dtype = s->o->dtype;
    set_hf_rope(o, c);
    set_hf_multipliers(o, c);
    set_hf_experts(o, c);
    c->q_lora_rank = o->latent.query_rank;
    c->kv_lora_rank = o->latent.key_rank;
    c->qk_nope_head_dim = o->latent.nope_dim;
    c->qk_rope_head_dim = o->latent.rope_dim;
    c->v_head_dim = o->latent.value;
    if (o->has_padding && c->padding_row != o->padding) c->pad = o->padding;
    /* Drop special tokens that are not in the model's vocabulary. The original vocabulary may be larger. */
    int kept = 0;
    for (int i = 0; i < c->eos_count; i++)
        if (c->eos[i] < c->vocab_size) c->eos[kept++] = c->eos[i];
    c->eos_count = kept;
    if (c->bos >= c->vocab_size) c->bos = -1;
    if (c->pad >= c->vocab_size) c->pad = -1;
    return set_hf_windows(o, c);
}

static ott_status write_config_json(const saving *s) {
    hf_config c = {.bos = -1, .pad = -1, .padding_row = -1};
    char *original = NULL;
    char path[PATH_MAX];
    str quantization = {.account = s->account};
    ott_status status = OTT_OK;
    TRY(file_join(s->folder, HF_CONFIG_NAME, path));
    if (s->o->original) TRY_OUT(hf_config_read(s->account, s->o->original, &c, &original));
    TRY_OUT(set_hf_model(s, &c));
    str_append(&quantization, "");
    if (s->o->fp8) hf_fp8_describe(&s->fp8, &quantization);
    TRY_OUT(str_finish(&quantization));
    TRY_OUT(
        hf_config_write(s->account, &c, original, quantization.length > 0 ? quantization.text : "", path));
out:
    str_free(&quantization);
    mem_free(s->account, original);
    return status;
}

static safetensors_tensor *declare_tensor(saving *s, tensor_output what, const char *name, ott_dtype dtype) {
    safetensors_tensor *t = &s->declared[s->count];
    *t = (safetensors_tensor){.name = name, .dtype = dtype};
    s->outputs[s->count++] = what;
    return t;
}

/* If the weight rows places.items[i] are the first rows of a tensor of the file, adds this tensor and the
   tensor of its scales. Otherwise does nothing, because the tensor was added with its first rows. */
static ott_status declare_place(saving *s, int i) {
    const hf_place *at = &s->places.items[i];
    const hf_fp8_matrix *x = s->o->fp8 ? hf_fp8_find(&s->fp8, i) : NULL;
    if (at->tensor_row > 0) return OTT_OK;
    safetensors_tensor *t = declare_tensor(s, (tensor_output){x ? PART_CODES : PART_VALUES, i, x}, at->name,
                                           x ? OTT_E4M3 : s->o->dtype);
    t->rank = hf_place_shape(at, t->shape);
    if (!x) return OTT_OK;
    t = declare_tensor(s, (tensor_output){PART_SCALES, i, x}, NULL, OTT_F32);
    return hf_fp8_declare(&s->fp8, x, s->memory, &t->name, &t->rank, t->shape);
}

static ott_status declare_folder_tensors(saving *s) {
    int64_t most = 2 * (int64_t)s->places.count; /* codes and scales are two tensors */
    TRY(arena_open(s->account, MEM_OTHER, &s->memory));
    TRY(arena_alloc(s->memory, most * (int64_t)sizeof *s->declared, &s->declared));
    TRY(arena_alloc(s->memory, most * (int64_t)sizeof *s->outputs, &s->outputs));
    for (int i = 0; i < s->places.count; i++) TRY(declare_place(s, i));
    return OTT_OK;
}

/* ---- writing ---- */

/* The tensor that is being written. */
typedef struct writing {
    const saving *s;
    safetensors_writer *w;
    const tensor_output *d;
    int64_t end; /* number of elements that were written or skipped */
} writing;

/* Skips elements that other ranks write. */
static ott_status skip_to_element(writing *t, int64_t element) {
    int64_t count = element - t->end;
    t->end = element;
    return count > 0 ? safetensors_writer_skip(t->w, count * (t->d->matrix ? 1 : dtype_bytes(t->s->o->dtype)))
                     : OTT_OK;
}

static ott_status append_tensor_elements(void *user, int64_t first, int64_t count, const float *values) {
    writing *t = user;
    TRY(skip_to_element(t, first));
    t->end += count;
    if (t->d->part == PART_VALUES) return safetensors_writer_append_floats(t->w, values, count);
    hf_fp8_encode(t->d->matrix, first, count, values, t->s->codes);
    return safetensors_writer_append(t->w, t->s->codes, count);
}

static ott_status append_scales(const saving *s, safetensors_writer *w, const hf_fp8_matrix *x) {
    int64_t count = x->scale_rows * x->scale_columns;
    if (ranks_own_rank(&s->ranks) > 0) return safetensors_writer_skip(w, count * (int64_t)sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        float scale = hf_fp8_file_scale(x, i);
        TRY(safetensors_writer_append_floats(w, &scale, 1));
    }
    return OTT_OK;
}

static ott_status write_hf_tensor(const saving *s, safetensors_writer *w, const tensor_output *d) {
    const hf_place *at = &s->places.items[d->first];
    if (d->part == PART_SCALES) return append_scales(s, w, d->matrix);
    writing t = {s, w, d, 0};
    TRY(hf_places_stream(&s->places, d->first, d->matrix && d->matrix->keeps_codes, s->buffer,
                         append_tensor_elements, &t));
    return skip_to_element(&t, at->tensor_rows * at->columns);
}

static ott_status open_weights(const saving *s, safetensors_writer **out) {
    return safetensors_writer_join_shards(s->account, s->folder, s->declared, s->count, 0, NULL, 0,
                                          ranks_own_rank(&s->ranks), ranks_size(&s->ranks), out);
}

static ott_status append_tensors(const saving *s, safetensors_writer *w) {
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;)
        TRY(write_hf_tensor(s, w, &s->outputs[next]));
    return OTT_OK;
}

/* Rank 0 creates the files before other ranks open them, and commits them when all ranks have written. */
static ott_status write_as_rank_0(const saving *s) {
    safetensors_writer *w = NULL;
    ott_status status = ranks_agree(&s->ranks, open_weights(s, &w));
    if (status == OTT_OK) status = ranks_agree(&s->ranks, append_tensors(s, w));
    if (status == OTT_OK) return ranks_agree(&s->ranks, safetensors_writer_commit(w));
    safetensors_writer_abandon(w);
    return status;
}

static ott_status append_own(const saving *s) {
    safetensors_writer *w;
    TRY(open_weights(s, &w));
    ott_status status = append_tensors(s, w);
    if (status == OTT_OK) return safetensors_writer_commit(w);
    safetensors_writer_abandon(w);
    return status;
}

static ott_status write_as_other_rank(const saving *s) {
    TRY(ranks_agree(&s->ranks, OTT_OK));
    TRY(ranks_agree(&s->ranks, append_own(s)));
    return ranks_agree(&s->ranks, OTT_OK);
}

/* ---- saving ---- */

/* Returns the module of the first matrix for which serving programs cannot use 128x128 blocks; NULL if none.
   They need columns in multiples of 128, and also rows if they fuse the matrix (q, k, v or gate, up). */
static const model_module *find_unfit(const saving *s) {
    for (const hf_place *at = s->places.items; at < s->places.items + s->places.count; at++) {
        bool is_joined = at->count < at->tensor_rows || strcmp(at->fused, at->name) != 0;
        bool fits = at->columns % HF_BLOCK == 0 && (!is_joined || at->count % HF_BLOCK == 0);
        if (hf_is_block_matrix(at) && !fits) return at->module;
    }
    return NULL;
}

/* The programs that can read this FP8 folder, and a warning if some cannot: docs/howto/export.md. */
typedef struct hf_readers {
    const char *names, *warning;
} hf_readers;

static hf_readers readers_of(const saving *s) {
    const hf_fp8 *f = &s->fp8;
    bool is_compressed = f->method == HF_METHOD_COMPRESSED;
    if (f->granularity == HF_SCALE_BLOCK && find_unfit(s))
        return (hf_readers){"Ottava only, because of sizes that are not multiples of 128",
                            "vLLM, SGLang and transformers load blocks only if sizes are multiples of 128; "
                            "use compressed-tensors with granularity channel or tensor"};
    if (is_compressed)
        return (hf_readers){"vLLM, SGLang, and transformers with the Python package compressed-tensors",
                            NULL};
    if (f->granularity == HF_SCALE_BLOCK) return (hf_readers){"vLLM, SGLang, and transformers", NULL};
    return (hf_readers){"vLLM and SGLang, not transformers",
                        "transformers does not support the method fp8 with a scale per matrix: it stops, or "
                        "ignores the scales; use compressed-tensors"};
}

/* Warns if weights kept in FP8 are quantized again. */
static void warn_of_rounding(const saving *s) {
    for (int i = 0; i < s->places.count; i++) {
        const hf_place *at = &s->places.items[i];
        if (!at->parameter->codes || hf_merge_applies(at->module)) continue;
        log_warning(s->o->log,
                    "%s and other weights are kept in FP8 and are rounded a second time: granularity "
                    "as-trained keeps their codes and scales",
                    at->parameter->name);
        return;
    }
}

static hf_save_summary summarize(const saving *s) {
    hf_save_summary sum = {.family = s->family->name,
                           .tensors = s->count,
                           .matrices = s->fp8.count,
                           .kept = s->fp8.unquantized_count,
                           .granularity = s->fp8.granularity,
                           .readers = s->o->fp8 ? readers_of(s).names : NULL};
    for (int64_t i = 0; i < s->count; i++) {
        int64_t bytes = dtype_bytes(s->declared[i].dtype);
        for (int r = 0; r < s->declared[i].rank; r++) bytes *= s->declared[i].shape[r];
        sum.bytes += bytes;
    }
    return sum;
}

static ott_status prepare_save(saving *s) {
    TRY(hf_save_family(&s->m->options, &s->family));
    TRY(hf_places_open(s->m, s->family, false, &s->places));
    TRY(mem_alloc_array(s->account, MEM_OTHER, HF_BUFFER, sizeof(float), "weight buffer", &s->buffer));
    return !s->o->fp8 ? OTT_OK : mem_alloc(s->account, MEM_OTHER, HF_BUFFER, "code buffer", &s->codes);
}

/* Writes all files but the weights. */
static ott_status write_others(saving *s, int64_t *copied) {
    TRY(file_make_folder(s->folder));
    if (s->o->original && file_is_folder(s->o->original))
        TRY(hf_folder_copy_others(s->account, s->o->log, s->o->original, s->folder, copied));
    return write_config_json(s);
}

static ott_status save_model(saving *s, hf_save_summary *out) {
    const checkpoint_ranks *ranks = &s->ranks;
    const hf_save_options *o = s->o;
    TRY(ranks_agree(ranks, prepare_save(s)));
    TRY(hf_places_agree(&s->places, ranks));
    if (o->fp8) {
        TRY(hf_fp8_open(&s->places, ranks, o->method, o->granularity, &s->fp8));
        const char *warning = readers_of(s).warning;
        const model_module *e = s->fp8.granularity == HF_SCALE_BLOCK ? find_unfit(s) : NULL;
        if (warning && e)
            log_warning(o->log, "%s.weight is [%" PRId64 ", %" PRId64 "]: %s", e->name, e->shape[e->rank - 2],
                        e->shape[e->rank - 1], warning);
        else if (warning)
            log_warning(o->log, "%s", warning);
        if (o->granularity != HF_SCALE_AS_TRAINED) warn_of_rounding(s);
        TRY(hf_fp8_measure(&s->fp8, ranks, s->buffer));
    }
    TRY(ranks_agree(ranks, declare_folder_tensors(s)));
    *out = summarize(s);
    TRY(ranks_agree(ranks, ranks_own_rank(ranks) == 0 ? write_others(s, &out->copied) : OTT_OK));
    return ranks_own_rank(&s->ranks) == 0 ? write_as_rank_0(s) : write_as_other_rank(s);
}

ott_status hf_model_save(model *m, const hf_save_options *o, const char *folder, hf_save_summary *out) {
    saving s = {
        .m = m, .account = m->device->account, .o = o, .ranks = {o->ranks, m->device}, .folder = folder};
    ott_status status = save_model(&s, out);
    mem_free(s.account, s.buffer);
    mem_free(s.account, s.codes);
    arena_close(s.memory);
    hf_fp8_close(&s.fp8);
    hf_places_close(&s.places);
    return status;
}
