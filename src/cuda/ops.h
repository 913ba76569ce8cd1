/* cuda/ops: the backend's functions for the ops of tensor/ops.def, and their table. */
#ifndef CUDA_OPS_H
#define CUDA_OPS_H

#include "tensor/ops.h"

#define OP(name, fields) ott_status cuda_##name(exec *cx, const name##_args *a);
#define MANY(name)       ott_status cuda_##name##_many(exec *cx, const name##_args *items, int64_t count);
#include "tensor/ops.def"
#undef OP

/* OTT_ERR_UNSUPPORTED if the device cannot accumulate as `spec` requires; the message names `op`. */
ott_status cuda_check_accumulate(exec *cx, const char *op, const gemm_spec *spec);
/* Bytes of workspace of an op. They depend on shapes and formats, and on what the libraries support. */
int64_t cuda_gemm_workspace(const device *d, const gemm_args *g);
op_slowness cuda_gemm_slowness(const device *d, const gemm_args *g);
int64_t cuda_attention_forward_workspace(const device *d, const attention_forward_args *a);
int64_t cuda_attention_backward_workspace(const device *d, const attention_backward_args *a);
op_slowness cuda_attention_slowness(const device *d, enum op_index op, const void *args);

extern const op_table cuda_ops;

#endif
