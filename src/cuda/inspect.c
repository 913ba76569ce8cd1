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

enum { FOUND_TEXT = 1024, VERSION_TEXT = 48, RECIPES_TEXT = 192 };

/* What to do if the driver is older than the CUDA of this build. Drivers 525 to 575 are CUDA 12's. */
static void advise_driver(int driver, int runtime, char out[FOUND_TEXT]) {
    int length = snprintf(out, FOUND_TEXT, "install driver %d or later", runtime >= 13000 ? 580 : 525);
    if (runtime < 13000 || driver < 12000) return;
    snprintf(out + length, FOUND_TEXT - (size_t)length,
             "; or, for a data-center GPU, cuda-compat-%d-%d, with its folder in LD_LIBRARY_PATH; or build "
             "this backend with CUDA 12.9 (CUDA_HOME), nvidia-cudnn-cu12 and nvidia-nccl-cu12, which run on "
             "this driver",
             runtime / 1000, runtime % 1000 / 10);
}

/* The runtime encodes version 13.1 as 13010. */
static void inspect_driver(plugin_finding report, void *user) {
    int driver = 0, runtime = 0;
    char found[FOUND_TEXT], remedy[FOUND_TEXT];
    cudaRuntimeGetVersion(&runtime);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        report(user, false, "driver", "there is no NVIDIA driver",
               "install the driver for this GPU (Debian: apt install nvidia-driver; in a container: start it "
               "with --gpus all)");
        return;
    }
    snprintf(found, sizeof found, "for CUDA %d.%d; this backend was built with %d.%d", driver / 1000,
             driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    advise_driver(driver, runtime, remedy);
    report(user, driver / 1000 >= runtime / 1000, "driver", found, remedy);
}

/* Reports whether the GPU can be used, its recipes, and whether the plugin has code for it. */
static void inspect_gpu(int index, plugin_finding report, void *user) {
    struct cudaDeviceProp p;
    backend_capabilities can;
    char what[32], found[FOUND_TEXT], remedy[FOUND_TEXT], recipes[RECIPES_TEXT];
    cudaError_t error = cudaGetDeviceProperties(&p, index);
    if (error == cudaSuccess) error = cudaSetDevice(index);
    snprintf(what, sizeof what, "cuda:%d", index);
    if (error != cudaSuccess) {
        report(user, false, what, cudaGetErrorString(error), "restart it (nvidia-smi shows its state)");
        return;
    }
    error = kernels_find();
    gpu_fill_capabilities(10 * p.major + p.minor, what, false, &can);
    backend_list_recipes(&can, recipes, sizeof recipes);
    snprintf(found, sizeof found, "%s, compute capability %d.%d%s, %.1f GiB%s%s", p.name, p.major, p.minor,
             can.no_format[OTT_E4M3] ? " (no FP8)" : "", (double)p.totalGlobalMem / (1 << 30),
             error == cudaSuccess ? "; recipes: " : "; this backend's kernels: ",
             error == cudaSuccess ? recipes : cudaGetErrorString(error));
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
               error == cudaErrorInsufficientDriver
                   ? "see the driver above"
                   : "nvidia-smi must list one; CUDA_VISIBLE_DEVICES hides the GPUs that it does not name");
    for (int i = 0; i < count; i++) inspect_gpu(i, report, user);
    return count;
}

/* Formats version 91900 as 9.19.0. cuDNN, cuBLASLt, and NCCL from 2.9 use this encoding. */
static void show_version(size_t version, char out[VERSION_TEXT]) {
    snprintf(out, VERSION_TEXT, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

/* A library that is opened at run time. */
typedef struct used_library {
    const char *what, *file, *function, *remedy;
    size_t least; /* lowest supported version, in the library's encoding */
} used_library;

/* A library's function that gives its version. cuDNN's returns the version, NCCL's stores it. */
typedef union version_function {
    const void *symbol;
    size_t (*give)(void);
    int (*store)(int *version);
} version_function;

/* Writes the version and the file that has the function, because several copies may be installed. */
static void show_library(size_t version, version_function function, char out[FOUND_TEXT]) {
    char text[VERSION_TEXT];
    Dl_info info = {.dli_fname = "?"};
    show_version(version, text);
    dladdr(function.symbol, &info);
    snprintf(out, FOUND_TEXT, "%s, %s", text, info.dli_fname);
}

static void inspect_library(plugin_finding report, void *user, const used_library *l) {
    char found[FOUND_TEXT], least[VERSION_TEXT];
    int stored = 0;
    void *library = dlopen(l->file, RTLD_LAZY | RTLD_LOCAL);
    version_function function = {.symbol = library ? dlsym(library, l->function) : NULL};
    if (!function.symbol) {
        const char *reason = dlerror();
        report(user, false, l->what, reason ? reason : "cannot be opened", l->remedy);
        if (library) dlclose(library);
        return;
    }
    size_t version = strcmp(l->function, "ncclGetVersion") != 0 ? function.give()
                     : function.store(&stored) == 0             ? (size_t)stored
                                                                : 0;
    show_library(version, function, found);
    show_version(l->least, least);
    size_t length = strlen(found);
    if (version < l->least) snprintf(found + length, sizeof found - length, ", older than %s", least);
    report(user, version >= l->least, l->what, found, l->remedy);
    dlclose(library);
}

/* With cuDNN before 9.25, Ottava's kernels compute attention of packed documents. */
static const used_library cudnn = {"cuDNN", ATTENTION_CUDNN_FILE, "cudnnGetVersion", ATTENTION_CUDNN_INSTALL,
                                   ATTENTION_CUDNN_EMPTY_DOCUMENTS};
static const used_library nccl = {"NCCL", NCCL_FILE, "ncclGetVersion", NCCL_INSTALL, NCCL_LEAST};

void inspect_machine(plugin_finding report, void *user) {
    char found[FOUND_TEXT];
    inspect_driver(report, user);
    int gpus = inspect_gpus(report, user);
    show_library(cublasLtGetVersion(), (version_function){.give = cublasLtGetVersion}, found);
    report(user, true, "cuBLASLt", found, NULL);
    inspect_library(report, user, &cudnn);
    if (gpus > 1) inspect_library(report, user, &nccl); /* NCCL is only needed between GPUs */
}
