/* comm/reduce: the arithmetic of reductions: adds the ranks' values in fp32, in rank order, and rounds once.
   Every transport (tensor/group/group.h) computes the same bits. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "tensor/group/group.h"

/* sum[count] = the first rank's values, widened to fp32. */
void reduce_first(float *sum, const void *values, ott_dtype d, int64_t count);
/* sum[count] += the next rank's values; for a maximum, sum[i] = the larger one of sum[i] and value i. */
void reduce_next(float *sum, const void *values, ott_dtype d, int64_t count, reduce_kind kind);
/* out[count] = sum, rounded to format d. out may be the same memory as sum. */
void reduce_last(void *out, ott_dtype d, const float *sum, int64_t count);

#endif
