/* parallel/hf_model: configuration and weights of a Hugging Face folder. */
#include "parallel/hf_model.h"
#include "base/arena.h"
#include "base/file.h"
#include "io/hf_config.h"
#include "io/hf_folder.h"
#include "io/shards.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER_FLOATS = 1 << 16 };

/* ---- configuration ---- */

static ott_status set_text(config *cfg, const char *key, const char *value) {
    return config_was_set(cfg, key) ? OTT_OK : config_set(cfg, key, value);
}

static ott_status set_int(config *cfg, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return set_text(cfg, key, text);
}

static ott_status set_real(config *cfg, const char *key, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return set_text(cfg, key, text);
}

static ott_status set_bool(config *cfg, const char *key, bool value) {
    return set_text(cfg, key, value ? "true" : "false");
}

static ott_status set_rope(config *cfg, const hf_config *h) {
    TRY(set_real(cfg, "model.rope_theta", h->rope_theta));
    if (h->rope == HF_ROPE_PLAIN) return set_text(cfg, "model.rope_scaling", "none");
    TRY(set_text(cfg, "model.rope_scaling", "llama3"));
    TRY(set_real(cfg, "model.rope_factor", h->rope_factor));
    TRY(set_real(cfg, "model.rope_low_freq_factor", h->rope_low_freq_factor));
    TRY(set_real(cfg, "model.rope_high_freq_factor", h->rope_high_freq_factor));
    return set_int(cfg, "model.rope_original_max_position", h->rope_original_max_position);
}

static ott_status set_shape(config *cfg, const hf_config *h) {
    TRY(set_text(cfg, "model.family", h->family->model_type));
    TRY(set_int(cfg, "model.dim", h->hidden_size));
    TRY(set_int(cfg, "model.n_layers", h->layers));
    TRY(set_int(cfg, "model.n_heads", h->heads));
    TRY(set_int(cfg, "model.n_kv_heads", h->kv_heads));
    TRY(set_int(cfg, "model.head_dim", h->head_dim));
    TRY(set_int(cfg, "model.ffn_hidden_dim", h->intermediate_size));
    TRY(set_int(cfg, "model.vocab_size", h->vocab_size));
    TRY(set_int(cfg, "model.max_seq_len", h->max_position_embeddings));
    TRY(set_int(cfg, "model.sliding_window", h->sliding_window));
    TRY(set_real(cfg, "model.norm_eps", h->rms_norm_eps));
    return set_bool(cfg, "model.tie_embeddings", h->tie_word_embeddings);
}

/* q, k, v have biases by the family; o would need one by the key. */
static ott_status check_bias(const char *folder, const hf_config *h) {
    if (!h->attention_bias) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s/%s: attention_bias is true: biases on the output projection of attention are not built",
                       folder, HF_CONFIG_NAME);
}

ott_status hf_model_configure(mem *account, config *cfg) {
    hf_config h;
    const char *folder = cfg->model.hf_path;
    if (!*folder) return OTT_OK;
    TRY(hf_config_read(account, folder, &h, NULL));
    TRY(check_bias(folder, &h));
    TRY(set_shape(cfg, &h));
    return set_rope(cfg, &h);
}

/* ---- where a parameter's rows lie in a file ---- */

/* Rows [row, row + p->rows) of the tensor `name`. */
typedef struct location {
    char name[160];
    int64_t row, rows; /* of the whole tensor */
} location;

/* Modules that a fused family stores in one tensor, in this order. */
static const struct fused {
    const char *whole;
    const char *part[3];
} fused_modules[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj", NULL}},
};
enum { FUSED = sizeof fused_modules / sizeof *fused_modules };

static int64_t part_rows(const model_options *o, const char *part) {
    if (strcmp(part, "q_proj") == 0) return o->heads * o->head_dim;
    return part[0] == 'k' || part[0] == 'v' ? o->kv_heads * o->head_dim : o->hidden;
}

static bool place_in(const struct fused *f, const model *m, const parameter *p, location *out) {
    int64_t row = 0, rows = 0;
    bool found = false;
    for (int i = 0; i < 3 && f->part[i]; i++) {
        char tail[40];
        snprintf(tail, sizeof tail, ".%s.weight", f->part[i]);
        if (str_ends_with(p->name, tail)) {
            int stem = (int)(strlen(p->name) - strlen(tail));
            snprintf(out->name, sizeof out->name, "%.*s.%s.weight", stem, p->name, f->whole);
            row = rows;
            found = true;
        }
        rows += part_rows(&m->options, f->part[i]);
    }
    if (found) out->row = row, out->rows = rows;
    return found;
}

static location location_of(const model *m, const parameter *p) {
    location l = {.row = 0, .rows = p->rows};
    for (int i = 0; i < FUSED && m->options.family->fused; i++)
        if (place_in(&fused_modules[i], m, p, &l)) return l;
    snprintf(l.name, sizeof l.name, "%s", p->name);
    return l;
}

/* ---- loading ---- */

typedef struct arrival {
    model *m;
    const parameter *p;
    int64_t first; /* element of the file's tensor that is the parameter's first */
} arrival;

static ott_status receive(void *user, int64_t first, int64_t count, const float *values) {
    arrival *a = user;
    float *to = (float *)a->p->value.data + (first - a->first);
    return device_copy_in(a->m->device, to, values, count * (int64_t)sizeof *values);
}

static ott_status load_parameter(model *m, shards *s, const parameter *p, float *buffer) {
    location l = location_of(m, p);
    const shard_tensor *t;
    const int64_t shape[2] = {p->rank == 2 ? l.rows : p->columns, p->columns};
    TRY(shards_expect(s, l.name, p->rank, shape, &t));
    arrival a = {.m = m, .p = p, .first = l.row * p->columns};
    return shards_stream(s, t, a.first, parameter_count(p), buffer, BUFFER_FLOATS, receive, &a);
}

/* A tied head is often stored all the same; rotary frequencies were, by old versions. */
static bool may_be_unread(const model *m, const char *name) {
    return (m->options.tied && strcmp(name, "lm_head.weight") == 0) ||
           str_ends_with(name, ".rotary_emb.inv_freq");
}

static bool is_read(const model *m, const char *name) {
    for (int i = 0; i < m->parameter_count; i++) {
        location l = location_of(m, &m->parameters[i]);
        if (strcmp(l.name, name) == 0) return true;
    }
    return may_be_unread(m, name);
}

static ott_status check_all_read(const model *m, const shards *s) {
    for (int64_t i = 0; i < shards_count(s); i++) {
        const shard_tensor *t = shards_at(s, i);
        if (!is_read(m, t->entry->name))
            return status_fail(OTT_ERR_UNSUPPORTED, "%s: the tensor %s belongs to no part of this model",
                               shards_path(s), t->entry->name);
    }
    return OTT_OK;
}

static ott_status load_all(model *m, shards *s, float *buffer) {
    TRY(check_all_read(m, s));
    for (int i = 0; i < m->parameter_count; i++) TRY(load_parameter(m, s, &m->parameters[i], buffer));
    return OTT_OK;
}

ott_status hf_model_load(model *m, const char *folder) {
    mem *account = m->device->account;
    shards *s = NULL;
    void *buffer = NULL;
    ott_status status;
    TRY_OUT(shards_open(account, folder, &s));
    TRY_OUT(mem_take_array(account, MEM_OTHER, BUFFER_FLOATS, sizeof(float), "weights on their way", &buffer));
    TRY_OUT(load_all(m, s, buffer));
    model_weights_changed(m);
out:
    mem_give(account, buffer);
    shards_close(s);
    return status;
}

/* ---- saving ---- */

/* The tensors of the folder, in the order of the parameters: a fused one where its first part is. */
typedef struct departure {
    const model *m;
    arena *memory;
    safetensors_tensor *declared;
    int *first; /* [count] the parameter a tensor begins with */
    int64_t count;
    float *buffer;
} departure;

static ott_status declare(departure *d, int i, ott_dtype format) {
    const parameter *p = &d->m->parameters[i];
    location l = location_of(d->m, p);
    if (l.row > 0) return OTT_OK; /* a later part of one that is declared */
    safetensors_tensor *t = &d->declared[d->count];
    TRY(arena_strdup(d->memory, l.name, &t->name));
    t->dtype = format;
    t->rank = p->rank;
    t->shape[0] = p->rank == 2 ? l.rows : p->columns;
    t->shape[1] = p->columns;
    d->first[d->count++] = i;
    return OTT_OK;
}

static ott_status declare_all(departure *d, const model *m, ott_dtype format) {
    mem *account = m->device->account;
    void *memory;
    *d = (departure){.m = m};
    TRY(arena_open(account, MEM_OTHER, &d->memory));
    TRY(arena_take(d->memory, m->parameter_count * (int64_t)sizeof *d->declared, &memory));
    d->declared = memory;
    TRY(arena_take(d->memory, m->parameter_count * (int64_t)sizeof *d->first, &memory));
    d->first = memory;
    TRY(mem_take_array(account, MEM_OTHER, BUFFER_FLOATS, sizeof(float), "weights on their way", &memory));
    d->buffer = memory;
    for (int i = 0; i < m->parameter_count; i++) TRY(declare(d, i, format));
    return OTT_OK;
}

static ott_status append_parameter(const departure *d, shards_writer *w, const parameter *p) {
    int64_t count = parameter_count(p);
    for (int64_t at = 0, piece; at < count; at += piece) {
        piece = count - at < BUFFER_FLOATS ? count - at : BUFFER_FLOATS;
        const float *from = (const float *)p->value.data + at;
        TRY(device_copy_out(d->m->device, d->buffer, from, piece * (int64_t)sizeof(float)));
        TRY(shards_writer_append_floats(w, d->buffer, piece));
    }
    return OTT_OK;
}

/* The parts of tensor `index` one after the other: parameters whose tensor has its name. */
static ott_status append_tensor(const departure *d, shards_writer *w, int64_t index) {
    for (int i = d->first[index]; i < d->m->parameter_count; i++) {
        location l = location_of(d->m, &d->m->parameters[i]);
        if (strcmp(l.name, d->declared[index].name) == 0)
            TRY(append_parameter(d, w, &d->m->parameters[i]));
    }
    return OTT_OK;
}

static ott_status write_weights(const departure *d, const char *folder) {
    shards_writer *w;
    TRY(shards_writer_open(d->m->device->account, folder, d->declared, d->count, 0, NULL, 0, &w));
    for (int64_t next; (next = shards_writer_next(w)) >= 0;) {
        ott_status status = append_tensor(d, w, next);
        if (status == OTT_OK) continue;
        shards_writer_abandon(w);
        return status;
    }
    return shards_writer_commit(w);
}

/* What the model is, as config.json says it; what it does not know stays as `c` has it. */
static void describe(const model *m, ott_dtype format, hf_config *c) {
    const model_options *o = &m->options;
    c->family = hf_config_family(o->family->name);
    c->hidden_size = o->dim;
    c->intermediate_size = o->hidden;
    c->layers = o->layers;
    c->heads = o->heads;
    c->kv_heads = o->kv_heads;
    c->head_dim = o->head_dim;
    c->vocab_size = o->vocab;
    c->max_position_embeddings = o->max_positions;
    c->rms_norm_eps = (double)o->norm_epsilon;
    c->rope_theta = o->rope.theta;
    c->rope = o->rope.kind == ROPE_LLAMA3 ? HF_ROPE_LLAMA3 : HF_ROPE_PLAIN;
    if (c->rope == HF_ROPE_LLAMA3) {
        c->rope_factor = o->rope.factor;
        c->rope_low_freq_factor = o->rope.low_frequency_factor;
        c->rope_high_freq_factor = o->rope.high_frequency_factor;
        c->rope_original_max_position = o->rope.original_max_position;
    }
    c->sliding_window = o->window;
    c->tie_word_embeddings = o->tied;
    c->dtype = format;
}

static ott_status write_config(const model *m, const char *original, const char *folder, ott_dtype format) {
    mem *account = m->device->account;
    hf_config c = {.bos = -1, .pad = -1};
    char *text = NULL;
    str path = {.account = account};
    ott_status status = OTT_OK;
    if (original) TRY_OUT(hf_config_read(account, original, &c, &text));
    /* an epsilon that came from the file is written as it stands there, not as fp32 has it */
    double epsilon = c.rms_norm_eps;
    describe(m, format, &c);
    if ((float)epsilon == m->options.norm_epsilon) c.rms_norm_eps = epsilon;
    str_printf(&path, "%s/%s", folder, HF_CONFIG_NAME);
    TRY_OUT(str_finish(&path));
    TRY_OUT(hf_config_write(account, &c, text, "", path.text));
out:
    str_free(&path);
    mem_give(account, text);
    return status;
}

ott_status hf_model_save(const model *m, const char *original, const char *folder, ott_dtype d) {
    mem *account = m->device->account;
    departure leaving = {0};
    ott_status status = OTT_OK;
    TRY_OUT(file_make_folder(folder));
    TRY_OUT(declare_all(&leaving, m, d));
    TRY_OUT(write_config(m, original, folder, d));
    if (original) TRY_OUT(hf_folder_copy_others(account, NULL, original, folder, NULL));
    TRY_OUT(write_weights(&leaving, folder));
out:
    mem_give(account, leaving.buffer);
    if (leaving.memory) arena_close(leaving.memory);
    return status;
}
