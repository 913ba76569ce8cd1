/* cuda/inspect: asks the CUDA runtime and each library for its version. */
#include "cuda/inspect.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

enum { FOUND_TEXT = 384 };

/* Versions are counted as 13010 for 13.1. */
static void inspect_driver(plugin_finding tell, void *user) {
    int driver = 0, runtime = 0;
    char found[FOUND_TEXT];
    cudaRuntimeGetVersion(&runtime);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        tell(user, false, "driver", "there is no NVIDIA driver",
             "install the driver for this GPU (Debian: apt install nvidia-driver; in a container: start it "
             "with --gpus all)");
        return;
    }
    snprintf(found, sizeof found, "for CUDA %d.%d; this backend was built with %d.%d", driver / 1000,
             driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    tell(user, driver / 1000 >= runtime / 1000, "driver", found,
         "install a driver as new as the CUDA that the backend was built with");
}

static void inspect_gpu(int index, plugin_finding tell, void *user) {
    struct cudaDeviceProp p;
    char what[32], found[FOUND_TEXT];
    cudaError_t error = cudaGetDeviceProperties(&p, index);
    snprintf(what, sizeof what, "cuda:%d", index);
    if (error != cudaSuccess) {
        tell(user, false, what, cudaGetErrorString(error), "restart it (nvidia-smi says how it is)");
        return;
    }
    snprintf(found, sizeof found, "%s, compute capability %d.%d, %.1f GiB", p.name, p.major, p.minor,
             (double)p.totalGlobalMem / (1 << 30));
    tell(user, 10 * p.major + p.minor >= 90, what, found,
         "the kernels are built for compute capability 9.0 (H100, H200): build for this one with make cuda");
}

static void inspect_gpus(plugin_finding tell, void *user) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        tell(user, false, "GPU", error == cudaSuccess ? "there is none" : cudaGetErrorString(error),
             "nvidia-smi must list one; CUDA_VISIBLE_DEVICES hides those that it does not name");
    for (int i = 0; i < count; i++) inspect_gpu(i, tell, user);
}

/* A library that is opened when it is used, by its file. */
static void inspect_library(plugin_finding tell, void *user, const char *what, const char *file,
                            const char *package) {
    char way_out[FOUND_TEXT];
    snprintf(way_out, sizeof way_out, "pip install %s, and its lib folder in LD_LIBRARY_PATH", package);
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    const char *reason = library ? NULL : dlerror();
    tell(user, library != NULL, what, library ? file : reason ? reason : "cannot be opened", way_out);
    if (library) dlclose(library);
}

void inspect_machine(plugin_finding tell, void *user) {
    char found[FOUND_TEXT];
    inspect_driver(tell, user);
    inspect_gpus(tell, user);
    snprintf(found, sizeof found, "%zu", cublasLtGetVersion());
    tell(user, true, "cuBLASLt", found, NULL);
    inspect_library(tell, user, "cuDNN", "libcudnn.so.9", "nvidia-cudnn-cu13");
    inspect_library(tell, user, "NCCL", "libnccl.so.2", "nvidia-nccl-cu13");
}
