/*
 * report/inspect: what is in a safetensors file or a model folder: tensors, totals, metadata and, if asked, the
 * statistics of every tensor, which takes one reading of all data and no memory.
 */
#ifndef REPORT_INSPECT_H
#define REPORT_INSPECT_H

#include "base/str.h"

typedef struct inspect_options {
    bool statistics; /* minimum, maximum, mean, standard deviation, zeros, NaN and infinities */
    bool json;       /* one JSON object; else a table for a person */
} inspect_options;

/* Receives the text piece by piece, as it is made; not NUL-terminated. Any status but OTT_OK ends it. */
typedef ott_status (*inspect_sink)(void *user, const char *text, int64_t length);

/*
 * `path` as of shards_open, whose errors it returns before the first piece. Minimum, maximum, mean and
 * standard deviation (of the population) are over the finite elements; codes of FP8 are decoded without
 * scale; formats that are not read as numbers (integers, F64) have none.
 */
ott_status inspect_print(mem *account, const char *path, const inspect_options *options, inspect_sink sink,
                         void *user);

#endif
