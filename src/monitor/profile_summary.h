/* monitor/profile_summary: counters of profiled steps, and summary.md. Internal to monitor/profile. */
#ifndef MONITOR_PROFILE_SUMMARY_H
#define MONITOR_PROFILE_SUMMARY_H

#include "base/text/str.h"
#include "monitor/op_kinds.h"

typedef struct profile_count {
    double seconds;
    int64_t calls;
} profile_count;

/* Totals of steps `first` to `last`. scaled_gemm counts FP8 matrix products, `ops` all other operations. */
typedef struct profile_counts {
    int64_t first, last, steps;
    double seconds; /* seconds of all profiled steps */
    profile_count ops[OP_COUNT], scaled_gemm;
    profile_count collectives; /* start to end of all collectives; mostly overlaps with operations */
    double collective_bytes;   /* sum over collectives of the larger of input and output */
    double waited;             /* seconds that this rank only waited for collectives */
} profile_counts;

/* Returns the total of one kind of operation. */
profile_count profile_kind_count(const profile_counts *c, op_kind kind);
/* Appends the Markdown summary. title: names of recipe and device. */
void profile_summary_write(const profile_counts *c, const char *title, str *out);

#endif
