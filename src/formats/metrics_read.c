/* formats/metrics: the reader. Reads series and health lines in one pass, with bounded memory. */
#include "formats/metrics.h"
#include "base/json/json_member.h"
#include "base/text/str.h"
#include "formats/metrics_lines.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* True if the line contains the text `mark`. Lines without `mark` need no parsing. */
static bool has_text(const metrics_lines *l, const char *mark) {
    return l->line && memmem(l->line, (size_t)l->length, mark, strlen(mark));
}

/* ---- series ---- */

static void halve_series(metrics_series *s) {
    int64_t kept = 0;
    for (int64_t i = 0; i < s->count; i += 2, kept++) {
        s->step[kept] = s->step[i];
        s->value[kept] = s->value[i];
    }
    s->count = kept;
}

/* How a series is thinned: every stride-th point is kept, and the last point of the series. */
typedef struct thinning {
    int64_t seen, stride;
    bool extra; /* the last point of the series is not a stride-th point; the next point replaces it */
} thinning;

static ott_status add_point(metrics_series *s, thinning *t, int64_t step, const json_t *value) {
    if (!json_is_number(value) && !json_is_null(value)) return OTT_OK;
    if (t->extra) s->count--;
    for (; s->count == METRICS_MOST_POINTS; t->stride *= 2) halve_series(s);
    int64_t capacity = s->capacity; /* both arrays have this capacity; the second call stores the new one */
    TRY(mem_reserve(s->account, MEM_OTHER, s->count + 1, "a metrics series", &capacity, &s->step));
    TRY(mem_reserve(s->account, MEM_OTHER, s->count + 1, "a metrics series", &s->capacity, &s->value));
    s->step[s->count] = step;
    s->value[s->count++] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    t->extra = t->seen++ % t->stride != 0;
    return OTT_OK;
}

enum { MOST_KEYS = 16 };

static ott_status read_series(metrics_lines *l, const char *const *keys, int count, metrics_series *out) {
    thinning thin[MOST_KEYS];
    json_t *object;
    int64_t step = 0;
    bool more;
    STATUS_REQUIRE(count <= MOST_KEYS);
    for (int i = 0; i < count; i++) thin[i] = (thinning){.stride = 1};
    for (;;) {
        TRY(metrics_lines_next(l, &more));
        if (!more) return OTT_OK;
        if (has_text(l, "\"module\":")) continue;
        TRY(metrics_lines_parse(l, &object, &step));
        ott_status status = OTT_OK;
        for (int i = 0; object && status == OTT_OK && i < count; i++)
            status = add_point(&out[i], &thin[i], step, json_object_get(object, keys[i]));
        json_decref(object);
        TRY(status);
    }
}

ott_status metrics_read(mem *account, const char *path, const char *const *keys, int count,
                        metrics_series *out) {
    metrics_lines l;
    for (int i = 0; i < count; i++) out[i] = (metrics_series){.account = account};
    TRY(metrics_lines_open(account, path, &l));
    ott_status status = read_series(&l, keys, count, out);
    for (int i = 0; i < count; i++) {
        out[i].damaged = l.damaged;
        out[i].first_damaged = l.first_damaged;
    }
    metrics_lines_close(&l);
    for (int i = 0; status != OTT_OK && i < count; i++) metrics_series_free(&out[i]);
    return status;
}

void metrics_series_free(metrics_series *s) {
    if (!s->account) return; /* metrics_read was never called */
    mem_free(s->account, s->step);
    mem_free(s->account, s->value);
    *s = (metrics_series){.account = s->account};
}

/* ---- reading health lines ---- */

enum { MOST_WORDS = 64 }; /* maximum number of names of tensors, GEMMs and formats */

typedef struct health_reader {
    metrics_health *h;
    metrics_lines lines;
    json_t *indices; /* maps module names to indices */
    const char *words[MOST_WORDS];
    int word_count;
    int64_t stride; /* every stride-th measurement is kept, and the last one */
} health_reader;

static ott_status fail_line(const health_reader *r, const char *what, int most) {
    return status_fail(OTT_ERR_FORMAT, "%s: line %" PRId64 ": more than %d %s", r->lines.file.path,
                       r->lines.number, most, what);
}

static ott_status copy_name(arena *names, const char *text, const char **out) {
    TRY(arena_strdup(names, text, out));
    str_replace_controls((char *)*out, ' '); /* a line break in a name would break a table */
    return OTT_OK;
}

static ott_status intern_word(health_reader *r, const char *text, const char **out) {
    int i = 0;
    while (i < r->word_count && strcmp(r->words[i], text) != 0) i++;
    if (i == MOST_WORDS) return fail_line(r, "names of tensors, GEMMs and formats", MOST_WORDS);
    if (i == r->word_count) {
        TRY(copy_name(r->h->names, text, &r->words[i]));
        r->word_count++;
    }
    return *out = r->words[i], OTT_OK;
}

static ott_status find_or_add_module(health_reader *r, const char *name, int64_t *index) {
    metrics_health *h = r->h;
    const json_t *known = json_object_get(r->indices, name);
    if (known) return *index = json_integer_value(known), OTT_OK;
    if (h->module_count == METRICS_MOST_MODULES) return fail_line(r, "modules", METRICS_MOST_MODULES);
    TRY(mem_reserve(h->account, MEM_OTHER, h->module_count + 1, "module names", &h->module_capacity,
                    &h->modules));
    TRY(copy_name(h->names, name, &h->modules[h->module_count].name));
    if (json_object_set_new(r->indices, name, json_integer(h->module_count)) != 0)
        return status_fail(OTT_ERR_MEMORY, "out of memory: the modules of %s", r->lines.file.path);
    return *index = h->module_count++, OTT_OK;
}

/* Removes the first, third, fifth, ... measurement, but never the last one. */
static void halve_measurements(metrics_health *h) {
    int64_t kept = 0;
    bool keep = true;
    for (int64_t i = 0; i < h->last; i++) {
        if (i == 0 || h->uses[i].step != h->uses[i - 1].step) keep = !keep;
        if (keep) h->uses[kept++] = h->uses[i];
    }
    memmove(h->uses + kept, h->uses + h->last, (size_t)(h->count - h->last) * sizeof *h->uses);
    h->count -= h->last - kept;
    h->last = kept;
}

/* Returns a member of a health line; NULL if it is no string or longer than METRICS_NAME_BYTES. */
static const char *short_text(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) && json_string_length(value) <= METRICS_NAME_BYTES ? json_string_value(value)
                                                                                    : NULL;
}

static ott_status add_use(health_reader *r, const json_t *object, int64_t step) {
    metrics_health *h = r->h;
    const char *module = short_text(object, "module"), *tensor = short_text(object, "tensor");
    const char *gemm = short_text(object, "gemm"), *format = short_text(object, "format");
    metrics_use use = {.step = step,
                       .amax = json_real_or_nan(object, "amax"),
                       .scale_min = json_real_or_nan(object, "scale_min"),
                       .scale_max = json_real_or_nan(object, "scale_max"),
                       .saturated = json_real_or_nan(object, "saturated"),
                       .underflowed = json_real_or_nan(object, "underflowed"),
                       .sqnr_db = json_real_or_nan(object, "sqnr_db")};
    if (!module || !tensor || !gemm || !format || !json_object_get(object, "sqnr_db")) return OTT_OK;
    TRY(find_or_add_module(r, module, &use.module));
    TRY(intern_word(r, tensor, &use.tensor));
    TRY(intern_word(r, gemm, &use.gemm));
    TRY(intern_word(r, format, &use.format));
    if (h->count == 0 || h->uses[h->last].step != step) {
        if (h->measurements % r->stride != 0) h->count = h->last;
        h->last = h->count;
        h->measurements++;
    }
    for (; h->count == METRICS_MOST_USES && h->last > 0; r->stride *= 2) halve_measurements(h);
    if (h->count == METRICS_MOST_USES) return fail_line(r, "uses of tensors at one step", METRICS_MOST_USES);
    TRY(mem_reserve(h->account, MEM_OTHER, h->count + 1, "measured uses of tensors", &h->capacity, &h->uses));
    h->modules[use.module].last_step = step;
    h->uses[h->count++] = use;
    h->complete = false;
    return OTT_OK;
}

static ott_status read_health_lines(health_reader *r) {
    json_t *object;
    int64_t step = 0;
    bool more;
    for (;;) {
        TRY(metrics_lines_next(&r->lines, &more));
        if (!more) return OTT_OK;
        r->h->complete = true;
        if (!has_text(&r->lines, "\"module\":") || !has_text(&r->lines, "\"sqnr_db\"")) continue;
        TRY(metrics_lines_parse(&r->lines, &object, &step));
        ott_status status = object ? add_use(r, object, step) : OTT_OK;
        json_decref(object);
        TRY(status);
    }
}

ott_status metrics_read_health(mem *account, const char *path, metrics_health *out) {
    ott_status status;
    *out = (metrics_health){.account = account};
    health_reader r = {.h = out, .stride = 1};
    TRY(metrics_lines_open(account, path, &r.lines));
    r.indices = json_object();
    if (!r.indices) TRY_OUT(status_fail(OTT_ERR_MEMORY, "out of memory: the modules of %s", path));
    TRY_OUT(arena_open(account, MEM_OTHER, &out->names));
    TRY_OUT(read_health_lines(&r));
    out->damaged = r.lines.damaged;
    out->first_damaged = r.lines.first_damaged;
out:
    metrics_lines_close(&r.lines);
    json_decref(r.indices);
    if (status != OTT_OK) metrics_health_free(out);
    return status;
}

void metrics_health_free(metrics_health *h) {
    if (!h->account) return; /* metrics_read_health was never called */
    mem_free(h->account, h->modules);
    mem_free(h->account, h->uses);
    arena_close(h->names);
    *h = (metrics_health){.account = h->account};
}
