/*
 * tests/cuda/libcuda: a stand-in for the CUDA driver library. With it cuDNN builds attention plans without a
 * GPU: it compiles and "loads" kernels, but nothing can run.
 *
 * This file has the functions that return data. The build generates all others from the names in the
 * toolkit's stub library (libcuda.awk). The generated functions are weak. Functions that load or query code
 * return 0, all others CUDA_ERROR_STUB_LIBRARY.
 */
#include <cuda.h>

static char thing; /* all handles point to this byte */

CUresult cuDriverGetVersion(int *version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    (void)error;
    *text = "no GPU";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    return cuGetErrorName(error, text);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
                           unsigned jit_count, CUlibraryOption *options, void **values, unsigned count) {
    (void)code, (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    *library = (CUlibrary)(void *)&thing;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    (void)library, (void)name;
    *kernel = (CUkernel)(void *)&thing;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    (void)kernel;
    *function = (CUfunction)(void *)&thing;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
    (void)code;
    *module = (CUmodule)(void *)&thing;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    (void)module, (void)name;
    *function = (CUfunction)(void *)&thing;
    return CUDA_SUCCESS;
}
