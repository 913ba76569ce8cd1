/* formats/metrics_lines: reads lines in both directions. */
#include "formats/metrics_lines.h"
#include "base/json/json_text.h"
#include <string.h>

enum { BUFFER_BYTES = 2 * METRICS_LINE_BYTES };

ott_status metrics_lines_open(mem *account, const char *path, metrics_lines *out) {
    *out = (metrics_lines){.account = account};
    TRY(file_reader_open(path, &out->file));
    ott_status status = mem_alloc(account, MEM_OTHER, BUFFER_BYTES, "lines of metrics", &out->buffer);
    if (status != OTT_OK) metrics_lines_close(out);
    return status;
}

void metrics_lines_close(metrics_lines *l) {
    file_reader_close(&l->file);
    mem_free(l->account, l->buffer);
    l->buffer = NULL;
}

static ott_status fill_buffer(metrics_lines *l, int64_t at) {
    int64_t left = l->file.bytes - at;
    l->at = at;
    l->held = left < BUFFER_BYTES ? left : BUFFER_BYTES;
    return file_reader_read(&l->file, at, l->buffer, l->held);
}

/* *found = offset of the first newline that is not before offset `from`; -1 if there is none */
static ott_status find_newline(metrics_lines *l, int64_t from, int64_t *found) {
    *found = -1;
    while (from < l->file.bytes) {
        if (from < l->at || from >= l->at + l->held) TRY(fill_buffer(l, from));
        const char *begin = l->buffer + (from - l->at);
        const char *newline = memchr(begin, '\n', (size_t)(l->at + l->held - from));
        if (newline) return *found = l->at + (newline - l->buffer), OTT_OK;
        from = l->at + l->held;
    }
    return OTT_OK;
}

static ott_status set_line(metrics_lines *l, int64_t begin, int64_t end) {
    l->length = end - begin;
    l->line = NULL;
    if (l->length >= METRICS_LINE_BYTES) return OTT_OK;
    if (begin < l->at || end > l->at + l->held) TRY(fill_buffer(l, begin));
    l->line = l->buffer + (begin - l->at);
    return OTT_OK;
}

ott_status metrics_lines_next(metrics_lines *l, bool *more) {
    int64_t newline;
    TRY(find_newline(l, l->next, &newline));
    *more = newline >= 0;
    if (!*more) return OTT_OK;
    TRY(set_line(l, l->next, newline));
    l->next = newline + 1;
    l->number++;
    return OTT_OK;
}

static ott_status parse_line(const metrics_lines *l, json_t **object, int64_t *step) {
    json_error_t error;
    *object = NULL;
    if (l->line)
        TRY(status_context(json_text_parse(l->line, l->length, JSON_REJECT_DUPLICATES, object, &error), "%s",
                           l->file.path));
    const json_t *number = json_object_get(*object, "step");
    if (json_is_integer(number)) return *step = json_integer_value(number), OTT_OK;
    json_decref(*object);
    return *object = NULL, OTT_OK;
}

ott_status metrics_lines_parse(metrics_lines *l, json_t **object, int64_t *step) {
    TRY(parse_line(l, object, step));
    if (*object) return OTT_OK;
    if (l->damaged++ == 0) l->first_damaged = l->number;
    return OTT_OK;
}

/* *begin = offset after the last newline before offset `end`; 0 if there is none */
static ott_status find_begin(metrics_lines *l, int64_t end, int64_t *begin) {
    *begin = 0;
    while (end > 0) {
        if (end <= l->at || end > l->at + l->held)
            TRY(fill_buffer(l, end < BUFFER_BYTES ? 0 : end - BUFFER_BYTES));
        const char *newline = memrchr(l->buffer, '\n', (size_t)(end - l->at));
        if (newline) return *begin = l->at + (newline - l->buffer) + 1, OTT_OK;
        end = l->at;
    }
    return OTT_OK;
}

/* Parses the line whose newline is at offset end - 1. *begin = offset of the line. *step = INT64_MIN if the
   line is damaged. */
static ott_status read_previous(metrics_lines *l, int64_t end, int64_t *begin, int64_t *step) {
    json_t *object;
    *step = INT64_MIN;
    TRY(find_begin(l, end - 1, begin));
    TRY(set_line(l, *begin, end - 1));
    TRY(parse_line(l, &object, step));
    json_decref(object);
    return OTT_OK;
}

ott_status metrics_lines_end_of(metrics_lines *l, int64_t last_step, int64_t *end) {
    int64_t at, begin, step, damaged = 0;
    TRY(find_begin(l, l->file.bytes, &at)); /* an incomplete last line begins at `at` */
    *end = at;
    for (; at > 0; at = begin) {
        TRY(read_previous(l, at, &begin, &step));
        damaged += step == INT64_MIN;
        if (step == INT64_MIN) continue; /* lines before a damaged line may be of later steps */
        if (step <= last_step) break;
        *end = begin;
        l->damaged = damaged;
    }
    return OTT_OK;
}
