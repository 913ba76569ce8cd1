/* cuda/gemm/samples: copies strided rows to the host. */
#include "cuda/gemm/samples.h"

static const char what[] = "fetching samples";

ott_status samples_fetch(exec *cx, void *to, const void *from, int64_t step, int64_t width, int64_t count) {
    if (step < width) step = width;
    return cuda_check(cudaMemcpy2DAsync(to, (size_t)width, from, (size_t)step, (size_t)width, (size_t)count,
                                        cudaMemcpyDeviceToHost, cuda_stream(cx)),
                      what);
}

ott_status samples_finish(exec *cx) {
    return cuda_check(cudaStreamSynchronize(cuda_stream(cx)), what);
}
