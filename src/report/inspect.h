/* report/inspect: lists the tensors, totals and metadata of a safetensors file or a model folder. Statistics
   read all data once, through a small buffer. */
#ifndef REPORT_INSPECT_H
#define REPORT_INSPECT_H

#include "base/text/str.h"

typedef struct inspect_options {
    bool statistics; /* true: add minimum, maximum, mean, deviation, zeros, NaNs and infinities */
    bool json;       /* true: one JSON object; false: a table */
} inspect_options;

/* Receives the text in pieces, without a NUL. If it returns an error, inspect_print returns this error. */
typedef ott_status (*inspect_sink)(void *user, const char *text, int64_t length);

/* Lists the tensors of `path`, which shards_open opens (also a GGUF file). Errors of shards_open are returned
   before any output. Minimum, maximum, mean and (population) standard deviation are over the finite elements.
   FP8 codes are decoded without their scales. Integers and F64 have no statistics. */
ott_status inspect_print(mem *account, const char *path, const inspect_options *options, inspect_sink sink,
                         void *user);

#endif
