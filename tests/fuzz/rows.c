/* fuzz/rows: reads rows of a dataset and checks them. */
#include "rows.h"
#include "fuzz.h"

enum { LENGTH = 6, MOST_ROWS = 32 };

static void check(const dataset *d, const dataset_row *row) {
    int64_t labels = 0;
    for (int i = 0; i < LENGTH; i++) {
        FUZZ_REQUIRE(row->token[i] >= 0 && row->token[i] < dataset_vocab(d));
        FUZZ_REQUIRE(row->target[i] < dataset_vocab(d));
        FUZZ_REQUIRE(row->position[i] >= 0 && row->position[i] < LENGTH);
        labels += row->target[i] >= 0;
    }
    FUZZ_REQUIRE(labels == row->labels);
    FUZZ_REQUIRE(row->documents >= 1 && row->documents <= LENGTH && row->start[0] == 0);
    for (int64_t i = 1; i < row->documents; i++)
        FUZZ_REQUIRE(row->start[i] > row->start[i - 1] && row->start[i] < LENGTH);
}

static void split_and_read(dataset *d, bool pack) {
    int32_t token[LENGTH], target[LENGTH], position[LENGTH], start[LENGTH];
    dataset_row row = {.token = token, .target = target, .position = position, .start = start};
    dataset_row_options options = {.length = LENGTH, .pack = pack, .shuffle = true};
    if (dataset_make_rows(d, &options) != OTT_OK) return;
    int64_t rows = dataset_rows(d);
    FUZZ_REQUIRE(rows > 0);
    for (int64_t i = 0; i < rows && i < MOST_ROWS; i++) {
        if (dataset_read_row(d, rows - 1 - i, &row) == OTT_OK) check(d, &row);
        if (dataset_load_row(d, 1, rows + i, &row) == OTT_OK) check(d, &row);
    }
}

void read_some_rows(dataset *d) {
    FUZZ_REQUIRE(dataset_tokens(d) >= 0 && dataset_name(d));
    split_and_read(d, false);
    split_and_read(d, true);
    dataset_close(d);
}
