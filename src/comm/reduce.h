/* comm/reduce: the arithmetic of reductions over ranks, the same for every transport (tensor/group.h):
   accumulated in fp32 in rank order, rounded once. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "tensor/group.h"

/* sum[count] = the first rank's values, as fp32. */
void reduce_first(float *sum, const void *values, ott_dtype d, int64_t count);
/* Adds the next rank's values to sum[count], or takes the maximum. */
void reduce_next(float *sum, const void *values, ott_dtype d, int64_t count, reduce_kind kind);
/* out[count] = sum, rounded to d. out may be sum. */
void reduce_last(void *out, ott_dtype d, const float *sum, int64_t count);

#endif
