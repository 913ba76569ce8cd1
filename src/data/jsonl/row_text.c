/* data/jsonl/row_text: finds the rows in a text, and parses a row. */
#include "data/jsonl/row_text.h"
#include "base/json/json_member.h"
#include "base/json/json_text.h"
#include <inttypes.h>

static bool is_json_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const char *skip_json_spaces(const char *at, const char *end) {
    while (at < end && is_json_space(*at)) at++;
    return at;
}

data_rows data_rows_begin(const char *text, int64_t bytes) {
    const char *end = text + bytes, *first = skip_json_spaces(text, end);
    return (data_rows){.at = text, .end = end, .array = first < end && *first == '[', .line = 1};
}

/* Returns the end of the JSON string that begins at `at`, after its closing quote; NULL if there is none. */
static const char *string_end(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\') at++;
    return at < end ? at + 1 : NULL;
}

/* Returns the end of the JSON value that begins at `at`; NULL if the value is incomplete at `end`. Only
   counts brackets and finds the ends of strings. */
static const char *row_value_end(const char *at, const char *end) {
    int64_t depth = 0;
    while (at < end) {
        if (*at == '"') {
            at = string_end(at, end);
            if (!at) return NULL;
            if (depth == 0) return at;
            continue;
        }
        bool closes = *at == ']' || *at == '}';
        if (depth == 0 && (closes || *at == ',' || is_json_space(*at)))
            return at; /* end of a number or word */
        depth += (*at == '[' || *at == '{') - closes;
        at++;
        if (closes && depth == 0) return at;
    }
    return NULL;
}

static void pass(data_rows *r, const char *to) {
    for (; r->at < to; r->at++) r->newlines += *r->at == '\n';
}

static ott_status next_text_line(data_rows *r, text_view *out) {
    *out = (text_view){0};
    while (r->at < r->end) {
        const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        text_view line = {r->at, (stop ? stop : r->end) - r->at};
        r->line = ++r->newlines;
        r->at = stop ? stop + 1 : r->end;
        if (json_text_is_blank(line.at, line.bytes)) continue;
        return *out = line, OTT_OK;
    }
    return OTT_OK;
}

static ott_status fail_open(void) {
    return status_fail(OTT_ERR_FORMAT, "the file's array has no end");
}

static ott_status end_array(data_rows *r) {
    pass(r, skip_json_spaces(r->at + 1, r->end));
    r->ended = true;
    return OTT_OK;
}

/* Skips the bracket or comma before an element, and white space. */
static ott_status pass_separator(data_rows *r) {
    pass(r, skip_json_spaces(r->at, r->end));
    r->line = r->newlines + 1;
    if (r->at == r->end) return fail_open();
    if (r->begun && *r->at == ']') return end_array(r);
    if (*r->at != (r->begun ? ',' : '['))
        return status_fail(OTT_ERR_FORMAT, "a comma is missing between two rows of the array");
    pass(r, skip_json_spaces(r->at + 1, r->end));
    r->line = r->newlines + 1;
    return !r->begun && r->at < r->end && *r->at == ']' ? end_array(r) : OTT_OK;
}

static ott_status next_element(data_rows *r, text_view *out) {
    *out = (text_view){0};
    if (!r->ended) TRY(pass_separator(r));
    if (r->ended) {
        pass(r, skip_json_spaces(r->at, r->end));
        r->line = r->newlines + 1;
        if (r->at == r->end) return OTT_OK;
        return status_fail(OTT_ERR_FORMAT, "there is text after the end of the file's array: remove it");
    }
    r->begun = true;
    const char *stop = row_value_end(r->at, r->end);
    if (!stop) return fail_open();
    *out = (text_view){r->at, stop - r->at};
    pass(r, stop);
    return OTT_OK;
}

ott_status data_rows_next(data_rows *r, text_view *out) {
    return r->array ? next_element(r, out) : next_text_line(r, out);
}

ott_status data_row_object(text_view row, const char *unit, json_t **out) {
    json_error_t error;
    TRY(json_row_parse(row.at, row.bytes, out, &error));
    if (!*out)
        return status_fail(OTT_ERR_FORMAT, "is not JSON: %s at byte %d of the %s", error.text, error.position,
                           unit);
    if (json_is_object(*out)) return OTT_OK;
    ott_status status = status_fail(OTT_ERR_FORMAT, "is %s, not a JSON object", json_kind_name(*out));
    json_decref(*out);
    return *out = NULL, status;
}

/* ---- files ---- */

#define ROW_LIMIT (INT64_C(1) << 30) /* maximum bytes of a row */
enum { FIRST_PART = 1 << 20 };

/* Moves the text that is left to the start and reads more. Enlarges the memory if an incomplete row fills it.
   */
static ott_status read_more(row_file *f) {
    int64_t left = f->rows.at ? f->rows.end - f->rows.at : 0, got;
    if (left > ROW_LIMIT)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: a row has more than %" PRId64 " bytes", f->path,
                           ROW_LIMIT);
    if (left > 0) memmove(f->text, f->rows.at, (size_t)left);
    TRY(mem_reserve(f->account, MEM_DATA, left > FIRST_PART / 2 ? 2 * left : FIRST_PART, "rows of text",
                    &f->capacity, &f->text));
    TRY(text_file_read(f->file, f->text + left, f->capacity - left, &got));
    f->all = left + got < f->capacity;
    f->rows.at = f->text;
    f->rows.end = f->text + left + got;
    return OTT_OK;
}

ott_status row_file_open(mem *account, const char *path, row_file *out) {
    *out = (row_file){.account = account, .path = path};
    TRY(text_file_open(account, path, &out->file));
    ott_status status = read_more(out);
    const int64_t bytes = out->rows.end - out->rows.at;
    if (status == OTT_OK && bytes == 0) status = status_fail(OTT_ERR_FORMAT, "%s: is empty", path);
    if (status != OTT_OK) return row_file_close(out), status;
    out->rows = data_rows_begin(out->text, bytes);
    return OTT_OK;
}

ott_status row_file_next(row_file *f, text_view *row) {
    for (;;) {
        const data_rows before = f->rows;
        ott_status status = data_rows_next(&f->rows, row);
        /* A row is complete if text follows it. */
        if (f->all || (status == OTT_OK && row->at && f->rows.at < f->rows.end))
            return status == OTT_OK ? status : status_context(status, "%s:%" PRId64, f->path, f->rows.line);
        f->rows = before;
        TRY(read_more(f));
    }
}

void row_file_close(row_file *f) {
    text_file_close(f->file);
    mem_free(f->account, f->text);
    *f = (row_file){0};
}
