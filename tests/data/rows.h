/* data/rows: opens datasets of one file, and reads their rows. A call that fails ends the test. */
#ifndef TESTS_IO_ROWS_H
#define TESTS_IO_ROWS_H

#include "data/dataset.h"

typedef struct held_row {
    dataset_row row;
    int32_t *memory; /* the row's memory, which the caller frees */
} held_row;

/* Returns a source that reads the file *path as bytes. The JSONL field of texts is "text". `path` must stay
   valid. */
dataset_source rows_source(const char *const *path);
void rows_split(dataset *d, int64_t length, bool pack);
held_row rows_read(const dataset *d, int64_t index);
/* Returns the number of tokens in document number `index` of the row. */
int64_t rows_document(const dataset *d, const dataset_row *r, int64_t index);

#endif
