/* folders/gguf_save: lists the tensors of a GGUF file, and streams their elements. */
#include "folders/gguf_save.h"
#include "folders/gguf_describe.h"
#include "folders/gguf_names.h"
#include "folders/hf/merge.h"
#include "fp8/cast.h"
#include "nn/linear/frozen.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BUFFER = 1 << 16, PARTS = 3 };

/* Rows of a parameter. A vector counts as a matrix with one column. */
typedef struct source_part {
    const model_module *module;
    const parameter *parameter; /* weight or bias of the module */
    int64_t first, rows, columns;
} source_part;

/* Source of a tensor's elements. */
typedef struct tensor_source {
    source_part part[PARTS]; /* the tensor consists of the rows of these parts */
    int parts;
    int64_t head_rows;   /* result of gguf_head_rows */
    const float *values; /* computed elements; NULL if the elements are a parameter's */
} tensor_source;

typedef struct saving {
    model *m;
    mem *account;
    const gguf_save_options *o;
    const gguf_arch *arch;
    arena *memory;
    gguf_tensor *tensors;   /* `count` tensors */
    tensor_source *sources; /* `count` sources, one for each tensor */
    int64_t count, fallback_count;
    float *buffer; /* BUFFER elements */
} saving;

/* ---- declaring ---- */

static gguf_type choose_type(saving *s, const gguf_tensor *t, module_role role) {
    bool is_norm = role == ROLE_Q_NORM || role == ROLE_K_NORM;
    if (t->rank == 1 || is_norm || role == ROLE_ROUTER || role == ROLE_POSITION_EMBEDDING) return GGUF_F32;
    if (s->o->type != GGUF_Q8_0 || t->shape[t->rank - 1] % GGUF_BLOCK == 0) return s->o->type;
    s->fallback_count++;
    return s->o->fallback_type;
}

/* Appends the rows of `part` to the fused tensor `name`. Returns false if there is no such tensor yet. */
static bool joins_earlier_tensor(const saving *s, const char *name, const source_part *part) {
    for (int64_t i = s->count - 1; i >= 0; i--) {
        tensor_source *d = &s->sources[i];
        if (strcmp(s->tensors[i].name, name) != 0) continue;
        d->part[d->parts++] = *part;
        s->tensors[i].shape[0] += part->rows;
        return true;
    }
    return false;
}

/* Adds a GGUF tensor to the list. It stores one part of parameter p: a layer's experts, or the rows of one
   projection. If GGUF fuses the part with an earlier tensor, appends its rows to that tensor. */
static void declare_part(saving *s, const model_module *e, const parameter *p, const module_part *from,
                         bool is_bias) {
    source_part part = {.module = e,
                        .parameter = p,
                        .first = from->first,
                        .rows = p->of_experts ? p->rows : from->count,
                        .columns = p->rank == 1 ? 1 : p->columns};
    gguf_tensor *t = &s->tensors[s->count];
    gguf_tensor_name(s->arch, e, from->role, is_bias, t->name);
    if (joins_earlier_tensor(s, t->name, &part)) return;
    t->rank = p->rank;
    t->shape[0] = part.rows;
    if (p->of_experts) t->shape[0] = p->experts;
    if (p->of_experts) t->shape[1] = p->rows / p->experts;
    if (p->rank > 1) t->shape[p->rank - 1] = p->columns;
    if (modules_norms_apart(&s->m->options, from->role)) {
        t->rank = 2;
        t->shape[1] = s->m->options.head_dim;
        t->shape[0] = part.rows / t->shape[1];
    }
    t->type = choose_type(s, t, from->role);
    s->sources[s->count++] = (tensor_source){
        .part = {part}, .parts = 1, .head_rows = gguf_head_rows(s->arch, &s->m->options, from->role)};
}

static void declare_gguf_parameter(saving *s, const model_module *e, const parameter *p, bool is_bias) {
    module_part part[MODULES_PARTS];
    int count = modules_parts(&s->m->options, e, part);
    for (int i = 0; i < count; i++) declare_part(s, e, p, &part[i], is_bias);
}

/* Declares a tensor of divisors for the inverse rotary frequencies, one divisor for each pair of columns. */
static ott_status declare_factors(saving *s, const char *name, const float *factor) {
    const rope_options *r = &s->m->options.rope;
    int64_t columns = rope_columns(r, s->m->options.head_dim);
    gguf_tensor *t = &s->tensors[s->count];
    float *values;
    TRY(arena_alloc(s->memory, columns / 2 * (int64_t)sizeof(float), &values));
    for (int64_t j = 0; j < columns / 2; j++)
        values[j] = factor ? factor[j]
                           : (float)(pow(r->theta, -2.0 * (double)j / (double)columns) /
                                     rope_frequency(r, columns, 0, j));
    snprintf(t->name, sizeof t->name, "%s.weight", name);
    t->rank = 1;
    t->shape[0] = columns / 2;
    t->type = GGUF_F32;
    s->sources[s->count++] = (tensor_source){.values = values};
    return OTT_OK;
}

static ott_status declare_gguf_tensors(saving *s) {
    const module_list *list = &s->m->all_modules;
    int64_t most = 2 * MODULES_PARTS * (int64_t)list->count + 2; /* weights and biases; 2 for rope factors */
    TRY(arena_open(s->account, MEM_OTHER, &s->memory));
    TRY(arena_alloc(s->memory, most * (int64_t)sizeof *s->tensors, &s->tensors));
    TRY(arena_alloc(s->memory, most * (int64_t)sizeof *s->sources, &s->sources));
    const rope_options *r = &s->m->options.rope;
    if (r->kind == ROPE_LLAMA3) TRY(declare_factors(s, "rope_freqs", NULL));
    if (r->kind == ROPE_LONGROPE) {
        TRY(declare_factors(s, "rope_factors_long", r->long_factor));
        TRY(declare_factors(s, "rope_factors_short", r->short_factor));
    }
    for (int i = 0; i < list->count; i++) {
        const model_module *e = &list->items[i];
        if (!e->tied) declare_gguf_parameter(s, e, e->weight, false);
        if (e->bias) declare_gguf_parameter(s, e, e->bias, true);
    }
    return OTT_OK;
}

/* ---- writing ---- */

/* The part of a tensor that is being written. */
typedef struct writing {
    const saving *s;
    gguf_writer *w;
    const source_part *part;
    hf_merge adapter; /* the adapter to merge; all zero if none */
} writing;

/* Reads at most BUFFER elements of the parameter as fp32. */
static ott_status read_elements(const writing *t, int64_t first, int64_t count, float *out) {
    const model *m = t->s->m;
    const parameter *p = t->part->parameter;
    const tensor *from = &p->shard.value;
    int64_t size = dtype_bytes(from->dtype);
    TRY(device_copy_out(m->device, out, (const char *)from->data + first * size, count * size));
    cast_in_place(out, from->dtype, OTT_F32, count);
    if (p->codes) frozen_multiply(p, first, count, out);
    if (gguf_has_one(&m->options, t->part->module))
        for (int64_t i = 0; i < count; i++) out[i] += 1;
    hf_merge_add(&t->adapter, first, count, out);
    return OTT_OK;
}

/* Appends rows [first, first + rows) of the part to the file. */
static ott_status append_part_rows(const writing *t, int64_t first, int64_t rows) {
    int64_t begin = (t->part->first + first) * t->part->columns, count = rows * t->part->columns;
    for (int64_t done = 0, piece; done < count; done += piece) {
        piece = count - done < BUFFER ? count - done : BUFFER;
        TRY(read_elements(t, begin + done, piece, t->s->buffer));
        TRY(gguf_writer_append(t->w, t->s->buffer, piece));
    }
    return OTT_OK;
}

/* Interleaves the halves of each head: rows r and r + half become rows 2r and 2r + 1. */
static ott_status append_reordered(const writing *t, int64_t head_rows) {
    for (int64_t row = 0; row < t->part->rows; row++) {
        int64_t within = row % head_rows;
        TRY(append_part_rows(t, row - within + within / 2 + within % 2 * (head_rows / 2), 1));
    }
    return OTT_OK;
}

static ott_status append_part(const saving *s, gguf_writer *w, const source_part *part, int64_t head_rows) {
    writing t = {.s = s, .w = w, .part = part};
    bool merges = part->parameter == part->module->weight && hf_merge_applies(part->module);
    ott_status status = merges ? hf_merge_open(s->m->device, part->module, &t.adapter) : OTT_OK;
    if (status == OTT_OK)
        status = head_rows > 0 ? append_reordered(&t, head_rows) : append_part_rows(&t, 0, part->rows);
    if (merges) hf_merge_close(&t.adapter);
    return status;
}

static ott_status append_tensors(const saving *s, gguf_writer *w) {
    for (int64_t next; (next = gguf_writer_next(w)) >= 0;) {
        const tensor_source *d = &s->sources[next];
        if (d->values) TRY(gguf_writer_append(w, d->values, s->tensors[next].shape[0]));
        for (int i = 0; i < d->parts; i++) TRY(append_part(s, w, &d->part[i], d->head_rows));
    }
    return OTT_OK;
}

static ott_status count_tensors(const saving *s, gguf_save_summary *out) {
    *out = (gguf_save_summary){
        .architecture = s->arch->name, .tensors = s->count, .fallback_count = s->fallback_count};
    for (int64_t i = 0, bytes; i < s->count; i++) {
        TRY(gguf_tensor_bytes(&s->tensors[i], &bytes));
        out->bytes += bytes;
    }
    return OTT_OK;
}

static ott_status save_file(saving *s, gguf_metadata *metadata, const char *path, gguf_save_summary *out) {
    const model_options *o = &s->m->options;
    TRY(gguf_describe_arch(o, &s->arch));
    if (!s->arch->windows && o->window > 0 && o->window < o->max_positions)
        log_warning(s->o->log,
                    "model.sliding_window = %lld: llama.cpp's architecture %s has no window, so results "
                    "differ after that many tokens",
                    (long long)o->window, s->arch->name);
    gguf_describe(o, s->arch, s->o->type, metadata);
    TRY(declare_gguf_tensors(s));
    TRY(count_tensors(s, out));
    TRY(mem_alloc_array(s->account, MEM_OTHER, BUFFER, sizeof(float), "weight buffer", &s->buffer));
    gguf_writer *w;
    TRY(gguf_writer_open(s->account, path, metadata, s->tensors, s->count, &w));
    ott_status status = append_tensors(s, w);
    if (status == OTT_OK) return gguf_writer_commit(w);
    gguf_writer_abandon(w);
    return status;
}

ott_status gguf_model_save(model *m, const gguf_save_options *o, gguf_metadata *metadata, const char *path,
                           gguf_save_summary *out) {
    saving s = {.m = m, .account = m->device->account, .o = o};
    ott_status status = save_file(&s, metadata, path, out);
    mem_free(s.account, s.buffer);
    arena_close(s.memory);
    return status;
}
