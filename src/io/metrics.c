/*
 * io/metrics: one write per line, so that a reader never sees half of one, and a crash loses at most the line
 * it hit.
 */
#define _GNU_SOURCE /* O_CLOEXEC, memmem */
#include "io/metrics.h"
#include "base/file.h"
#include "base/str.h"
#include "io/number.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT (INT64_C(2) << 30) /* bytes of a metrics file that are read */

/* ---- lines of an existing file ---- */

typedef struct line_reader {
    const char *path, *text, *end;
    const char *line; /* the current line, without its newline */
    int64_t length, number;
} line_reader;

/* Goes to the next whole line; false at the end. A last line without newline is one a crash cut off. */
static bool next_line(line_reader *r) {
    const char *begin = r->line ? r->line + r->length + 1 : r->text;
    const char *newline = begin < r->end ? memchr(begin, '\n', (size_t)(r->end - begin)) : NULL;
    if (!newline) return false;
    r->line = begin;
    r->length = newline - begin;
    r->number++;
    return true;
}

static ott_status parse_line(const line_reader *r, json_t **object, int64_t *step) {
    json_error_t error;
    *object = json_loadb(r->line, (size_t)r->length, JSON_REJECT_DUPLICATES, &error);
    json_t *number = json_object_get(*object, "step");
    if (json_is_integer(number)) {
        *step = json_integer_value(number);
        return OTT_OK;
    }
    json_decref(*object);
    return status_fail(OTT_ERR_FORMAT, "%s: line %" PRId64 " is not a JSON object with a step", r->path,
                       r->number);
}

/* The lines of steps up to last_step. */
static ott_status append_kept(line_reader *r, int64_t last_step, str *kept) {
    json_t *object;
    int64_t step = 0;
    while (next_line(r)) {
        TRY(parse_line(r, &object, &step));
        json_decref(object);
        if (step <= last_step) str_append_bytes(kept, r->line, r->length + 1);
    }
    return str_finish(kept);
}

static ott_status cut_after(mem *account, const char *path, int64_t last_step) {
    char *text;
    int64_t bytes;
    str kept = {.account = account};
    TRY(file_read(account, path, FILE_LIMIT, &text, &bytes));
    line_reader r = {.path = path, .text = text, .end = text + bytes};
    ott_status status = append_kept(&r, last_step, &kept);
    if (status == OTT_OK && kept.length < bytes) status = file_write_atomic(path, kept.text, kept.length);
    str_free(&kept);
    mem_give(account, text);
    return status;
}

/* ---- writing ---- */

struct metrics_writer {
    mem *account;
    char *path;
    int descriptor;
    int64_t bytes; /* of whole lines in the file */
    str line;      /* its memory is kept from line to line */
    bool failed;
};

static ott_status open_at_end(metrics_writer *w, bool anew) {
    w->descriptor = open(w->path, O_WRONLY | O_CREAT | O_CLOEXEC | (anew ? O_TRUNC : 0), 0666);
    off_t end = w->descriptor < 0 ? -1 : lseek(w->descriptor, 0, SEEK_END);
    if (end < 0) return status_fail(OTT_ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
    w->bytes = end;
    return OTT_OK;
}

ott_status metrics_open(mem *account, const char *path, int64_t last_step, metrics_writer **out) {
    void *memory;
    ott_status status;
    *out = NULL;
    TRY(mem_take(account, MEM_OTHER, sizeof(metrics_writer), "a metrics writer", &memory));
    metrics_writer *w = memory;
    *w = (metrics_writer){.account = account, .descriptor = -1, .line = {.account = account}};
    TRY_OUT(mem_strdup(account, path, &w->path));
    if (last_step >= 0 && file_exists(path)) TRY_OUT(cut_after(account, path, last_step));
    TRY_OUT(open_at_end(w, last_step < 0));
    *out = w;
out:
    if (status != OTT_OK) metrics_close(w);
    return status;
}

static void append_value(str *line, const metrics_value *v) {
    char number[32];
    str_append(line, ",");
    str_append_json(line, v->key, (int64_t)strlen(v->key));
    str_append(line, ":");
    switch (v->kind) {
    case METRICS_REAL: str_append(line, number_metric(v->real, number)); break;
    case METRICS_INT: str_printf(line, "%" PRId64, v->integer); break;
    case METRICS_TEXT: str_append_json(line, v->text, (int64_t)strlen(v->text)); break;
    }
}

/* Writes the whole line or takes back what was written of it. */
static ott_status put_line(metrics_writer *w) {
    int64_t done = 0;
    while (done < w->line.length) {
        ssize_t written = write(w->descriptor, w->line.text + done, (size_t)(w->line.length - done));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            int reason = errno;
            w->failed = true;
            int cut = ftruncate(w->descriptor, w->bytes);
            return status_fail(OTT_ERR_IO, "%s: cannot write: %s%s", w->path, strerror(reason),
                               cut == 0 || done == 0 ? "" : "; its last line is incomplete");
        }
        done += written;
    }
    w->bytes += done;
    return OTT_OK;
}

ott_status metrics_write(metrics_writer *w, int64_t step, const metrics_value *values, int count) {
    if (w->failed) return status_fail(OTT_ERR_IO, "%s: cannot write: an earlier write failed", w->path);
    w->line.length = 0;
    str_printf(&w->line, "{\"step\":%" PRId64, step);
    for (int i = 0; i < count; i++) append_value(&w->line, &values[i]);
    str_append(&w->line, "}\n");
    TRY(str_finish(&w->line));
    return put_line(w);
}

void metrics_close(metrics_writer *w) {
    if (!w) return;
    if (w->descriptor >= 0) close(w->descriptor);
    str_free(&w->line);
    mem_give(w->account, w->path);
    mem_give(w->account, w);
}

/* ---- reading ---- */

static ott_status reserve_point(metrics_series *s) {
    if (s->count < s->capacity) return OTT_OK;
    int64_t capacity = s->capacity ? 2 * s->capacity : 64, bytes = capacity * (int64_t)sizeof *s->step;
    void *steps = s->step, *values = s->value;
    TRY(mem_grow(s->account, MEM_OTHER, bytes, "a metrics series", &steps));
    s->step = steps;
    TRY(mem_grow(s->account, MEM_OTHER, bytes, "a metrics series", &values));
    s->value = values;
    s->capacity = capacity;
    return OTT_OK;
}

static ott_status add_point(metrics_series *s, int64_t step, const json_t *value) {
    if (!json_is_number(value) && !json_is_null(value)) return OTT_OK;
    TRY(reserve_point(s));
    s->step[s->count] = step;
    s->value[s->count++] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return OTT_OK;
}

static ott_status read_lines(line_reader *r, const char *const *keys, int count, metrics_series *out) {
    json_t *object;
    int64_t step = 0;
    while (next_line(r)) {
        TRY(parse_line(r, &object, &step));
        ott_status status = OTT_OK;
        bool health = json_object_get(object, "module") != NULL;
        for (int i = 0; !health && status == OTT_OK && i < count; i++)
            status = add_point(&out[i], step, json_object_get(object, keys[i]));
        json_decref(object);
        TRY(status);
    }
    return OTT_OK;
}

ott_status metrics_read(mem *account, const char *path, const char *const *keys, int count,
                        metrics_series *out) {
    char *text;
    int64_t bytes;
    for (int i = 0; i < count; i++) out[i] = (metrics_series){.account = account};
    TRY(file_read(account, path, FILE_LIMIT, &text, &bytes));
    line_reader r = {.path = path, .text = text, .end = text + bytes};
    ott_status status = read_lines(&r, keys, count, out);
    mem_give(account, text);
    for (int i = 0; status != OTT_OK && i < count; i++) metrics_series_free(&out[i]);
    return status;
}

void metrics_series_free(metrics_series *s) {
    if (!s->account) return; /* never read */
    mem_give(s->account, s->step);
    mem_give(s->account, s->value);
    *s = (metrics_series){.account = s->account};
}

/* ---- reading health lines ---- */

/* Tensors, GEMMs and formats: they are few. */
enum { MOST_WORDS = 64 };

typedef struct health_reader {
    metrics_health *h;
    line_reader lines;
    json_t *indices; /* of modules, by name */
    const char *words[MOST_WORDS];
    int word_count;
    int64_t stride; /* measurements whose number is a multiple of it are kept */
} health_reader;

static ott_status fail_line(const health_reader *r, const char *what, int most) {
    return status_fail(OTT_ERR_FORMAT, "%s: line %" PRId64 ": more than %d %s", r->lines.path,
                       r->lines.number, most, what);
}

static ott_status copy_name(arena *names, const char *text, const char **out) {
    TRY(arena_strdup(names, text, out));
    for (char *c = (char *)*out; *c; c++) /* our own copy; a line break would tear a table */
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
    return OTT_OK;
}

static ott_status take_word(health_reader *r, const char *text, const char **out) {
    int i = 0;
    while (i < r->word_count && strcmp(r->words[i], text) != 0) i++;
    if (i == MOST_WORDS) return fail_line(r, "names of tensors, GEMMs and formats", MOST_WORDS);
    if (i == r->word_count) {
        TRY(copy_name(r->h->names, text, &r->words[i]));
        r->word_count++;
    }
    *out = r->words[i];
    return OTT_OK;
}

static ott_status reserve_module(metrics_health *h) {
    if (h->module_count < h->module_capacity) return OTT_OK;
    int64_t capacity = h->module_capacity ? 2 * h->module_capacity : 64;
    void *modules = h->modules;
    TRY(mem_grow(h->account, MEM_OTHER, capacity * (int64_t)sizeof *h->modules, "module names", &modules));
    h->modules = modules;
    h->module_capacity = capacity;
    return OTT_OK;
}

static ott_status take_module(health_reader *r, const char *name, int64_t *index) {
    metrics_health *h = r->h;
    const json_t *known = json_object_get(r->indices, name);
    if (known) {
        *index = json_integer_value(known);
        return OTT_OK;
    }
    if (h->module_count == METRICS_MOST_MODULES) return fail_line(r, "modules", METRICS_MOST_MODULES);
    TRY(reserve_module(h));
    TRY(copy_name(h->names, name, &h->modules[h->module_count].name));
    if (json_object_set_new(r->indices, name, json_integer(h->module_count)) != 0)
        return status_fail(OTT_ERR_MEMORY, "out of memory: the modules of %s", r->lines.path);
    *index = h->module_count++;
    return OTT_OK;
}

/* Removes every second measurement before the last, or the only one. */
static void thin_out(metrics_health *h) {
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

static ott_status reserve_use(health_reader *r) {
    metrics_health *h = r->h;
    for (; h->count == METRICS_MOST_USES && h->last > 0; r->stride *= 2) thin_out(h);
    if (h->count == METRICS_MOST_USES) return fail_line(r, "uses of tensors at one step", METRICS_MOST_USES);
    if (h->count < h->capacity) return OTT_OK;
    int64_t capacity = h->capacity ? 2 * h->capacity : 256;
    void *uses = h->uses;
    TRY(mem_grow(h->account, MEM_OTHER, capacity * (int64_t)sizeof *h->uses, "measured uses of tensors",
                 &uses));
    h->uses = uses;
    h->capacity = capacity;
    return OTT_OK;
}

static void begin_measurement(health_reader *r) {
    metrics_health *h = r->h;
    if (h->measurements % r->stride != 0) h->count = h->last;
    h->last = h->count;
    h->measurements++;
}

static double number_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* A name of a health line, or NULL. */
static const char *name_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_string(value) && json_string_length(value) <= METRICS_NAME_BYTES ? json_string_value(value)
                                                                                    : NULL;
}

static ott_status take_use(health_reader *r, const json_t *object, int64_t step) {
    metrics_health *h = r->h;
    const char *module = name_of(object, "module"), *tensor = name_of(object, "tensor");
    const char *gemm = name_of(object, "gemm"), *format = name_of(object, "format");
    metrics_use use = {.step = step,
                       .amax = number_of(object, "amax"),
                       .scale_min = number_of(object, "scale_min"),
                       .scale_max = number_of(object, "scale_max"),
                       .saturated = number_of(object, "saturated"),
                       .underflowed = number_of(object, "underflowed"),
                       .sqnr_db = number_of(object, "sqnr_db")};
    if (!module || !tensor || !gemm || !format || !json_object_get(object, "sqnr_db")) return OTT_OK;
    TRY(take_module(r, module, &use.module));
    TRY(take_word(r, tensor, &use.tensor));
    TRY(take_word(r, gemm, &use.gemm));
    TRY(take_word(r, format, &use.format));
    if (h->count == 0 || h->uses[h->last].step != step) begin_measurement(r);
    TRY(reserve_use(r));
    h->modules[use.module].last_step = step;
    h->uses[h->count++] = use;
    h->complete = false;
    return OTT_OK;
}

static ott_status read_health_lines(health_reader *r) {
    static const char mark[] = "\"sqnr_db\"";
    while (next_line(&r->lines)) {
        json_t *object;
        int64_t step = 0;
        r->h->complete = true;
        /* Most files are mostly other lines, which metrics_read checks. */
        if (!memmem(r->lines.line, (size_t)r->lines.length, mark, sizeof mark - 1)) continue;
        TRY(parse_line(&r->lines, &object, &step));
        ott_status status = take_use(r, object, step);
        json_decref(object);
        TRY(status);
    }
    return OTT_OK;
}

ott_status metrics_read_health(mem *account, const char *path, metrics_health *out) {
    char *text = NULL;
    int64_t bytes;
    ott_status status;
    *out = (metrics_health){.account = account};
    health_reader r = {.h = out, .stride = 1, .indices = json_object()};
    if (!r.indices) return status_fail(OTT_ERR_MEMORY, "out of memory: the modules of %s", path);
    TRY_OUT(arena_open(account, MEM_OTHER, &out->names));
    TRY_OUT(file_read(account, path, FILE_LIMIT, &text, &bytes));
    r.lines = (line_reader){.path = path, .text = text, .end = text + bytes};
    TRY_OUT(read_health_lines(&r));
out:
    mem_give(account, text);
    json_decref(r.indices);
    if (status != OTT_OK) metrics_health_free(out);
    return status;
}

void metrics_health_free(metrics_health *h) {
    if (!h->account) return; /* never read */
    mem_give(h->account, h->modules);
    mem_give(h->account, h->uses);
    arena_close(h->names);
    *h = (metrics_health){.account = h->account};
}
