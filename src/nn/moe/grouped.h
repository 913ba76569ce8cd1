/*
 * nn/moe/grouped: GEMMs of expert weights w[experts][out, in]. Each expert's matrix is multiplied with its
 * own rows of x. In FP8, the results have the same bits as if each expert were a separate linear layer, with
 * its own codes and scales. Each GEMM casts the expert weights from the master again.
 *
 * Row counts are known only on the device, so buffers have room for the maximum.
 */
#ifndef NN_MOE_GROUPED_H
#define NN_MOE_GROUPED_H

#include "tensor/exec.h"

/* Rows sorted by expert: expert e has rows [end[e-1], end[e]) (tensor/ops.def: grouped_gemm). */
typedef struct grouped_rows {
    tensor end;       /* i32[experts] end of each expert's rows */
    int64_t max_rows; /* upper bound of the rows of x and g in a micro-batch, for sizes of buffers */
} grouped_rows;

/* Row counts, to give experts with few rows larger gradients (tensor/ops.def: grouped_gemm_weight). */
typedef struct grouped_balance {
    tensor end;    /* i32[context ranks, experts of all ranks]: where each expert's rows end on each rank */
    int64_t first; /* index of this rank's first expert among all experts */
} grouped_balance;

/* True if grouped GEMMs support this spec in FP8. If false, *why is the reason, a static text. */
bool grouped_supports(const linear_spec *s, const char **why);

/* y = x W^T; dx = g W, or dx += g W if accumulate; dw += g^T x. w and dw are [experts][out, in]; x and g are
   in high precision. s: high precision, or FP8 that grouped_supports accepts. Rows of y and dx after
   end[experts - 1] are set to 0, unless accumulate is true. Each call counts as one GEMM. balance NULL:
   gradients are not balanced. */
ott_status grouped_output(exec *cx, const linear_spec *s, const tensor *w, const tensor *x,
                          const grouped_rows *r, const tensor *y);
ott_status grouped_grad_input(exec *cx, const linear_spec *s, const tensor *w, const tensor *g,
                              const grouped_rows *r, const tensor *dx, bool accumulate);
ott_status grouped_grad_weight(exec *cx, const linear_spec *s, const tensor *x, const tensor *g,
                               const grouped_rows *r, const grouped_balance *balance, const tensor *dw);

#endif
