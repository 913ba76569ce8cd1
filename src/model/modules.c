/* model/modules: the table of roles, and the module list created from it. */
#include "model/modules.h"
#include "model/model.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Quantities that are the length of an axis of a weight. length_of computes them from model_options. */
typedef enum extent {
    NONE, /* the weight has no such axis */
    DIM,
    QUERY, /* all heads of q */
    KEY,   /* all heads of k, or all heads of v */
    QUERY_KEY_VALUE,
    HEAD_OUTPUTS, /* all heads of the attention output */
    HEAD,
    QUERY_LATENT,
    KEY_LATENT,
    KEY_LATENT_MORE, /* columns of KEY_LATENT and the rotated columns of keys */
    KEY_VALUE,       /* k (without rotated columns) and v of all heads, from the latent */
    HIDDEN,
    TWICE_HIDDEN,
    EXPERTS,
    EXPERT_HIDDEN,
    SHARED_HIDDEN,
    VOCAB,
    POSITIONS
} extent;

/* The struct that has a role's layer: model; block; or the layer of a block's mixer or feed-forward. For a
   mixer or feed-forward, its kind decides if it has the role (`has`), and at which offset (`at`). */
typedef enum role_owner { OF_MODEL, OF_BLOCK, OF_MIXER, OF_FFN } role_owner;

typedef struct role_row {
    module_kind kind;
    role_owner owner;
    size_t offset;        /* for OF_MODEL and OF_BLOCK: the result of modules_offset */
    extent rows, columns; /* axes of the weight; a norm has only columns */
    bool is_qkv;          /* projection of q, k or v: has a bias if options.qkv_bias */
    module_role part;     /* fused projection: the first fused role; the others follow it */
    int parts;
    module_start start;
    bool of_experts;                /* the weight has one matrix for each expert */
    const char *name[NAMING_COUNT]; /* names without the block's name */
} role_row;

#define IN_MODEL(member) OF_MODEL, offsetof(model, member)
#define IN_BLOCK(member) OF_BLOCK, offsetof(block, member)
#define IN_MIXER         OF_MIXER, 0
#define IN_FFN           OF_FFN, 0

static const role_row role_rows[ROLE_COUNT] = {
    [ROLE_EMBEDDING] = {MODULE_EMBEDDING, IN_MODEL(embedding), VOCAB, DIM, .start = START_EMBEDDING,
                        .name = {"model.embed_tokens", "token_embedding.embedding", "tok_embeddings"}},
    [ROLE_POSITION_EMBEDDING] = {MODULE_EMBEDDING, IN_MODEL(position_embedding), POSITIONS, DIM,
                                 .name = {"model.embed_positions", "position_embedding.embedding",
                                          "pos_embeddings"}},
    [ROLE_ATTENTION_NORM] = {MODULE_NORM, IN_BLOCK(attention_norm), NONE, DIM,
                             .name = {"input_layernorm", "attention_norm", "attention_norm"}},
    [ROLE_QKV] = {MODULE_LINEAR, IN_MIXER, QUERY_KEY_VALUE, DIM, true, ROLE_Q, 3,
                  .name = {"self_attn.qkv_proj", "attention.qkv_proj", "attention.wqkv"}},
    [ROLE_Q] = {MODULE_LINEAR, IN_MIXER, QUERY, DIM, true,
                .name = {"self_attn.q_proj", "attention.q_proj", "attention.wq"}},
    [ROLE_K] = {MODULE_LINEAR, IN_MIXER, KEY, DIM, true,
                .name = {"self_attn.k_proj", "attention.k_proj", "attention.wk"}},
    [ROLE_V] = {MODULE_LINEAR, IN_MIXER, KEY, DIM, true,
                .name = {"self_attn.v_proj", "attention.v_proj", "attention.wv"}},
    [ROLE_Q_A] = {MODULE_LINEAR, IN_MIXER, QUERY_LATENT, DIM, true,
                  .name = {"self_attn.q_a_proj", "attention.q_a_proj", "attention.wq_a"}},
    [ROLE_Q_A_NORM] = {MODULE_NORM, IN_MIXER, NONE, QUERY_LATENT,
                       .name = {"self_attn.q_a_layernorm", "attention.q_a_norm", "attention.q_norm"}},
    [ROLE_Q_B] = {MODULE_LINEAR, IN_MIXER, QUERY, QUERY_LATENT,
                  .name = {"self_attn.q_b_proj", "attention.q_b_proj", "attention.wq_b"}},
    [ROLE_KV_A] = {MODULE_LINEAR, IN_MIXER, KEY_LATENT_MORE, DIM, true,
                   .name = {"self_attn.kv_a_proj_with_mqa", "attention.kv_a_proj", "attention.wkv_a"}},
    [ROLE_KV_A_NORM] = {MODULE_NORM, IN_MIXER, NONE, KEY_LATENT,
                        .name = {"self_attn.kv_a_layernorm", "attention.kv_a_norm", "attention.kv_norm"}},
    [ROLE_KV_B] = {MODULE_LINEAR, IN_MIXER, KEY_VALUE, KEY_LATENT,
                   .name = {"self_attn.kv_b_proj", "attention.kv_b_proj", "attention.wkv_b"}},
    [ROLE_Q_NORM] = {MODULE_NORM, IN_MIXER, NONE, HEAD,
                     .name = {"self_attn.q_norm", "attention.q_norm", "attention.q_norm"}},
    [ROLE_K_NORM] = {MODULE_NORM, IN_MIXER, NONE, HEAD,
                     .name = {"self_attn.k_norm", "attention.k_norm", "attention.k_norm"}},
    [ROLE_O] = {MODULE_LINEAR, IN_MIXER, DIM, HEAD_OUTPUTS, .start = START_RESIDUAL,
                .name = {"self_attn.o_proj", "attention.o_proj", "attention.wo"}},
    [ROLE_ATTENTION_POST_NORM] = {MODULE_NORM, IN_BLOCK(attention_post_norm), NONE, DIM,
                                  .name = {"post_attention_layernorm", "attention_post_norm",
                                           "attention_post_norm"}},
    [ROLE_MLP_NORM] = {MODULE_NORM, IN_BLOCK(mlp_norm), NONE, DIM,
                       .name = {"post_attention_layernorm", "mlp_norm", "ffn_norm"}},
    [ROLE_GATE_UP] = {MODULE_LINEAR, IN_FFN, TWICE_HIDDEN, DIM, false, ROLE_GATE, 2,
                      .name = {"mlp.gate_up_proj", "mlp.gate_up_proj", "feed_forward.w13"}},
    [ROLE_GATE] = {MODULE_LINEAR, IN_FFN, HIDDEN, DIM,
                   .name = {"mlp.gate_proj", "mlp.gate_proj", "feed_forward.w1"}},
    [ROLE_UP] = {MODULE_LINEAR, IN_FFN, HIDDEN, DIM, .start = START_INSIDE,
                 .name = {"mlp.up_proj", "mlp.up_proj", "feed_forward.w3"}},
    [ROLE_DOWN] = {MODULE_LINEAR, IN_FFN, DIM, HIDDEN, .start = START_RESIDUAL,
                   .name = {"mlp.down_proj", "mlp.down_proj", "feed_forward.w2"}},
    [ROLE_ROUTER] = {MODULE_LINEAR, IN_FFN, EXPERTS, DIM,
                     .name = {"mlp.gate", "mlp.router.gate", "moe.router.gate"}},
    [ROLE_EXPERT_GATE] = {MODULE_LINEAR, IN_FFN, EXPERT_HIDDEN, DIM, .of_experts = true,
                          .name = {"mlp.experts.gate_proj", "mlp.experts.gate_proj", "moe.experts.w1"}},
    [ROLE_EXPERT_UP] = {MODULE_LINEAR, IN_FFN, EXPERT_HIDDEN, DIM, .start = START_INSIDE, .of_experts = true,
                        .name = {"mlp.experts.up_proj", "mlp.experts.up_proj", "moe.experts.w3"}},
    [ROLE_EXPERT_DOWN] = {MODULE_LINEAR, IN_FFN, DIM, EXPERT_HIDDEN, .start = START_RESIDUAL,
                          .of_experts = true,
                          .name = {"mlp.experts.down_proj", "mlp.experts.down_proj", "moe.experts.w2"}},
    [ROLE_SHARED_GATE] = {MODULE_LINEAR, IN_FFN, SHARED_HIDDEN, DIM,
                          .name = {"mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj",
                                   "moe.shared_experts.w1"}},
    [ROLE_SHARED_UP] = {MODULE_LINEAR, IN_FFN, SHARED_HIDDEN, DIM, .start = START_INSIDE,
                        .name = {"mlp.shared_experts.up_proj", "mlp.shared_expert.up_proj",
                                 "moe.shared_experts.w3"}},
    [ROLE_SHARED_DOWN] = {MODULE_LINEAR, IN_FFN, DIM, SHARED_HIDDEN, .start = START_RESIDUAL,
                          .name = {"mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj",
                                   "moe.shared_experts.w2"}},
    [ROLE_MLP_POST_NORM] = {MODULE_NORM, IN_BLOCK(mlp_post_norm), NONE, DIM,
                            .name = {"post_feedforward_layernorm", "mlp_post_norm", "ffn_post_norm"}},
    [ROLE_FINAL_NORM] = {MODULE_NORM, IN_MODEL(final_norm), NONE, DIM,
                         .name = {"model.norm", "norm", "norm"}},
    [ROLE_HEAD] = {MODULE_LINEAR, IN_MODEL(loss.head), VOCAB, DIM, .start = START_HEAD,
                   .name = {"lm_head", "output_head.proj", "output"}},
};

/* Hugging Face names of modules in families that differ from most families. */
static const struct {
    family_index family;
    module_role role;
    const char *name;
} family_names[] = {
    {FAMILY_BAICHUAN, ROLE_QKV, "self_attn.W_pack"},
    {FAMILY_GEMMA2, ROLE_MLP_NORM, "pre_feedforward_layernorm"},
    {FAMILY_GEMMA3, ROLE_MLP_NORM, "pre_feedforward_layernorm"},
    {FAMILY_STARCODER2, ROLE_UP, "mlp.c_fc"},
    {FAMILY_STARCODER2, ROLE_DOWN, "mlp.c_proj"},
    {FAMILY_GPT2, ROLE_EMBEDDING, "transformer.wte"},
    {FAMILY_GPT2, ROLE_POSITION_EMBEDDING, "transformer.wpe"},
    {FAMILY_GPT2, ROLE_ATTENTION_NORM, "ln_1"},
    {FAMILY_GPT2, ROLE_QKV, "attn.c_attn"},
    {FAMILY_GPT2, ROLE_O, "attn.c_proj"},
    {FAMILY_GPT2, ROLE_MLP_NORM, "ln_2"},
    {FAMILY_GPT2, ROLE_UP, "mlp.c_fc"},
    {FAMILY_GPT2, ROLE_DOWN, "mlp.c_proj"},
    {FAMILY_GPT2, ROLE_FINAL_NORM, "transformer.ln_f"},
    {FAMILY_GLM4, ROLE_ATTENTION_POST_NORM, "post_self_attn_layernorm"},
    {FAMILY_GLM4, ROLE_MLP_POST_NORM, "post_mlp_layernorm"},
    {FAMILY_MIXTRAL, ROLE_ROUTER, "block_sparse_moe.gate"},
    {FAMILY_MIXTRAL, ROLE_EXPERT_GATE, "block_sparse_moe.experts.w1"},
    {FAMILY_MIXTRAL, ROLE_EXPERT_UP, "block_sparse_moe.experts.w3"},
    {FAMILY_MIXTRAL, ROLE_EXPERT_DOWN, "block_sparse_moe.experts.w2"},
};

/* Returns the module's name without the block's name. */
static const char *name_inside(const family *f, module_role role, naming style) {
    for (size_t i = 0; f && style == NAMING_HUGGING_FACE && i < sizeof family_names / sizeof *family_names;
         i++)
        if (family_is(f, family_names[i].family) && family_names[i].role == role) return family_names[i].name;
    return role_rows[role].name[style];
}

bool modules_is_mixture(module_role role) {
    return role >= ROLE_ROUTER && role <= ROLE_SHARED_DOWN;
}

const char *modules_bias_name(const model_module *m) {
    return m->balances ? "e_score_correction_bias" : "bias";
}

static bool is_mixture(const model_options *o, int64_t layer) {
    for (int i = 0; i < o->dense_count; i++)
        if (o->dense[i] == layer) return false;
    return o->moe.experts > 0 && layer >= o->moe_first && (layer + 1) % o->moe_every == 0;
}

const mixer_kind *modules_mixer(const model_options *o, int64_t layer) {
    if (o->mixer) return o->mixer[layer];
    return o->latent.key_rank > 0 ? &mixer_latent_attention : &mixer_attention;
}

const ffn_kind *modules_ffn(const model_options *o, int64_t layer) {
    if (o->ffn) return o->ffn[layer];
    return is_mixture(o, layer) ? &ffn_moe : &ffn_mlp;
}

module_start modules_start(module_role role) {
    return role_rows[role].start;
}

static family_norms norms_of(const model_options *o) {
    return o->family ? o->family->norms : FAMILY_NORMS_BEFORE;
}

bool modules_has(const model_options *o, int layer, module_role role) {
    if (role_rows[role].owner == OF_MIXER) return modules_mixer(o, layer)->has(o, role);
    if (role_rows[role].owner == OF_FFN) return modules_ffn(o, layer)->has(o, role);
    switch (role) {
    case ROLE_POSITION_EMBEDDING: return o->family && o->family->learned_positions;
    case ROLE_ATTENTION_NORM: return norms_of(o) != FAMILY_NORMS_AFTER;
    case ROLE_MLP_NORM: return norms_of(o) != FAMILY_NORMS_AFTER && norms_of(o) != FAMILY_NORMS_SHARED;
    case ROLE_ATTENTION_POST_NORM:
    case ROLE_MLP_POST_NORM: return norms_of(o) == FAMILY_NORMS_AROUND || norms_of(o) == FAMILY_NORMS_AFTER;
    default: return true;
    }
}

static int64_t length_of(const model_options *o, extent e) {
    const latent_shape *l = &o->latent;
    int64_t query = o->heads * o->head_dim, key = o->kv_heads * o->head_dim;
    switch (e) {
    case NONE: return 0;
    case DIM: return o->dim;
    case QUERY: return query;
    case KEY: return key;
    case QUERY_KEY_VALUE: return query + 2 * key;
    case HEAD_OUTPUTS: return o->heads * model_value_width(o);
    case HEAD: return o->head_dim;
    case QUERY_LATENT: return l->query_rank;
    case KEY_LATENT: return l->key_rank;
    case KEY_LATENT_MORE: return l->key_rank + l->rope_dim;
    case KEY_VALUE: return o->heads * (l->nope_dim + l->value);
    case HIDDEN: return o->hidden;
    case TWICE_HIDDEN: return 2 * o->hidden;
    case EXPERTS: return o->moe.experts;
    case EXPERT_HIDDEN: return o->moe.hidden;
    case SHARED_HIDDEN: return o->moe.shared_hidden;
    case VOCAB: return o->vocab;
    case POSITIONS: return o->max_positions;
    }
    return 0;
}

/* True if tensor parallelism splits weights along an axis with this length. */
static bool is_divided(extent e) {
    return e != NONE && e != DIM && !(e >= HEAD && e <= KEY_LATENT_MORE) && e != EXPERTS &&
           e != EXPERT_HIDDEN && e != SHARED_HIDDEN && e != POSITIONS;
}

static parameter_split split_of(const role_row *row) {
    if (is_divided(row->rows)) return PARAMETER_ROWS;
    return is_divided(row->columns) ? PARAMETER_COLUMNS : PARAMETER_FULL;
}

int64_t modules_offset(const model_options *o, int layer, module_role role) {
    const role_row *row = &role_rows[role];
    if (row->owner == OF_MIXER)
        return (int64_t)offsetof(block, attention) + modules_mixer(o, layer)->at[role];
    if (row->owner == OF_FFN) return (int64_t)offsetof(block, mlp) + modules_ffn(o, layer)->at[role];
    return (int64_t)row->offset;
}

/* Returns the name of the list of blocks, like "model.layers". */
static const char *stem_of(const family *f, naming style) {
    if (style != NAMING_HUGGING_FACE) return "layers";
    return f && f->block_prefix ? f->block_prefix : "model.layers";
}

const char *modules_name(const family *f, module_role role, naming style, int layer,
                         char out[MODULES_NAME_BYTES]) {
    const char *name = name_inside(f, role, style);
    if (role_rows[role].owner != OF_MODEL)
        snprintf(out, MODULES_NAME_BYTES, "%s.%d.%s", stem_of(f, style), layer, name);
    else
        snprintf(out, MODULES_NAME_BYTES, "%s", name);
    return out;
}

const char *modules_matrix_name(const family *f, module_role role, naming style, int layer, int64_t matrix,
                                char out[MODULES_NAME_BYTES]) {
    const char *name = name_inside(f, role, style), *last = strrchr(name, '.');
    int before = last ? (int)(last + 1 - name) : 0;
    snprintf(out, MODULES_NAME_BYTES, "%s.%d.%.*s%" PRId64 ".%s", stem_of(f, style), layer, before, name,
             matrix, name + before);
    return out;
}

/* ---- the list ---- */

family_norm modules_norm(const model_options *o, module_role role) {
    return (role == ROLE_Q_NORM || role == ROLE_K_NORM) && o->family ? o->family->norm : model_norm(o);
}

static bool has_bias(const model_options *o, module_role role) {
    const role_row *row = &role_rows[role];
    if (row->kind == MODULE_NORM) return modules_norm(o, role) == FAMILY_NORM_LAYER_BIAS;
    if (row->is_qkv) return o->qkv_bias && !(role == ROLE_Q && o->latent.key_rank > 0);
    if (role == ROLE_O) return o->o_bias;
    return role >= ROLE_GATE_UP && role <= ROLE_DOWN && o->mlp_bias;
}

bool modules_norms_apart(const model_options *o, module_role role) {
    return (role == ROLE_Q_NORM || role == ROLE_K_NORM) && o->family && o->family->qk_norm_head_weights;
}

/* Length of a weight's last axis. A norm of q or k has weights for one head or for all heads. */
static extent columns_of(const model_options *o, module_role role) {
    extent e = role_rows[role].columns;
    bool is_of_all = o->family && (o->family->qk_norm_all_heads || o->family->qk_norm_head_weights);
    if (e != HEAD || !is_of_all) return e;
    return role == ROLE_Q_NORM ? QUERY : KEY;
}

model_module modules_describe(const model_options *o, module_role role, int layer) {
    const role_row *row = &role_rows[role];
    model_module m = {.role = role,
                      .kind = row->kind,
                      .layer = layer,
                      .split = modules_norms_apart(o, role) ? PARAMETER_ROWS : split_of(row),
                      .of_experts = row->of_experts,
                      .has_bias = has_bias(o, role),
                      .tied = role == ROLE_HEAD && o->tied};
    if (role == ROLE_ROUTER) m.has_bias = m.balances = o->moe.biased;
    if (m.of_experts) m.shape[m.rank++] = o->moe.experts;
    if (row->rows != NONE) m.shape[m.rank++] = length_of(o, row->rows);
    m.shape[m.rank++] = length_of(o, columns_of(o, role));
    return m;
}

/* True if this pipeline stage has the module, which is outside of the blocks. */
static bool is_outside_here(const model_options *o, module_role role) {
    bool first = pipeline_is_first(o->stage), last = pipeline_is_last(o->stage);
    if (role == ROLE_POSITION_EMBEDDING) return first;
    return role == ROLE_EMBEDDING ? first || (last && o->tied) : last;
}

static bool is_on_stage(const model_options *o, module_role role, int layer) {
    return layer == MODULES_OUTSIDE ? is_outside_here(o, role)
                                    : pipeline_has_layer(o->stage, o->layers, layer);
}

static ott_status add_module(arena *memory, const model_options *o, module_role role, int layer,
                             module_list *list) {
    char name[MODULES_NAME_BYTES];
    model_module *m = &list->items[list->count++];
    *m = modules_describe(o, role, layer);
    m->repeated = role == ROLE_EMBEDDING && !pipeline_is_first(o->stage);
    return arena_strdup(memory, modules_name(o->family, role, NAMING_HUGGING_FACE, layer, name), &m->name);
}

static ott_status add_roles(arena *memory, const model_options *o, module_role from, module_role to,
                            int layer, module_list *list) {
    for (module_role role = from; role < to; role++)
        if (modules_has(o, layer, role) && is_on_stage(o, role, layer))
            TRY(add_module(memory, o, role, layer, list));
    return OTT_OK;
}

ott_status modules_make(arena *memory, const model_options *o, module_list *out) {
    const module_role first = ROLE_ATTENTION_NORM, end = ROLE_FINAL_NORM; /* roles of a block: [first, end) */
    int64_t count = ROLE_COUNT - (end - first);
    *out = (module_list){0};
    for (int layer = 0; layer < o->layers; layer++)
        for (module_role role = first; role < end; role++) count += modules_has(o, layer, role);
    TRY(arena_alloc(memory, count * (int64_t)sizeof *out->items, &out->items));
    TRY(add_roles(memory, o, 0, first, MODULES_OUTSIDE, out));
    for (int layer = 0; layer < o->layers; layer++) TRY(add_roles(memory, o, first, end, layer, out));
    return add_roles(memory, o, end, ROLE_COUNT, MODULES_OUTSIDE, out);
}

/* ---- parts ---- */

int modules_parts(const model_options *o, const model_module *m, module_part part[MODULES_PARTS]) {
    const role_row *row = &role_rows[m->role];
    int64_t first = 0;
    if (row->parts == 0) {
        part[0] = (module_part){.role = m->role, .count = m->shape[m->of_experts]};
        return 1;
    }
    for (int i = 0; i < row->parts; i++) {
        module_role role = row->part + (module_role)i;
        part[i] = (module_part){role, first, length_of(o, role_rows[role].rows)};
        first += part[i].count;
    }
    return row->parts;
}

bool modules_find_fused(const model_options *o, module_role part, module_part *at, int64_t *rows) {
    for (module_role role = 0; role < ROLE_COUNT; role++) {
        const role_row *row = &role_rows[role];
        if (part < row->part || part >= row->part + (module_role)row->parts) continue;
        *at = (module_part){.role = role, .count = length_of(o, role_rows[part].rows)};
        for (module_role before = row->part; before < part; before++)
            at->first += length_of(o, role_rows[before].rows);
        *rows = length_of(o, row->rows);
        return true;
    }
    return false;
}
