/*
 * io/metrics: one write per line, so that a reader never sees half of one, and a crash loses at most the line
 * it hit.
 */
#define _GNU_SOURCE /* O_CLOEXEC */
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
        for (int i = 0; status == OTT_OK && i < count; i++)
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
