/* data/rows: opens datasets of one file, and reads their rows. A call that fails ends the test. */
#ifndef TESTS_IO_ROWS_H
#define TESTS_IO_ROWS_H

#include "data/dataset.h"

typedef struct held_row {
    dataset_row row;
    int32_t *memory; /* the caller frees it */
} held_row;

/* A source with the whole file, as bytes, and no field except "text". The path is borrowed. */
dataset_source rows_source(const char *const *path);
void rows_split(dataset *d, int64_t length, bool pack);
held_row rows_read(const dataset *d, int64_t index);
/* Number of tokens of document `index` of the row. */
int64_t rows_document(const dataset *d, const dataset_row *r, int64_t index);

#endif
