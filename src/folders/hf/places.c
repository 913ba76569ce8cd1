/* folders/hf/places: maps parameters to the tensors of a folder. */
#include "folders/hf/places.h"
#include "folders/gguf_names.h"
#include "folders/hf/merge.h"
#include "folders/tensors.h"
#include <string.h>

/* A parameter of a module, or one expert's matrix in it. kind: "weight" or the bias's name. */
typedef struct member {
    const model_module *module;
    const parameter *parameter;
    const char *kind;
    int64_t matrix;
} member;

static ott_status name_place(const hf_places *places, const member *owner, module_role role,
                             const char **out) {
    char name[MODULES_NAME_BYTES];
    int layer = owner->module->layer;
    if (places->arch) {
        gguf_tensor_name(places->arch, owner->module, role, owner->parameter == owner->module->bias, name);
        return arena_strdup(places->memory, name, out);
    }
    if (owner->parameter->of_experts && !places->are_packed)
        modules_matrix_name(places->family, role, NAMING_HUGGING_FACE, layer, owner->matrix, name);
    else
        modules_name(places->family, role, NAMING_HUGGING_FACE, layer, name);
    return arena_printf(places->memory, out, "%s.%s", name, owner->kind);
}

static parameter_part owned_part(const parameter *p) {
    parameter_part part = parameter_shard_part(p);
    if (tensor_count(p->shard.value) == 0) return (parameter_part){0};
    if (p->rank > 1) return part;
    part.row = part.column;
    part.rows = part.columns;
    part.column = 0;
    part.columns = 1;
    return part;
}

/* Adds an hf_place for rows of a parameter, or of one expert's matrix if it has experts. */
static ott_status add_place(hf_places *places, const member *owner, const module_part *part) {
    const parameter *p = owner->parameter;
    module_part fused;
    int64_t rows;
    hf_place *at = &places->items[places->count++];
    *at = (hf_place){
        .module = owner->module,
        .parameter = p,
        .owned = owned_part(p),
        .first = owner->matrix * (p->rows / p->experts) + part->first,
        .count = part->count,
        .columns = p->rank > 1 ? p->columns : 1,
        .tensor_rows = part->count,
        .vector_columns =
            modules_norms_apart(&places->m->options, part->role) ? places->m->options.head_dim : 0,
        .transposed = !places->arch && places->family->transposed && owner->module->kind == MODULE_LINEAR &&
                      owner->module->layer != MODULES_OUTSIDE && p->rank == 2};
    if (places->arch) {
        at->head_rows = gguf_head_rows(places->arch, &places->m->options, part->role);
        at->has_one = gguf_has_one(&places->m->options, owner->module);
    }
    TRY(name_place(places, owner, part->role, &at->name));
    at->fused = at->name;
    if (modules_find_fused(&places->m->options, part->role, &fused, &rows)) {
        TRY(name_place(places, owner, fused.role, &at->fused));
        const gguf_arch *a = places->arch;
        if (fused.role == ROLE_QKV ? (a ? a->fused_qkv : places->family->fused_qkv)
                                   : (a ? a->fused_gate_up : places->family->fused_gate_up)) {
            at->name = at->fused;
            at->tensor_row = fused.first;
            at->tensor_rows = rows;
        }
    }
    if (p->of_experts && places->are_packed) { /* the tensor has the matrices of all experts */
        at->experts = p->experts;
        at->tensor_row += owner->matrix * at->tensor_rows;
        at->tensor_rows *= at->experts;
    }
    return OTT_OK;
}

static ott_status add_parameter(hf_places *places, member owner) {
    module_part part[MODULES_PARTS];
    int count = modules_parts(&places->m->options, owner.module, part);
    for (owner.matrix = 0; owner.matrix < owner.parameter->experts; owner.matrix++)
        for (int i = 0; i < count; i++) TRY(add_place(places, &owner, &part[i]));
    return OTT_OK;
}

static ott_status add_all(hf_places *out) {
    const model *m = out->m;
    int64_t most = 0;
    for (int i = 0; i < m->all_parameter_count; i++) most += MODULES_PARTS * m->all_parameters[i]->experts;
    TRY(arena_open(m->device->account, MEM_OTHER, &out->memory));
    TRY(arena_alloc(out->memory, most * (int64_t)sizeof *out->items, &out->items));
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        if (!e->tied) TRY(add_parameter(out, (member){e, e->weight, "weight", 0}));
        if (e->bias) TRY(add_parameter(out, (member){e, e->bias, modules_bias_name(e), 0}));
    }
    return OTT_OK;
}

ott_status hf_places_open(const model *m, const family *f, bool packed, hf_places *out) {
    *out = (hf_places){.m = m, .family = f, .are_packed = packed};
    return add_all(out);
}

ott_status hf_places_open_gguf(const model *m, const gguf_arch *arch, hf_places *out) {
    *out = (hf_places){.m = m, .family = &family_table[arch->family], .are_packed = true, .arch = arch};
    return add_all(out);
}

void hf_places_drop_root(hf_places *p) {
    for (int i = 0; i < p->count; i++) {
        const char *point = strchr(p->items[i].name, '.');
        if (p->items[i].module->role != ROLE_HEAD) p->items[i].name = point + 1;
    }
}

void hf_places_close(hf_places *p) {
    arena_close(p->memory);
    *p = (hf_places){0};
}

/* ---- owned slices ---- */

ott_status hf_places_agree(hf_places *p, const checkpoint_ranks *ranks) {
    tensor_set set;
    ott_status status = ranks_agree(ranks, tensor_set_of_model(&set, p->m, false));
    if (status == OTT_OK) status = tensor_set_agree(&set, ranks);
    for (int i = 0; i < p->count && status == OTT_OK; i++)
        if (!tensor_set_find(&set, p->items[i].parameter->name)->data)
            p->items[i].owned = (parameter_part){0};
    tensor_set_close(&set);
    return status;
}

hf_slice hf_place_slice(const hf_place *p) {
    const parameter_part *owned = &p->owned;
    parameter_run run;
    for (int64_t at = 0; at < owned->rows;
         /* a run: consecutive rows, of one projection or of all projections */
         at += run.count) {
        run = parameter_rows_at(owned, at, owned->rows - at);
        int64_t row = owned->row + run.first, begin = p->first > row ? p->first : row, end = row + run.count;
        if (end > p->first + p->count) end = p->first + p->count;
        if (begin < end)
            return (hf_slice){{.row = p->tensor_row + begin - p->first,
                               .column = owned->column,
                               .rows = end - begin,
                               .columns = owned->columns},
                              &p->parameter->shard.value,
                              (at + begin - row) * owned->columns};
    }
    return (hf_slice){0};
}

static ott_status stream_part(const hf_places *p, const hf_place *at, bool as_codes, const hf_merge *adapter,
                              float *buffer, hf_sink sink, void *user) {
    hf_slice own = hf_place_slice(at);
    bool multiplies = at->parameter->codes && !as_codes;
    int64_t total = own.part.rows * own.part.columns;
    parameter_run run;
    for (int64_t from = 0, count; from < total; from += count) {
        count = total - from < HF_BUFFER ? total - from : HF_BUFFER;
        ott_dtype d = own.shard->dtype;
        TRY(device_copy_out(p->m->device, buffer, hf_slice_at(&own, from), count * dtype_bytes(d)));
        cast_in_place(buffer, d, OTT_F32, count);
        for (int64_t done = 0; done < count; done += run.count) {
            run = parameter_run_at(&own.part, at->columns, from + done, count - done);
            int64_t first = run.first + hf_place_shift(at); /* in the parameter */
            if (multiplies) frozen_multiply(at->parameter, first, run.count, buffer + done);
            hf_merge_add(adapter, first, run.count, buffer + done);
            TRY(sink(user, run.first, run.count, buffer + done));
        }
    }
    return OTT_OK;
}

static ott_status stream_place(const hf_places *p, const hf_place *at, bool as_codes, float *buffer,
                               hf_sink sink, void *user) {
    hf_merge adapter = {0};
    bool merges = at->parameter == at->module->weight && hf_merge_applies(at->module);
    ott_status status = merges ? hf_merge_open(p->m->device, at->module, &adapter) : OTT_OK;
    if (status == OTT_OK) status = stream_part(p, at, as_codes, &adapter, buffer, sink, user);
    if (merges) hf_merge_close(&adapter);
    return status;
}

/* Buffer for a full transposed tensor, [columns, rows]. */
typedef struct transposing {
    float *values;
    int64_t rows, columns;
} transposing;

static ott_status transpose_values(void *user, int64_t first, int64_t count, const float *values) {
    const transposing *t = user;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = (first + i) / t->columns, column = (first + i) % t->columns;
        t->values[column * t->rows + row] = values[i];
    }
    return OTT_OK;
}

static ott_status stream_transposed(const hf_places *p, int first, float *buffer, hf_sink sink, void *user) {
    mem *account = p->m->device->account;
    transposing t = {.rows = p->items[first].tensor_rows, .columns = p->items[first].columns};
    ott_status status = OTT_OK;
    TRY(mem_alloc_array(account, MEM_OTHER, t.rows * t.columns, sizeof(float), "a transposed matrix",
                        &t.values));
    for (int i = first; i < p->count && status == OTT_OK; i++)
        if (strcmp(p->items[i].name, p->items[first].name) == 0)
            status = stream_place(p, &p->items[i], false, buffer, transpose_values, &t);
    /* Pass the elements of this rank's shards, row by row of the transposed tensor. */
    for (int64_t c = 0; c < t.columns; c++)
        for (int i = first; i < p->count && status == OTT_OK; i++) {
            parameter_part owned = hf_place_slice(&p->items[i]).part;
            int64_t at = c * t.rows + owned.row;
            if (strcmp(p->items[i].name, p->items[first].name) != 0) continue;
            if (c < owned.column || c >= owned.column + owned.columns) continue;
            status = sink(user, at, owned.rows, t.values + at);
        }
    mem_free(account, t.values);
    return status;
}

ott_status hf_places_stream(const hf_places *p, int first, bool as_codes, float *buffer, hf_sink sink,
                            void *user) {
    const char *name = p->items[first].name;
    int64_t rows = 0;
    if (p->items[first].transposed) return stream_transposed(p, first, buffer, sink, user);
    for (int i = first; i < p->count && rows < p->items[first].tensor_rows; i++) {
        if (strcmp(p->items[i].name, name) != 0) continue;
        TRY(stream_place(p, &p->items[i], as_codes, buffer, sink, user));
        rows += p->items[i].count;
    }
    return OTT_OK;
}

int hf_place_shape(const hf_place *p, int64_t shape[PARAMETER_RANKS]) {
    int rank = p->experts ? 3 : p->parameter->rank == 1 ? 1 : 2;
    if (p->experts) shape[0] = p->experts;
    if (rank > 1) shape[rank - 1] = p->columns;
    shape[p->experts ? 1 : 0] = p->tensor_rows / (p->experts ? p->experts : 1);
    if (p->transposed) shape[0] = p->columns, shape[1] = p->tensor_rows;
    if (p->vector_columns == 0) return rank;
    shape[0] = p->tensor_rows / p->vector_columns;
    shape[1] = p->vector_columns;
    return 2;
}

bool hf_is_block_matrix(const hf_place *p) {
    int64_t shape[PARAMETER_RANKS];
    return p->module->layer != MODULES_OUTSIDE && p->vector_columns == 0 && hf_place_shape(p, shape) == 2;
}
