/*
 * comm/reduce: the arithmetic of reductions over ranks, one for every transport (tensor/group.h): fp32, in
 * rank order, rounded once.
 */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include "tensor/group.h"

/* sum[count] = values of the first rank, as fp32. */
void reduce_first(float *sum, const void *values, ott_dtype d, int64_t count);
/* sum[count] becomes its sum or maximum with those of the next rank. */
void reduce_next(float *sum, const void *values, ott_dtype d, int64_t count, reduce_kind kind);
/* out[count] = sum, rounded to d. out may be sum where d is F32. */
void reduce_last(void *out, ott_dtype d, const float *sum, int64_t count);

#endif
