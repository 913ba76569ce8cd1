/* train/profile_summary: what was counted while steps were profiled, and summary.md. Internal to
 * train/profile. */
#ifndef TRAIN_PROFILE_SUMMARY_H
#define TRAIN_PROFILE_SUMMARY_H

#include "base/str.h"
#include "train/op_kinds.h"

typedef struct profile_count {
    double seconds;
    int64_t calls;
} profile_count;

/* Totals of steps [first, last]. FP8 matrix products are counted separately. */
typedef struct profile_counts {
    int64_t first, last, steps;
    double seconds; /* of the steps */
    profile_count ops[OP_COUNT], scaled_gemm;
    profile_count collectives; /* between ranks, from start to end; most overlap with operations */
    double collective_bytes;   /* per collective the larger of input and output */
    double waited;             /* seconds in which this rank did nothing but wait for collectives */
} profile_counts;

/* Share of the steps' time, and calls, of a kind of work. */
profile_count profile_kind_count(const profile_counts *c, op_kind kind);
/* Appends the summary: title says what ran. */
void profile_summary_write(const profile_counts *c, const char *title, str *out);

#endif
