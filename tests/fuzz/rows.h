/* tests/fuzz/rows: cuts a dataset into rows and reads some. */
#ifndef TESTS_FUZZ_ROWS_H
#define TESTS_FUZZ_ROWS_H

#include "data/dataset.h"

/* Closes it. Reads that fail are fine; rows that break what dataset.h promises are not. */
void read_some_rows(dataset *d);

#endif
