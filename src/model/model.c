/* model/model: creates a model's parameters, connects its layers with them, and frees both. */
#include "model/model.h"
#include "model/adapters.h"
#include "model/freeze.h"
#include "model/names.h"
#include "model/storage.h"
#include "tensor/rules/moment.h"
#include <string.h>

/* ---- parameters ---- */

static bool is_frozen(model *m, const model_module *e, const char *kind) {
    const str_list *freeze = m->options.freeze;
    /* With adapters, base weights train only in peft.modules_to_save. Balancing biases never train. */
    bool found = (m->options.adapter.rank > 0 && !e->saved) ||
                 (e->balances && strcmp(kind, modules_bias_name(e)) == 0);
    for (int64_t i = 0; freeze && i < freeze->count; i++)
        if (freeze_names(&m->options, e, kind, freeze->items[i])) found = m->freeze_matched[i] = true;
    return found;
}

/* A block's parameters are consecutive in m->parameters: they are declared one after the other. */
static void add_to_block(block *b, parameter *p) {
    if (!b->parameters) b->parameters = p;
    b->parameter_count++;
}

/* Sets p->local to this rank's part. Expert parallelism splits by expert. Tensor parallelism splits columns
   or rows; in a fused projection, the rows of q, k and v separately. A vector's elements count as rows. */
static void split_parameter(const model *m, const model_module *e, parameter_split split, parameter *p) {
    const group *ranks = m->options.tensor_ranks, *experts = m->options.expert_ranks;
    if (experts && p->of_experts) {
        parameter_split_rows(p, &p->rows, 1, experts->rank, experts->size);
        return;
    }
    if (!ranks || split == PARAMETER_FULL) return;
    if (split == PARAMETER_COLUMNS) {
        p->local.columns /= ranks->size;
        p->local.column = p->local.columns * ranks->rank;
        return;
    }
    module_part part[MODULES_PARTS];
    int64_t section[PARAMETER_SECTIONS];
    int count = modules_parts(&m->options, e, part);
    for (int i = 0; i < count; i++) section[i] = part[i].count;
    parameter_split_rows(p, section, count, ranks->rank, ranks->size);
}

/* *out: memory for the next parameter, in m->parameters if its module is on this pipeline stage. */
static ott_status take_parameter(model *m, bool is_here, parameter **out) {
    void *memory = &m->parameters[m->parameter_count];
    if (!is_here) TRY(arena_alloc(m->names, sizeof(parameter), &memory));
    m->parameter_count += is_here;
    *out = m->all_parameters[m->all_parameter_count++] = memory;
    return OTT_OK;
}

typedef struct declared_parameter {
    const char *kind; /* the name after the module's name: "weight", "bias", ... */
    int rank;
    const int64_t *shape;
    parameter_split split;
    bool of_adapter, of_experts;
} declared_parameter;

/* Declares the next parameter, "<module>.<kind>". */
static ott_status declare_parameter(model *m, const model_module *e, bool is_here, declared_parameter d,
                                    parameter **out) {
    TRY(take_parameter(m, is_here, out));
    parameter *p = *out;
    *p = d.of_experts ? parameter_of_experts(d.shape) : parameter_of_shape(d.rank, d.shape);
    p->adds_often = d.rank == 1 || e->layer == MODULES_OUTSIDE;
    p->is_hidden = d.rank > 1 && e->layer != MODULES_OUTSIDE;
    p->frozen = !d.of_adapter && is_frozen(m, e, d.kind);
    p->repeated = e->repeated;
    p->number = m->trained_count;
    m->trained_count += !p->frozen;
    p->shard.value = tensor_matrix(NULL, parameter_format(p, m->options.master), 0, p->columns);
    for (int i = 0; i < PARAMETER_SLOTS; i++) p->shard.slot[i].dtype = parameter_format(p, m->options.state);
    split_parameter(m, e, d.split, p);
    if (is_here && e->layer != MODULES_OUTSIDE) add_to_block(&m->blocks[e->layer], p);
    TRY(arena_printf(m->names, &p->name, "%s.%s", e->name, d.kind));
    /* FP8 optimizer state has one scale per MOMENT_GROUP columns: each rank must have complete groups. */
    const parameter_part *local = &p->local;
    if (p->frozen || p->rank == 1 || m->options.state != OTT_E4M3) return OTT_OK;
    if (local->columns == p->columns || local->columns % MOMENT_GROUP == 0) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "optimizer.state_dtype = \"fp8\" has a scale for each %d columns, but with distributed.tp = %d "
        "a rank has %lld of the %lld columns of %s: use \"bf16\", or another tp",
        MOMENT_GROUP, m->options.tensor_ranks->size, (long long)local->columns, (long long)p->columns,
        p->name);
}

/* Returns how a bias or adapter is split: `like` if the weight is split like that, else PARAMETER_FULL. */
static parameter_split split_as(parameter_split weight, parameter_split like) {
    return weight == like ? like : PARAMETER_FULL;
}

/* B and DoRA's magnitude are split if W is split by rows. A is split if W is split by columns. */
static ott_status declare_adapter(model *m, model_module *e, bool is_here) {
    const int64_t a[] = {adapters_rank(&m->options.adapter, e), e->shape[1]}, b[] = {e->shape[0], a[0]};
    const parameter_split by_rows = split_as(e->split, PARAMETER_ROWS);
    const parameter_split by_columns = split_as(e->split, PARAMETER_COLUMNS);
    if (!adapters_has(&m->options.adapter, e)) return OTT_OK;
    TRY(declare_parameter(m, e, is_here,
                          (declared_parameter){"lora_A.weight", 2, a, by_columns, .of_adapter = true},
                          &e->lora_a));
    TRY(declare_parameter(
        m, e, is_here, (declared_parameter){"lora_B.weight", 2, b, by_rows, .of_adapter = true}, &e->lora_b));
    if (!m->options.adapter.decomposed) return OTT_OK;
    return declare_parameter(m, e, is_here,
                             (declared_parameter){"lora_magnitude_vector", 1, b, by_rows, .of_adapter = true},
                             &e->lora_m);
}

static ott_status declare_parameters(model *m, model_module *e, bool is_here) {
    e->saved = adapters_is_saved(&m->options.adapter, e);
    if (e->tied)
        e->weight = m->all_modules.items[0].weight; /* the embedding's weight */
    else
        TRY(declare_parameter(
            m, e, is_here,
            (declared_parameter){"weight", e->rank, e->shape, e->split, .of_experts = e->of_experts},
            &e->weight));
    if (e->has_bias)
        TRY(declare_parameter(m, e, is_here,
                              (declared_parameter){modules_bias_name(e), 1, e->shape,
                                                   .split = split_as(e->split, PARAMETER_ROWS)},
                              &e->bias));
    return declare_adapter(m, e, is_here);
}

static bool is_of_latent(module_role role) {
    return role == ROLE_Q_A_NORM || role == ROLE_KV_A_NORM;
}

/* transformers uses a fixed epsilon for the norms of latents. */
static float epsilon_of(const model *m, module_role role) {
    return is_of_latent(role) ? 1e-6f : m->options.norm_epsilon;
}

/* Returns the ranks that apply this norm to other rows or other heads; they sum the gradients of its weight.
   NULL if each rank computes the full gradients of its weights. */
static group *ranks_of_norm(const model *m, module_role role) {
    bool is_of_heads = role == ROLE_Q_NORM || role == ROLE_K_NORM;
    if (is_of_latent(role) || modules_norms_apart(&m->options, role)) return NULL;
    bool differs = is_of_heads ? !m->options.family->qk_norm_all_heads : m->options.sequence_parallel;
    return differs ? m->options.tensor_ranks : NULL;
}

/* Initializes the module's layer in its block or in the model. */
static ott_status bind_module(model *m, model_module *e) {
    const model_options *o = &m->options;
    char *owner = e->layer == MODULES_OUTSIDE ? (char *)m : (char *)&m->blocks[e->layer];
    void *layer = owner + modules_offset(o, e->layer, e->role);
    switch (e->kind) {
    case MODULE_EMBEDDING:
        e->embedding = layer;
        *e->embedding = (embedding){e->name, e->weight, o->has_padding && e->role == ROLE_EMBEDDING,
                                    o->padding, model_tensor_ranks(m)};
        break;
    case MODULE_NORM:
        e->norm = layer;
        *e->norm = (norm){.name = e->name,
                          .weight = e->weight,
                          .epsilon = epsilon_of(m, e->role),
                          .one_plus = modules_norm(o, e->role) == FAMILY_NORM_RMS_ONE_PLUS,
                          .centered = modules_norm(o, e->role) >= FAMILY_NORM_LAYER,
                          .bias = e->bias,
                          .part = modules_norms_apart(o, e->role) ? o->head_dim : 0,
                          .ranks = ranks_of_norm(m, e->role)};
        break;
    case MODULE_LINEAR:
        e->linear = layer;
        *e->linear = (linear){.name = e->name,
                              .in = e->weight->local.columns,
                              .out = e->weight->local.rows,
                              .ranks = e->split == PARAMETER_FULL ? (tensor_ranks){0} : model_tensor_ranks(m),
                              .row_ranks = o->context_ranks,
                              .split = e->split,
                              .weight = e->weight,
                              .bias = e->balances ? NULL : e->bias};
        if (e->lora_a) TRY(adapters_make(m->names, o, e, e->linear, &m->adapter_tables, &e->linear->lora));
        if (e->balances) m->blocks[e->layer].moe.bias = e->bias;
        break;
    }
    return OTT_OK;
}

static void prepare_blocks(model *m) {
    const model_options *o = &m->options;
    for (int64_t i = 0; i < o->layers; i++) {
        block *b = &m->blocks[i];
        if (!pipeline_has_layer(o->stage, o->layers, i)) continue;
        b->mixer = modules_mixer(o, i);
        b->ffn = modules_ffn(o, i);
        b->multiplier = o->residual_multiplier;
        b->parallel_residual = o->family->norms == FAMILY_NORMS_SHARED;
        b->mixer->prepare(m, i, block_mixer(b));
        b->ffn->prepare(m, block_ffn(b));
    }
}

static ott_status declare_all(model *m) {
    model_module *next = m->modules.items, *end = next + m->modules.count;
    prepare_blocks(m);
    for (int i = 0; i < m->all_modules.count; i++) {
        model_module *e = &m->all_modules.items[i];
        bool is_here = next < end && next->role == e->role && next->layer == e->layer;
        TRY(declare_parameters(m, is_here ? next : e, is_here));
        if (!is_here) continue;
        TRY(bind_module(m, next));
        *e = *next++;
    }
    for (int64_t i = 0; i < m->options.layers; i++)
        if (m->blocks[i].parallel_residual) m->blocks[i].mlp_norm = m->blocks[i].attention_norm;
    return OTT_OK;
}

/* A pattern of train.freeze that matches nothing is an error. */
static ott_status check_freeze(const model *m) {
    const str_list *freeze = m->options.freeze;
    for (int64_t i = 0; freeze && i < freeze->count; i++)
        if (!m->freeze_matched[i]) return names_fail_freeze(&m->all_modules, freeze->items[i]);
    return OTT_OK;
}

static ott_status make_lists(model *m) {
    model_options all = m->options;
    TRY(modules_make(m->names, &m->options, &m->modules));
    m->all_modules = m->modules;
    all.stage = NULL;
    return m->options.stage ? modules_make(m->names, &all, &m->all_modules) : OTT_OK;
}

/* Checks that tensor parallelism can split layers evenly. */
static ott_status check_tensor_ranks(const model_options *o) {
    const struct {
        const char *key;
        int64_t length;
        const char *or_else;
    } axes[] = {{"model.n_heads", o->heads, ""},
                {"model.n_kv_heads", o->kv_heads, ", or use distributed.cp instead"},
                {"model.ffn_hidden_dim", o->hidden, ", or round model.ffn_hidden_dim up"},
                {"model.vocab_size", o->vocab, ", or round model.vocab_size up"}};
    if (!o->tensor_ranks) return OTT_OK;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].length % o->tensor_ranks->size != 0)
            return status_fail(OTT_ERR_CONFIG,
                               "%s (%lld) must be divisible by distributed.tp (%d): "
                               "set distributed.tp to a divisor%s",
                               axes[i].key, (long long)axes[i].length, o->tensor_ranks->size,
                               axes[i].or_else);
    return OTT_OK;
}

/* Checks that context parallelism can split the query heads evenly. */
static ott_status check_context_ranks(const model_options *o) {
    int tp = o->tensor_ranks ? o->tensor_ranks->size : 1, cp = o->context_ranks ? o->context_ranks->size : 1;
    if (cp == 1 || o->heads / tp % cp == 0) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "model.n_heads (%lld) must be divisible by distributed.tp x distributed.cp (%d x %d): "
                       "context parallelism splits "
                       "the query heads; set distributed.cp to a divisor of %lld",
                       (long long)o->heads, tp, cp, (long long)(o->heads / tp));
}

/* Opens the constants that DoRA adapters read (nn/linear/dora.h), for the largest such layer. */
static ott_status open_adapter_tables(model *m) {
    int64_t outputs = 0, inputs = 0;
    for (int i = 0; i < m->modules.count; i++) {
        const model_module *e = &m->modules.items[i];
        if (!e->lora_m) continue;
        if (e->shape[0] > outputs) outputs = e->shape[0];
        if (e->shape[1] > inputs) inputs = e->shape[1];
    }
    return outputs > 0 ? dora_tables_open(m->device, outputs, inputs, &m->adapter_tables) : OTT_OK;
}

static ott_status check_positions(const model_options *o, int64_t positions) {
    if (positions <= o->max_positions) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "sequences of %lld tokens are too long: the %s model has learned %lld positions (model.max_seq_len)",
        (long long)positions, o->family->name, (long long)o->max_positions);
}

/* Clears the lists that are borrowed from the configuration. Nothing reads them after model_open. */
static void clear_borrowed_lists(model_options *o) {
    adapter_options *a = &o->adapter;
    o->freeze = NULL;
    o->frozen_convert = NULL;
    a->targets = a->excluded = a->saved = a->ranks = a->alphas = a->layers = a->layer_lists = NULL;
}

static ott_status build_model(model *m, model_use use, int64_t positions) {
    const model_options *o = &m->options;
    TRY(check_tensor_ranks(o));
    TRY(check_context_ranks(o));
    TRY(arena_open(m->device->account, MEM_OTHER, &m->names));
    TRY(make_lists(m));
    TRY(adapters_check(o, &m->all_modules));
    int64_t each = o->adapter.rank > 0 ? 5 : 2; /* weight and bias; A, B and magnitude of an adapter */
    int64_t most = each * m->modules.count, all = each * m->all_modules.count;
    TRY(arena_alloc(m->names, most * (int64_t)sizeof(parameter), &m->parameters));
    TRY(arena_alloc(m->names, all * (int64_t)sizeof *m->all_parameters, &m->all_parameters));
    TRY(arena_alloc(m->names, o->layers * (int64_t)sizeof *m->blocks, &m->blocks));
    if (o->freeze) {
        TRY(arena_alloc(m->names, o->freeze->count * (int64_t)sizeof *m->freeze_matched, &m->freeze_matched));
    }
    TRY(declare_all(m));
    TRY(check_freeze(m));
    TRY(storage_keep_frozen(m));
    TRY(storage_open(m, use));
    clear_borrowed_lists(&m->options);
    TRY(open_adapter_tables(m));
    if (use == MODEL_TRAINING) TRY(balance_open(m));
    if (o->family->learned_positions) return check_positions(o, positions);
    TRY(rope_build(&m->rope, m->device, &o->rope, model_rope_width(o), positions));
    if (o->local_theta == 0) return OTT_OK;
    const rope_options local = {.theta = o->local_theta,
                                .partial_rotary_factor = o->rope.partial_rotary_factor,
                                .interleaved = o->rope.interleaved};
    return rope_build(&m->local_rope, m->device, &local, o->head_dim, positions);
}

ott_status model_open(device *d, const model_options *o, model_use use, int64_t positions, model **out) {
    model *m;
    TRY(mem_alloc(d->account, MEM_OTHER, sizeof(model), "model", &m));
    m->options = *o;
    if (use == MODEL_INFERENCE) {
        if (o->frozen == o->master) m->options.freeze = NULL;
        m->options.optimizer = NULL;
        m->options.offload = OFFLOAD_NONE;
        m->options.adapter.dropout = 0;
    }
    if (o->tensor_ranks && o->tensor_ranks->size == 1) m->options.tensor_ranks = NULL;
    if (o->context_ranks && o->context_ranks->size == 1) m->options.context_ranks = NULL;
    m->device = d;
    m->loss.chunk = INT64_MAX;
    m->loss.multiplier = o->logit_multiplier;
    m->loss.softcap = o->logit_softcap;
    m->store.ranks = o->shard_ranks;
    m->experts.ranks = o->expert_shard_ranks;
    ott_status status = build_model(m, use, positions);
    if (status != OTT_OK) return model_close(m), status;
    return *out = m, OTT_OK;
}

void model_close(model *m) {
    if (!m) return;
    device *d = m->device;
    int at = 0;
    for (linear *l; (l = model_next_linear(m, &at));) weight_release(&l->source, d);
    loss_release(&m->loss, d);
    store_close(&m->store, d);
    delayed_store_release(&m->delayed, d);
    balance_close(m);
    rope_release(&m->rope, d);
    rope_release(&m->local_rope, d);
    device_arena_release(d, &m->packed_weights);
    device_release(d, m->values);
    device_release(d, m->frozen_scales);
    device_release(d, m->adapter_tables.block);
    device_release(d, m->masters);
    device_release(d, m->grads);
    for (int i = 0; i < PARAMETER_SLOTS; i++) device_release(d, m->slot[i]);
    arena_close(m->names);
    mem_free(d->account, m);
}

/* ---- facts and visits ---- */

int64_t model_parameter_count(const model *m) {
    int64_t count = 0;
    for (int i = 0; i < m->all_parameter_count; i++) count += parameter_count(m->all_parameters[i]);
    return count;
}

int64_t model_shard_count(const model *m) {
    int64_t count = 0;
    for (int i = 0; i < m->parameter_count; i++) count += tensor_count(m->parameters[i].shard.value);
    return count;
}

int64_t model_frozen_count(const model *m) {
    int64_t count = 0;
    for (int i = 0; i < m->all_parameter_count; i++)
        if (m->all_parameters[i]->frozen) count += parameter_count(m->all_parameters[i]);
    return count;
}

int64_t model_matmul_weights(const model *m) {
    int64_t count = 0;
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        if (e->kind != MODULE_LINEAR) continue;
        int64_t used = e->of_experts ? m->options.moe.choices * e->shape[1] : e->shape[0];
        count += used * e->shape[e->rank - 1];
    }
    return count;
}

double model_mixer_flops(const model_options *o, int64_t seq_len) {
    double sum = 0;
    for (int64_t i = 0; i < o->layers; i++) sum += modules_mixer(o, i)->flops(o, seq_len);
    return sum;
}

double model_flops_per_token(const model *m, int64_t seq_len) {
    return 6.0 * (double)model_matmul_weights(m) + model_mixer_flops(&m->options, seq_len);
}

linear *model_next_linear(const model *m, int *at) {
    while (*at < m->modules.count) {
        const model_module *e = &m->modules.items[(*at)++];
        if (e->kind == MODULE_LINEAR && e->linear) return e->linear;
    }
    return NULL;
}

ott_status model_connect(model *m) {
    for (int64_t i = 0; i < m->options.layers; i++)
        if (m->blocks[i].ffn) TRY(block_connect(&m->blocks[i]));
    m->final_specs = (activation_specs){0};
    return pipeline_is_last(m->options.stage) ? loss_connect(&m->loss, &m->final_specs) : OTT_OK;
}

void model_weights_changed(model *m) {
    int at = 0;
    for (linear *l; (l = model_next_linear(m, &at));) weight_changed(&l->source);
}

void model_weights_made(model *m, int64_t step) {
    int at = 0;
    for (linear *l; (l = model_next_linear(m, &at));) weight_made(&l->source, step);
}

void model_fuse_quantize(model *m) {
    const optimizer_rule *rule = m->options.optimizer;
    int at = 0;
    if (!rule || !rule->can_quantize) return;
    for (linear *l; (l = model_next_linear(m, &at));)
        if (rule->can_quantize(l->weight)) weight_fuse(&l->source);
}

void model_mark_quantized(model *m, int64_t step) {
    int at = 0;
    for (linear *l; (l = model_next_linear(m, &at));) weight_updated(&l->source, step);
}

ott_status model_prepare_replay(exec *cx, model *m) {
    int at = 0;
    for (linear *l; (l = model_next_linear(m, &at));) TRY(weight_prepare_replay(cx, &l->source));
    return OTT_OK;
}

ott_status model_update_scales(exec *cx, model *m, group *g) {
    if (!m->delayed.block) return OTT_OK;
    group *parts[] = {m->options.tensor_ranks, m->options.context_ranks};
    /* tensor- and context-parallel ranks have shards of the same tensors: they always share amaxes */
    for (int i = 0; i < 2; i++)
        if (parts[i]) TRY(group_all_reduce(parts[i], cx, &m->delayed.seen, REDUCE_MAX));
    TRY(delayed_reduce(cx, &m->delayed, g));
    delayed_updates u = {.cx = cx};
    int at = 0;
    for (linear *l; (l = model_next_linear(m, &at));)
        for (int k = 0; k < TENSOR_COUNT; k++) TRY(delayed_updates_add(&u, &l->delayed[k]));
    return delayed_updates_flush(&u);
}
