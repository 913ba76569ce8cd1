/* tensor/gpus: NVIDIA's GPUs (tensor/gpus.def) and their capabilities, for real GPUs, for `ottava plan`, and
   for lists of the GPUs that can run a recipe. */
#ifndef TENSOR_GPUS_H
#define TENSOR_GPUS_H

#include "tensor/backend.h"

enum { GPU_ALIGNMENT = 256 }; /* alignment of every allocation and of cuBLASLt's workspace */

typedef enum gpu_id {
#define GPU(id, ...) GPU_##id,
#include "tensor/gpus.def"
    GPU_COUNT
} gpu_id;

typedef struct gpu {
    const char *name;       /* part of the device's name */
    const char *family;     /* name in lists of GPUs; the GPUs of a family are adjacent */
    int capability;         /* compute capability times ten */
    double fp32, bf16, fp8; /* FLOP/s of dense products; 0: format not supported */
} gpu;

extern const gpu gpu_table[GPU_COUNT];

/* Returns the peak FLOP/s of dense products of a format on the GPU, or the MIG instance, with that name
   (cudaDeviceProp.name). 0 if the GPU is not in the table or does not support the format. */
double gpu_peak(const char *name, ott_dtype format);
/* True if cuDNN 9.25 or later has a backward of attention with its sums in a fixed order for packed
   documents. For sequences of equal length it has one on every GPU. */
bool gpu_orders_packed_attention(int capability);
/* True if cuBLASLt multiplies FP8 by scales of rows. On other GPUs a kernel multiplies the sums by them. */
bool gpu_multiplies_row_scales(int capability);
/* FLOP of the fp32 peak per instruction that a multiprocessor can issue. It issues 128 a cycle, for 64 or 128
   multiply-adds. */
double gpu_flops_per_instruction(int capability);
/* Sets what the GPUs of a compute capability can do; 90 means 9.0. name: *out keeps the pointer. emulates:
   also allows formats and scales that the tensor cores lack. */
void gpu_fill_capabilities(int capability, const char *name, bool emulates, backend_capabilities *out);

#endif
