/* data/rows: opens datasets of one file, and reads their rows. */
#include "data/rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

dataset_source rows_source(const char *const *path) {
    return (dataset_source){.paths = path,
                            .count = 1,
                            .to_share = 1,
                            .add_bos = true,
                            .add_eos = true,
                            .separator = "",
                            .text_field = "text",
                            .prompt_field = "",
                            .completion_field = ""};
}

void rows_split(dataset *d, int64_t length, bool pack) {
    ott_status status = dataset_make_rows(d, &(dataset_row_options){.length = length, .pack = pack});
    if (status != OTT_OK) fail_msg("%s", status_text());
}

held_row rows_read(const dataset *d, int64_t index) {
    int64_t length = dataset_length(d);
    int32_t *m = calloc((size_t)(4 * length + 1), sizeof *m);
    held_row h = {
        .memory = m,
        .row = {.token = m, .target = m + length, .position = m + 2 * length, .start = m + 3 * length}};
    if (dataset_read_row(d, index, &h.row) != OTT_OK) fail_msg("%s", status_text());
    return h;
}

int64_t rows_document(const dataset *d, const dataset_row *r, int64_t index) {
    int64_t end = index + 1 < r->documents ? r->start[index + 1] : dataset_length(d);
    return end - r->start[index];
}
