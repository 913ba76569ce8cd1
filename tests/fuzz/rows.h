/* fuzz/rows: splits a dataset into rows and reads some rows. */
#ifndef TESTS_FUZZ_ROWS_H
#define TESTS_FUZZ_ROWS_H

#include "data/dataset.h"

/* Reads some rows, which must satisfy the guarantees of dataset.h. Reading may fail. Closes d. */
void read_some_rows(dataset *d);

#endif
