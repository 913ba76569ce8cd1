/* cuda/inspect: asks the CUDA runtime and each library for its version. */
#include "cuda/inspect.h"
#include "cuda/attention/attention_cudnn.h"
#include "cuda/kernels/kernels.h"
#include "cuda/nccl/nccl.h"
#include "tensor/gpus.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { FOUND_TEXT = 384, VERSION_TEXT = 48 };

/* The runtime encodes version 13.1 as 13010. */
static void inspect_driver(plugin_finding report, void *user) {
    int driver = 0, runtime = 0;
    char found[FOUND_TEXT];
    cudaRuntimeGetVersion(&runtime);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        report(user, false, "driver", "there is no NVIDIA driver",
               "install the driver for this GPU (Debian: apt install nvidia-driver; in a container: start it "
               "with --gpus all)");
        return;
    }
    snprintf(found, sizeof found, "for CUDA %d.%d; this backend was built with %d.%d", driver / 1000,
             driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    report(user, driver / 1000 >= runtime / 1000, "driver", found,
           "install a driver as new as the CUDA that the backend was built with");
}

/* Reports whether the GPU can be used, and whether the plugin has code for it. */
static void inspect_gpu(int index, plugin_finding report, void *user) {
    struct cudaDeviceProp p;
    backend_capabilities can;
    char what[32], found[FOUND_TEXT], remedy[FOUND_TEXT];
    cudaError_t error = cudaGetDeviceProperties(&p, index);
    if (error == cudaSuccess) error = cudaSetDevice(index);
    snprintf(what, sizeof what, "cuda:%d", index);
    if (error != cudaSuccess) {
        report(user, false, what, cudaGetErrorString(error), "restart it (nvidia-smi shows its state)");
        return;
    }
    error = kernels_find();
    gpu_fill_capabilities(10 * p.major + p.minor, what, false, &can);
    snprintf(found, sizeof found, "%s, compute capability %d.%d%s, %.1f GiB%s%s", p.name, p.major, p.minor,
             can.no_format[OTT_E4M3] ? " (no FP8)" : "", (double)p.totalGlobalMem / (1 << 30),
             error == cudaSuccess ? "" : "; this backend's kernels: ",
             error == cudaSuccess ? "" : cudaGetErrorString(error));
    snprintf(remedy, sizeof remedy,
             "build the backend for it: cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=%d%d && cmake --build "
             "--preset cuda",
             p.major, p.minor);
    report(user, error == cudaSuccess, what, found, remedy);
}

/* Returns the number of GPUs. */
static int inspect_gpus(plugin_finding report, void *user) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        report(user, false, "GPU", error == cudaSuccess ? "there is none" : cudaGetErrorString(error),
               "nvidia-smi must list one; CUDA_VISIBLE_DEVICES hides the GPUs that it does not name");
    for (int i = 0; i < count; i++) inspect_gpu(i, report, user);
    return count;
}

/* Formats version 91900 as 9.19.0. cuDNN, cuBLASLt, and NCCL from 2.9 use this encoding. */
static void show_version(size_t version, char out[VERSION_TEXT]) {
    snprintf(out, VERSION_TEXT, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

/* A library that is opened at run time. */
typedef struct used_library {
    const char *what, *file, *package, *function;
    size_t least; /* lowest supported version, in the library's encoding */
} used_library;

/* cuDNN's function returns the version, NCCL's stores it. */
static size_t version_of(void *library, const char *function) {
    union {
        void *symbol;
        size_t (*give)(void);
        int (*store)(int *version);
    } found = {.symbol = dlsym(library, function)};
    int version = 0;
    if (!found.symbol) return 0;
    if (strcmp(function, "ncclGetVersion") != 0) return found.give();
    return found.store(&version) == 0 ? (size_t)version : 0;
}

static void inspect_library(plugin_finding report, void *user, const used_library *l) {
    char remedy[FOUND_TEXT], found[FOUND_TEXT], here[VERSION_TEXT], least[VERSION_TEXT];
    snprintf(remedy, sizeof remedy, "pip install --upgrade %s, and add its lib folder to LD_LIBRARY_PATH",
             l->package);
    void *library = dlopen(l->file, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        report(user, false, l->what, reason ? reason : "cannot be opened", remedy);
        return;
    }
    size_t version = version_of(library, l->function);
    bool old = version < l->least;
    show_version(version, here);
    show_version(l->least, least);
    snprintf(found, sizeof found, "%s%s%s", here, old ? ", older than " : "", old ? least : "");
    report(user, !old, l->what, found, remedy);
    dlclose(library);
}

/* With cuDNN before 9.25, Ottava's slow kernels compute attention's backward. */
static const used_library cudnn = {"cuDNN", ATTENTION_CUDNN_FILE, ATTENTION_CUDNN_PACKAGE, "cudnnGetVersion",
                                   ATTENTION_CUDNN_DETERMINISTIC};
static const used_library nccl = {"NCCL", NCCL_FILE, NCCL_PACKAGE, "ncclGetVersion", NCCL_LEAST};

void inspect_machine(plugin_finding report, void *user) {
    char found[VERSION_TEXT];
    inspect_driver(report, user);
    int gpus = inspect_gpus(report, user);
    show_version(cublasLtGetVersion(), found);
    report(user, true, "cuBLASLt", found, NULL);
    inspect_library(report, user, &cudnn);
    if (gpus > 1) inspect_library(report, user, &nccl); /* NCCL is only needed between GPUs */
}
