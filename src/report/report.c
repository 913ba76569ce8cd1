/* report/report: writes summary.json, and reads run folders. */
#include "report/report.h"
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "base/json/json_write.h"
#include "base/json/json_text.h"
#include "base/text/number.h"
#include "report/curve.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LIMIT (INT64_C(16) << 20) /* largest summary, configuration or sample in bytes */

/* The members of report_summary, by type. */
#define INTEGER_FIELDS(X) X(steps) X(tokens) X(parameters) X(peak_memory_bytes) X(fp8_gemms) X(gemms)
#define REAL_FIELDS(X)    X(train_loss) X(val_loss) X(tokens_per_second) X(seconds)
#define TEXT_FIELDS(X)    X(label) X(precision) X(recipe)

/* ---- summary.json ---- */

static void append_json_text(str *s, const char *key, const char *text) {
    str_printf(s, "  \"%s\": ", key);
    str_append_json(s, text ? text : "", text ? (int64_t)strlen(text) : 0);
    str_append(s, ",\n");
}

static void append_summary_phases(str *s, const report_summary *summary) {
    str_append(s, "  \"phases\": [");
    for (int i = 0; i < summary->phase_count; i++) {
        const report_phase *p = &summary->phases[i];
        str_append(s, i > 0 ? ",\n    {" : "\n    {");
        json_write_text(s, "recipe", p->recipe);
        json_write_integer(s, "steps", p->steps);
        json_write_integer(s, "tokens", p->tokens);
        json_write_real(s, "seconds", p->seconds);
        json_write_integer(s, "gemms", p->gemms);
        json_write_integer(s, "fp8_gemms", p->fp8_gemms);
        str_append(s, "}");
    }
    str_append(s, summary->phase_count > 0 ? "\n  ]\n}\n" : "]\n}\n");
}

static ott_status append_summary(str *s, const report_summary *summary) {
    char number[32];
    str_append(s, "{\n");
#define X(field) append_json_text(s, #field, summary->field);
    TEXT_FIELDS(X)
#undef X
#define X(field) str_printf(s, "  \"" #field "\": %s,\n", number_metric(summary->field, number));
    REAL_FIELDS(X)
#undef X
#define X(field) str_printf(s, "  \"" #field "\": %" PRId64 ",\n", summary->field);
    INTEGER_FIELDS(X)
#undef X
    append_summary_phases(s, summary);
    return str_finish(s);
}

ott_status report_summary_write(mem *account, const char *folder, const report_summary *summary) {
    str text = {.account = account};
    char path[PATH_MAX];
    TRY(file_join(folder, "summary.json", path));
    ott_status status = append_summary(&text, summary);
    if (status == OTT_OK) status = file_write_atomic(path, text.text, text.length);
    str_free(&text);
    return status;
}

static ott_status parse_text_member(arena *texts, const json_t *object, const char *key, const char **out) {
    const char *text = NULL;
    TRY(json_member_text(object, key, JSON_OPTIONAL, &text));
    if (!text) return OTT_OK;
    TRY(arena_strdup(texts, text, out));
    str_replace_controls((char *)*out, ' '); /* a line break would break the table */
    return OTT_OK;
}

static ott_status parse_optional_real(const json_t *object, const char *key, double *out) {
    return json_member_real(object, key, JSON_OPTIONAL, out);
}

static ott_status parse_optional_integer(const json_t *object, const char *key, int64_t *out) {
    return json_member_integer(object, key, JSON_OPTIONAL, INT64_MIN, INT64_MAX, out);
}

static ott_status parse_summary_phase(arena *texts, const json_t *object, report_phase *p) {
    const char *recipe = "";
    TRY(parse_text_member(texts, object, "recipe", &recipe));
    snprintf(p->recipe, sizeof p->recipe, "%s", recipe);
    TRY(parse_optional_integer(object, "steps", &p->steps));
    TRY(parse_optional_integer(object, "tokens", &p->tokens));
    TRY(parse_optional_real(object, "seconds", &p->seconds));
    TRY(parse_optional_integer(object, "gemms", &p->gemms));
    return parse_optional_integer(object, "fp8_gemms", &p->fp8_gemms);
}

static ott_status parse_phases(arena *texts, const json_t *object, report_summary *out) {
    const json_t *list = json_object_get(object, "phases");
    size_t count = json_array_size(list);
    report_phase *phases;
    if (count > REPORT_MOST_PHASES)
        return status_fail(OTT_ERR_FORMAT, "phases has %zu members; at most %d are allowed", count,
                           REPORT_MOST_PHASES);
    if (count == 0) return OTT_OK;
    TRY(arena_alloc(texts, (int64_t)(count * sizeof(report_phase)), &phases));
    memset(phases, 0, count * sizeof(report_phase));
    out->phases = phases;
    for (size_t i = 0; i < count; i++) TRY(parse_summary_phase(texts, json_array_get(list, i), &phases[i]));
    out->phase_count = (int)count;
    return OTT_OK;
}

/* Reads a summary. A member that the JSON object does not have keeps its value in *out, so that files of
   other versions can be read. */
static ott_status parse_summary(arena *texts, const json_t *object, report_summary *out) {
#define X(field) TRY(parse_text_member(texts, object, #field, &out->field));
    TEXT_FIELDS(X)
#undef X
#define X(field) TRY(parse_optional_real(object, #field, &out->field));
    REAL_FIELDS(X)
#undef X
#define X(field) TRY(parse_optional_integer(object, #field, &out->field));
    INTEGER_FIELDS(X)
#undef X
    return parse_phases(texts, object, out);
}

static ott_status read_summary(report *r, report_run_data *run, const char *path) {
    char *text;
    int64_t bytes;
    json_error_t error;
    TRY(file_read(r->account, path, TEXT_LIMIT, &text, &bytes));
    json_t *object;
    ott_status status = json_text_parse(text, bytes, JSON_REJECT_DUPLICATES, &object, &error);
    mem_free(r->account, text);
    if (status != OTT_OK) return status_context(status, "%s", path);
    if (!json_is_object(object)) {
        json_decref(object);
        return status_fail(OTT_ERR_FORMAT, "%s: is not a JSON object (line %d)", path,
                           object ? 1 : error.line);
    }
    status = status_context(parse_summary(r->texts, object, &run->summary), "%s", path);
    json_decref(object);
    run->finished = true;
    return status;
}

/* ---- run folders ---- */

static double last_value(const metrics_series *s) {
    return s->count > 0 ? s->value[s->count - 1] : (double)NAN;
}

static ott_status median_of(mem *account, const metrics_series *s, double *out) {
    curve c;
    TRY(curve_from_series(account, s, &c));
    if (c.count > 0) {
        qsort(c.y, (size_t)c.count, sizeof *c.y, number_compare);
        *out = c.y[c.count / 2];
    }
    curve_free(&c);
    return OTT_OK;
}

/* Sets the label of a run to the name of its folder: "fp8" for "runs/fp8/". */
static ott_status label_folder(arena *texts, const char *folder, const char **label) {
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && folder[begin - 1] != '/') begin--;
    if (begin == end) begin = 0; /* the path is "/" */
    TRY(arena_printf(texts, label, "%.*s", (int)(end - begin), folder + begin));
    str_replace_controls((char *)*label, ' ');
    return OTT_OK;
}

/* Fills the summary from the metrics. summary.json replaces these values later, if there is one. */
static ott_status summarize_metrics(report *r, report_run_data *run) {
    report_summary *s = &run->summary;
    const metrics_series *loss = &run->series[REPORT_LOSS];
    *s = (report_summary){.precision = "", .recipe = "", .tokens_per_second = NAN, .seconds = NAN};
    TRY(label_folder(r->texts, run->folder, &s->label));
    s->train_loss = last_value(loss);
    s->val_loss = last_value(&run->series[REPORT_VAL_LOSS]);
    s->steps = loss->count > 0 ? loss->step[loss->count - 1] : 0;
    return median_of(r->account, &run->series[REPORT_TPS], &s->tokens_per_second);
}

/* Reads a text file of the run folder. *out: NULL if there is none. */
static ott_status read_text_file(report *r, const char *folder, const char *name, const char **out) {
    const char *path;
    char *text;
    int64_t bytes;
    TRY(arena_printf(r->texts, &path, "%s/%s", folder, name));
    if (!file_exists(path)) return OTT_OK;
    TRY(file_read(r->account, path, TEXT_LIMIT, &text, &bytes));
    ott_status status = arena_strdup(r->texts, text, out);
    mem_free(r->account, text);
    return status;
}

static ott_status read_run_folder(report *r, const char *folder, report_run_data *run) {
    static const char *const keys[] = {
#define X(name, key) key,
        REPORT_KEY_MAP(X)
#undef X
    };
    const char *metrics, *summary;
    TRY(arena_strdup(r->texts, folder, &run->folder));
    TRY(arena_printf(r->texts, &metrics, "%s/metrics.jsonl", folder));
    TRY(arena_printf(r->texts, &summary, "%s/summary.json", folder));
    bool has_metrics = file_exists(metrics), has_summary = file_exists(summary);
    if (!has_metrics && !has_summary)
        return status_fail(OTT_ERR_NOT_FOUND,
                           "%s: is not a run folder: it has neither metrics.jsonl nor summary.json", folder);
    if (has_metrics) TRY(metrics_read(r->account, metrics, keys, REPORT_KEY_COUNT, run->series));
    if (has_metrics) TRY(metrics_read_health(r->account, metrics, &run->health));
    TRY(summarize_metrics(r, run));
    if (has_summary) TRY(read_summary(r, run, summary));
    TRY(read_text_file(r, folder, "config.toml", &run->config));
    TRY(report_read_settings(r, run));
    return read_text_file(r, folder, "sample.txt", &run->sample);
}

/* True if the file begins like a report page; false if it cannot be read. */
static bool is_page(const char *path) {
    static const char begin[] = "<!DOCTYPE html>";
    char head[sizeof begin - 1];
    file_reader f;
    if (file_reader_open(path, &f) != OTT_OK) return false;
    bool page = f.bytes >= (int64_t)sizeof head && file_reader_read(&f, 0, head, sizeof head) == OTT_OK &&
                memcmp(head, begin, sizeof head) == 0;
    file_reader_close(&f);
    return page;
}

/* A file of a run is never overwritten, even if it begins like a page, which sample.txt may do. */
ott_status report_check_page(const report *r, const char *path) {
    static const char *const names[] = {"metrics.jsonl", "summary.json", "config.toml", "sample.txt"};
    char own[PATH_MAX];
    int64_t bytes;
    for (int i = 0; i < r->count; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            TRY(file_join(r->runs[i].folder, names[k], own));
            TRY(file_check_output(path, own));
        }
    if (!file_exists(path) || file_size(path, &bytes) != OTT_OK || bytes == 0 || is_page(path)) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT,
                       "%s: is not a report page and would be overwritten: choose another file, or remove it",
                       path);
}

ott_status report_open(mem *account, const char *const *folders, int count, report **out) {
    report *r;
    ott_status status;
    *out = NULL;
    if (count < 1) return status_fail(OTT_ERR_ARGUMENT, "a report needs at least one run folder");
    TRY(mem_alloc(account, MEM_OTHER, sizeof(report), "a report", &r));
    r->account = account;
    TRY_OUT(arena_open(account, MEM_OTHER, &r->texts));
    TRY_OUT(mem_alloc_array(account, MEM_OTHER, count, sizeof *r->runs, "runs of a report", &r->runs));
    while (r->count < count) {
        /* counted before it is read, so that report_close frees it even if read_run_folder fails */
        int i = r->count++;
        TRY_OUT(read_run_folder(r, folders[i], &r->runs[i]));
    }
    TRY_OUT(report_make_rows(r));
    *out = r;
out:
    if (status != OTT_OK) report_close(r);
    return status;
}

void report_close(report *r) {
    if (!r) return;
    for (int i = 0; i < r->count; i++) {
        for (int k = 0; k < REPORT_KEY_COUNT; k++) metrics_series_free(&r->runs[i].series[k]);
        metrics_health_free(&r->runs[i].health);
    }
    mem_free(r->account, r->runs);
    mem_free(r->account, r->rows);
    arena_close(r->texts);
    mem_free(r->account, r);
}
