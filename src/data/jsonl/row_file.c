/* data/jsonl/row_file: reads the rows of a file part by part. */
#include "data/jsonl/row_file.h"
#include <inttypes.h>

enum { FIRST_PART = 1 << 20 };

/* Moves the text that is left to the start and reads more. Enlarges the memory if an incomplete row fills it. */
static ott_status read_more(row_file *f) {
    int64_t left = f->rows.at ? f->rows.end - f->rows.at : 0, got;
    if (left > ROW_LIMIT)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: a row has more than %" PRId64 " bytes", f->path,
                           ROW_LIMIT);
    if (left > 0) memmove(f->text, f->rows.at, (size_t)left);
    TRY(mem_reserve(f->account, MEM_DATA, left > FIRST_PART / 2 ? 2 * left : FIRST_PART, "rows of text",
                    &f->capacity, &f->text));
    TRY(packed_read(f->file, f->text + left, f->capacity - left, &got));
    f->held = left + got;
    f->all = f->held < f->capacity;
    f->rows.at = f->text;
    f->rows.end = f->text + f->held;
    return OTT_OK;
}

ott_status row_file_open(mem *account, const char *path, row_file *out) {
    *out = (row_file){.account = account, .path = path};
    TRY(packed_open(account, path, &out->file));
    ott_status status = read_more(out);
    if (status == OTT_OK && out->held == 0) status = status_fail(OTT_ERR_FORMAT, "%s: is empty", path);
    if (status != OTT_OK) return row_file_close(out), status;
    out->rows = data_rows_begin(out->text, out->held);
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
    packed_close(f->file);
    mem_free(f->account, f->text);
    *f = (row_file){0};
}
