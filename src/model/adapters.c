/* model/adapters: choice of layers, option checks, creation of adapters, and norms of weight rows. */
#include "model/adapters.h"
#include "base/rng.h"
#include "base/text/str.h"
#include "fp8/cast.h"
#include "model/names.h"
#include "nn/linear/dora.h"
#include "nn/linear/frozen.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- targets ---- */

static bool matches_pattern(const model_module *m, const char *pattern) {
    return names_any(m, names_fit, pattern) || names_any(m, names_end, pattern);
}

static bool fits_some(const model_module *m, const str_list *patterns) {
    for (int64_t i = 0; patterns && i < patterns->count; i++)
        if (matches_pattern(m, patterns->items[i])) return true;
    return false;
}

static bool may_have(const model_module *m) {
    return m->kind == MODULE_LINEAR && m->layer != MODULES_OUTSIDE && !m->of_experts &&
           m->role != ROLE_ROUTER;
}

/* True if o->layers is empty or contains the module's block, or if a target is the module's full name. */
static bool is_of_layers(const adapter_options *o, const model_module *m) {
    bool found = !o->layers || o->layers->count == 0;
    for (int64_t i = 0; !found && i < o->layers->count; i++)
        found = strtol(o->layers->items[i], NULL, 10) == m->layer;
    for (int64_t i = 0; !found && o->targets && i < o->targets->count; i++)
        found = strcmp(o->targets->items[i], m->name) == 0;
    return found;
}

bool adapters_has(const adapter_options *o, const model_module *m) {
    bool all = o->all || !o->targets || o->targets->count == 0;
    if (o->rank == 0 || !may_have(m) || adapters_is_saved(o, m)) return false;
    return (all || fits_some(m, o->targets)) && is_of_layers(o, m) && !fits_some(m, o->excluded);
}

/* ---- rank and alpha of a layer ---- */

enum { PATTERN_BYTES = 256 };

/* Parses an entry such as "q_proj=16". Returns false if it is not PATTERN=NUMBER with a number above 0. */
static bool read_pattern_entry(const char *entry, char pattern[PATTERN_BYTES], double *number) {
    const char *equals = strrchr(entry, '=');
    size_t length = equals ? (size_t)(equals - entry) : 0;
    char *end;
    if (length == 0 || length >= PATTERN_BYTES) return false;
    snprintf(pattern, PATTERN_BYTES, "%.*s", (int)length, entry);
    *number = strtod(equals + 1, &end);
    return end != equals + 1 && *end == '\0' && *number > 0 && *number < 1e9;
}

/* Returns the number of the first entry "PATTERN=NUMBER" whose pattern matches the module, or `fallback`. */
static double number_of(const str_list *entries, const model_module *m, double fallback) {
    char pattern[PATTERN_BYTES];
    double number;
    for (int64_t i = 0; entries && i < entries->count; i++)
        if (read_pattern_entry(entries->items[i], pattern, &number) && matches_pattern(m, pattern))
            return number;
    return fallback;
}

int64_t adapters_rank(const adapter_options *o, const model_module *m) {
    return (int64_t)number_of(o->ranks, m, (double)o->rank);
}

double adapters_alpha(const adapter_options *o, const model_module *m) {
    return number_of(o->alphas, m, o->alpha);
}

float adapters_scale(const adapter_options *o, const model_module *m) {
    int64_t rank = adapters_rank(o, m);
    double alpha = adapters_alpha(o, m), by = (double)rank;
    if (rank == o->rank && alpha == o->alpha) return o->scale;
    return (float)(alpha / (o->by_root ? sqrt(by) : by));
}

/* True if the name of the module, or of a module that contains it, ends with the pattern. */
static bool ends_within(const char *name, const char *pattern) {
    char part[MODULES_NAME_BYTES];
    for (size_t n = 1;; n++) {
        if (name[n] != '.' && name[n] != '\0') continue;
        snprintf(part, sizeof part, "%.*s", (int)n, name);
        if (names_fit(part, pattern) || names_end(part, pattern)) return true;
        if (name[n] == '\0') return false;
    }
}

static bool is_saved_module(const model_module *m, const char *pattern) {
    return *pattern && (names_any(m, ends_within, pattern) || str_ends_with(m->name, pattern));
}

bool adapters_is_saved(const adapter_options *o, const model_module *m) {
    for (int64_t i = 0; o->saved && i < o->saved->count; i++)
        if (is_saved_module(m, o->saved->items[i])) return true;
    return false;
}

/* ---- checks ---- */

static ott_status check_patterns(const module_list *list, const char *key, const str_list *patterns) {
    for (int64_t i = 0; patterns && i < patterns->count; i++) {
        bool found = false;
        for (int k = 0; k < list->count; k++)
            found |= may_have(&list->items[k]) && matches_pattern(&list->items[k], patterns->items[i]);
        if (!found) return names_fail_target(list, key, patterns->items[i]);
    }
    return OTT_OK;
}

static ott_status check_entries(const module_list *list, const char *key, const str_list *entries,
                                bool integral) {
    for (int64_t i = 0; entries && i < entries->count; i++) {
        char pattern[PATTERN_BYTES];
        const char *const items[] = {pattern};
        double number;
        if (!read_pattern_entry(entries->items[i], pattern, &number) ||
            (integral && (number != floor(number) || number > 65536)))
            return status_fail(OTT_ERR_CONFIG, "%s has \"%s\": write the name of a layer, = and %s", key,
                               str_show(entries->items[i]).text,
                               integral ? "a rank from 1 to 65536, as q_proj=16"
                                        : "a number above 0, as q_proj=32");
        TRY(check_patterns(list, key, &(str_list){items, 1}));
    }
    return OTT_OK;
}

static ott_status check_layers(const model_options *m) {
    const adapter_options *o = &m->adapter;
    const char *blocks = m->family->block_prefix ? strrchr(m->family->block_prefix, '.') + 1 : "layers";
    bool found = !o->layer_lists || o->layer_lists->count == 0;
    for (int64_t i = 0; o->layers && i < o->layers->count; i++)
        if (strtol(o->layers->items[i], NULL, 10) >= m->layers)
            return status_fail(OTT_ERR_CONFIG,
                               "peft.layers_to_transform has %s: the model has blocks 0 to %lld",
                               o->layers->items[i], (long long)m->layers - 1);
    for (int64_t i = 0; !found && i < o->layer_lists->count; i++)
        found = str_ends_with(o->layer_lists->items[i], blocks);
    return found ? OTT_OK
                 : status_fail(OTT_ERR_CONFIG,
                               "peft.layers_pattern has \"%s\": the blocks of a %s model are called %s",
                               str_show(o->layer_lists->items[0]).text, m->family->name, blocks);
}

/* Returns why a folder in PEFT's format cannot hold a module that trains in full; NULL if it can. */
static const char *trouble_with_saved(const model_options *o, const model_module *m) {
    bool is_table = m->role == ROLE_EMBEDDING || m->role == ROLE_HEAD;
    if (is_table && o->tied) return "both embedding and head, which PEFT would untie";
    if (modules_is_mixture(m->role)) return "part of a mixture of experts, which PEFT's folders cannot hold";
    if (o->family->transposed && m->kind == MODULE_LINEAR && m->layer != MODULES_OUTSIDE)
        return "a matrix that is transposed in files";
    return modules_norms_apart(o, m->role)
               ? "a norm with weights for each head, which PEFT's folders cannot hold"
               : NULL;
}

static ott_status check_saved(const model_options *o, const module_list *list) {
    const str_list *saved = o->adapter.saved;
    for (int64_t i = 0; saved && i < saved->count; i++) {
        bool found = false;
        for (int k = 0; k < list->count; k++) {
            const model_module *m = &list->items[k];
            if (!is_saved_module(m, saved->items[i])) continue;
            const char *trouble = trouble_with_saved(o, m);
            found = true;
            if (trouble)
                return status_fail(OTT_ERR_UNSUPPORTED, "peft.modules_to_save has \"%s\": %s is %s",
                                   str_show(saved->items[i]).text, m->name, trouble);
        }
        if (!found)
            return status_fail(OTT_ERR_CONFIG,
                               "peft.modules_to_save has \"%s\", which names no module of a %s model",
                               str_show(saved->items[i]).text, o->family->name);
    }
    return OTT_OK;
}

ott_status adapters_check(const model_options *m, const module_list *list) {
    const adapter_options *o = &m->adapter;
    if (o->rank == 0) return OTT_OK;
    const adapter_options *a = &m->adapter;
    if (a->decomposed && a->dropout != 0 && a->drops_output)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "peft.use_dora does not work with peft.dropout_position = post: PEFT applies DoRA's "
            "dropout to the input; set peft.dropout_position = pre");
    TRY(check_patterns(list, "peft.target_modules", o->targets));
    TRY(check_patterns(list, "peft.exclude_modules", o->excluded));
    TRY(check_entries(list, "peft.rank_pattern", o->ranks, true));
    TRY(check_entries(list, "peft.alpha_pattern", o->alphas, false));
    TRY(check_layers(m));
    TRY(check_saved(m, list));
    for (int i = 0; i < list->count; i++)
        if (adapters_has(o, &list->items[i])) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "peft.exclude_modules, layers_to_transform and modules_to_save exclude every layer: "
                       "no layer has an adapter");
}

ott_status adapters_make(arena *memory, const model_options *o, const model_module *m, const linear *layer,
                         const dora_tables *tables, lora **out) {
    const adapter_options *a = &o->adapter;
    TRY(arena_alloc(memory, sizeof **out, out));
    **out = (lora){.a = m->lora_a,
                   .b = m->lora_b,
                   .magnitude = m->lora_m,
                   .tables = tables,
                   .scale = adapters_scale(a, m),
                   .dropout = a->dropout,
                   .drops_output = a->drops_output,
                   .seed = a->seed,
                   .stream = rng_stream(m->name),
                   .ranks = layer->ranks,
                   .split = layer->split,
                   .row_ranks = layer->row_ranks};
    return OTT_OK;
}

/* ---- norms ---- */

ott_status adapters_norms(exec *cx, const linear *l, float *norms) {
    plan_buffer buffer;
    tensor w;
    TRY(weight_open_values(cx, &l->source, &w, &buffer));
    TRY(dora_norms(cx, l->lora, &w, norms));
    return plan_close(cx->plan, &buffer);
}

enum { STRIP = 1 << 16 /* number of elements converted to fp32 in one piece */ };

/* w = rows [row, row + w->rows) of this rank's FP8 shard, in fp32. values: host memory of w's size. */
static ott_status read_codes(device *d, const parameter *p, int64_t row, const tensor *w, float *values) {
    const parameter_part part = parameter_shard_part(p);
    const tensor codes = tensor_rows(p->shard.value, row, w->rows);
    int64_t first = row * w->columns, count = tensor_count(*w);
    /* The codes are in the last quarter of `values`, so decoding overwrites no code before it is read. */
    uint8_t *read = (uint8_t *)(values + count) - count;
    TRY(device_copy_out(d, read, codes.data, count));
    for (int64_t i = 0; i < count; i++) values[i] = cast_load(read, codes.dtype, i);
    for (int64_t at = 0; at < count;) {
        parameter_run run = parameter_run_at(&part, p->columns, first + at, count - at);
        frozen_multiply(p, run.first, run.count, values + at);
        at += run.count;
    }
    return device_copy_in(d, w->data, values, tensor_bytes(*w));
}

/* Writes rows [row, row + w->rows) of this rank's shard to w, in fp32. */
static ott_status read_weight_rows(exec *cx, const parameter *p, int64_t row, const tensor *w) {
    const tensor rows = tensor_rows(p->shard.value, row, w->rows);
    void *memory;
    if (!p->codes) return op_convert(cx, &(convert_args){.x = &rows, .y = w});
    TRY(mem_alloc_array(cx->device->account, MEM_OTHER, tensor_count(*w), sizeof(float), "values of codes",
                        &memory));
    ott_status status = read_codes(cx->device, p, row, w, memory);
    mem_free(cx->device->account, memory);
    return status;
}

/* norms[i] = L2 norm of row i of this rank's shard of the weight. */
static ott_status norms_of_shard(exec *cx, const linear *l, float *norms) {
    const parameter *p = l->weight;
    int64_t rows = p->shard.value.rows, columns = p->local.columns, strip = STRIP / columns;
    plan_buffer buffer;
    tensor w;
    if (strip < 1) strip = 1;
    if (strip > rows) strip = rows;
    if (rows == 0) return OTT_OK;
    TRY(exec_open(cx, "rows of a weight", OTT_F32, strip, columns, &w, &buffer));
    for (int64_t row = 0; row < rows; row += strip) {
        const tensor some = tensor_rows(w, 0, rows - row < strip ? rows - row : strip);
        TRY(read_weight_rows(cx, p, row, &some));
        TRY(dora_base_norms(cx, l->lora, &some, norms + row));
    }
    return plan_close(cx->plan, &buffer);
}

/* Adds up norms[count] over the ranks. Each rank has 0 for rows that are in other ranks' shards. */
static ott_status join_norms(exec *cx, group *ranks, int64_t count, float *norms) {
    plan_buffer buffer;
    tensor all;
    TRY(exec_open(cx, "norms of a weight", OTT_F32, 1, count, &all, &buffer));
    TRY(device_copy_in(cx->device, all.data, norms, tensor_bytes(all)));
    TRY(group_all_reduce(ranks, cx, &all, REDUCE_SUM));
    TRY(device_copy_out(cx->device, norms, all.data, tensor_bytes(all)));
    return plan_close(cx->plan, &buffer);
}

ott_status adapters_base_norms(exec *cx, const linear *l, group *ranks, float *norms) {
    memset(norms, 0, (size_t)l->out * sizeof *norms);
    TRY(norms_of_shard(cx, l, norms + l->weight->shard.first));
    return l->weight->shard.rows_per_rank ? join_norms(cx, ranks, l->out, norms) : OTT_OK;
}
