/* cuda/gemm/pack: packing an operand is a plain copy, because cuBLASLt reads operands in place. */
#include "cuda/cuda.h"
#include "cuda/ops.h"

ott_status cuda_pack(exec *cx, const pack_args *a) {
    const tensor *b = &a->b->t;
    size_t size = (size_t)dtype_bytes(b->dtype), width = (size_t)b->columns * size;
    if (tensor_count(*b) == 0) return OTT_OK;
    return cuda_check(cudaMemcpy2DAsync(a->y->data, width, b->data, (size_t)b->ld * size, width,
                                        (size_t)b->rows, cudaMemcpyDeviceToDevice, cuda_stream(cx)),
                      "pack");
}
