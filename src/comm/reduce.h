/* comm/reduce: the arithmetic of reductions over ranks: summed in fp32 in rank order, and rounded once. Every
   transport (tensor/group.h) computes the same. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "tensor/group.h"

/* sum[count] = the values of the first rank, as fp32. */
void reduce_first(float *sum, const void *values, ott_dtype d, int64_t count);
/* Adds the values of the next rank to sum[count], or takes the maximum of both. */
void reduce_next(float *sum, const void *values, ott_dtype d, int64_t count, reduce_kind kind);
/* out[count] = sum, rounded to format d. out may be the same memory as sum. */
void reduce_last(void *out, ott_dtype d, const float *sum, int64_t count);

#endif
