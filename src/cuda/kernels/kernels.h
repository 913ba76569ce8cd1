/* cuda/kernels/kernels: functions that launch kernels. Each function computes an op of tensor/ops.def or a
   part of an op. cuda/kernels/quantize.h has the quantize ops. The functions check nothing, do not wait, and
   return CUDA's status. An index out of range gives NaN. Optional tensors may be NULL. `items`: a list of
   calls. */
#ifndef CUDA_KERNELS_KERNELS_H
#define CUDA_KERNELS_KERNELS_H

#include "cuda/kernels/quantize.h"
#include "tensor/ops.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise.cu ---- */
/* Returns cudaSuccess if the plugin has code for the current device. */
cudaError_t kernels_find(void);

/* The ops that are one launch of a kernel. */
#define KERNEL(op, check) cudaError_t op##_launch(const op##_args *a, cudaStream_t stream);
#define KERNEL_MANY(op, check)                                                                               \
    cudaError_t op##_launch(const op##_args *items, int64_t count, cudaStream_t stream);
#include "cuda/kernels/kernels.def"

/* `uses`: the quantized copies of the output that the kernel also computes; quantize_begin
   (cuda/kernels/quantize.h) fills it. A heading names the quantize_producer of the kernels below it. */

/* ---- swiglu.cu: QUANTIZE_BY_TILES ---- */
cudaError_t swiglu_forward_launch(const swiglu_forward_args *a, const quantize_uses *uses,
                                  cudaStream_t stream);
/* uses[0]: quantized copies of dgate; uses[1]: quantized copies of dup. */
cudaError_t swiglu_backward_launch(const swiglu_backward_args *a, const quantize_uses uses[2],
                                   cudaStream_t stream);

/* ---- norm.cu: QUANTIZE_BY_ROWS for wide rows (norm_is_wide); no quantized copies of narrow rows ---- */
bool norm_is_wide(const tensor *x);
cudaError_t norm_forward_launch(const rmsnorm_forward_args *a, const quantize_uses *uses,
                                cudaStream_t stream);
cudaError_t norm_backward_launch(const rmsnorm_backward_args *a, const quantize_uses *uses,
                                 cudaStream_t stream);
cudaError_t norm_weight_gradient_launch(const tensor *dy, const tensor *h, const tensor *rstd,
                                        const tensor *dweight, cudaStream_t stream);

/* ---- copy.cu ---- */
struct device_piece; /* tensor/device.h */
cudaError_t copy_launch(const struct device_piece *pieces, int64_t count, cudaStream_t stream);

/* ---- layernorm.cu ---- */
cudaError_t layernorm_forward_launch(const layernorm_forward_args *a, cudaStream_t stream);
cudaError_t layernorm_backward_launch(const layernorm_backward_args *a, cudaStream_t stream);

/* ---- activate.cu ---- */
cudaError_t activate_forward_launch(const activate_forward_args *a, cudaStream_t stream);
cudaError_t activate_backward_launch(const activate_backward_args *a, cudaStream_t stream);

/* ---- attention.cu ---- */
cudaError_t attention_forward_launch(const attention_forward_args *a, cudaStream_t stream);
/* Bytes of workspace that attention_backward_launch needs. */
int64_t attention_backward_workspace(const attention_backward_args *a);
/* How cuDNN addresses packed documents. q_lengths, k_lengths: tokens of each document. offsets[i], for rows
   that are strides[i] elements apart: the first element of each document, and the end of the last. */
enum { ATTENTION_STRIDES = 4 };
typedef struct attention_offsets {
    int32_t *q_lengths, *k_lengths;
    int64_t *offsets[ATTENTION_STRIDES], strides[ATTENTION_STRIDES];
} attention_offsets;
cudaError_t attention_offsets_launch(const tensor *cu_seqlens, int64_t documents, int64_t tokens,
                                     const attention_offsets *to, cudaStream_t stream);
cudaError_t attention_backward_launch(const attention_backward_args *a, float *workspace,
                                      cudaStream_t stream);

/* ---- flash.cu ---- */
/* True if these kernels support a tensor of heads: a 16-bit format, head_dim a multiple of 8 up to 256, rows
   of 16-byte-aligned vectors. All tensors of a call must be supported. */
bool flash_supports(const tensor *t, int64_t head_dim);
cudaError_t flash_forward_launch(const attention_forward_args *a, cudaStream_t stream);
/* Needs attention_backward_workspace bytes. */
cudaError_t flash_backward_launch(const attention_backward_args *a, float *workspace, cudaStream_t stream);

/* ---- decode.cu ---- */
/* True for one query of heads that the kernel supports: a new token of a KV cache. */
bool decode_supports(const attention_forward_args *a);
int64_t decode_workspace(const attention_forward_args *a);
cudaError_t decode_launch(const attention_forward_args *a, float *workspace, cudaStream_t stream);

/* ---- loss.cu: QUANTIZE_ROW_AMAX, for the gradient of the logits ---- */
/* parts: statistics of all ranks' vocabulary shards; NULL if the vocabulary is not sharded. */
cudaError_t cross_entropy_launch(const tensor *logits, const tensor *target, const tensor *parts,
                                 const tensor *grad_scale, const tensor *loss, const tensor *z,
                                 float z_weight, int64_t before, int64_t after, const quantize_uses *uses,
                                 cudaStream_t stream);

/* ---- reduce.cu ---- */
/* Bytes of workspace for the sum of a tensor with `elements` elements. */
int64_t sum_workspace(int64_t elements);
cudaError_t sum_launch(const tensor *x, const tensor *sum, float *workspace, cudaStream_t stream);

/* ---- ranks.cu ---- */
/* out = sum, or maximum, over the ranks' data in rank order (tensor/group/group.h). Row r of `slots` has the
   data of rank r, but the data of this rank are in `own`, which may be out. Formats: fp32, bf16. */
cudaError_t ranks_reduce_launch(const tensor *slots, const tensor *own, int rank, bool maximum,
                                const tensor *out, cudaStream_t stream);

/* ---- optimizer.cu ---- */
cudaError_t amax_record_launch(const float *amax, const tensor *seen, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
