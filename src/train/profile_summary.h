/* train/profile_summary: what was counted while steps were profiled, and summary.md. Internal to
 * train/profile. */
#ifndef TRAIN_PROFILE_SUMMARY_H
#define TRAIN_PROFILE_SUMMARY_H

#include "base/str.h"
#include "tensor/exec.h"

typedef enum profile_category {
    PROFILE_OTHER,
    PROFILE_GEMM_FP8,
    PROFILE_GEMM,
    PROFILE_ATTENTION,
    PROFILE_QUANTIZATION,
    PROFILE_ELEMENTWISE,
    PROFILE_OPTIMIZER,
    PROFILE_CATEGORIES
} profile_category;

/* Where an operation belongs; of a matrix product, PROFILE_GEMM. */
profile_category profile_category_of(enum op_index op);
/* "matmul_fp8": the category of its slices. */
const char *profile_category_word(profile_category c);

typedef struct profile_count {
    double seconds; /* without the operations it called */
    int64_t calls;
} profile_count;

/* Of the steps [first, last]. Matrix products in FP8 count apart from the others. */
typedef struct profile_counts {
    int64_t first, last, steps;
    double seconds; /* of the steps */
    profile_count ops[OP_COUNT], scaled_gemm;
} profile_counts;

/* Share of the steps' time, and calls, of a category. */
profile_count profile_category_count(const profile_counts *c, profile_category category);
/* Appends the summary: title says what ran. */
void profile_summary_write(const profile_counts *c, const char *title, str *out);

#endif
