/* fuzz/rows: splits a dataset into rows and reads some rows. */
#ifndef TESTS_FUZZ_ROWS_H
#define TESTS_FUZZ_ROWS_H

#include "data/dataset.h"

/* Reads some rows of d, then closes d. Reading may fail. A row that is read must satisfy the guarantees of
   dataset.h. */
void read_some_rows(dataset *d);

#endif
