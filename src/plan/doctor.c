/* plan/doctor: checks this machine and writes one line per finding. */
#include "plan/doctor.h"
#include "api/context.h"
#include "backend/backend.h"
#include "backend/loader.h"
#include "base/str.h"
#include "comm/mpi.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct doctor {
    str text;
    int missing;
} doctor;

static void print_finding(void *user, bool good, const char *what, const char *found, const char *way_out) {
    doctor *d = user;
    str_printf(&d->text, "%-9s %-13s %s\n", good ? "ok" : "missing", what, found);
    if (good) return;
    d->missing++;
    str_printf(&d->text, "%24s-> %s\n", "", way_out);
}

static ott_status report_cpu(doctor *d, ott_context *context) {
    device *cpu;
    TRY(backend_open(&(backend_choice){.name = "cpu", .threads = context->threads}, context->account, &cpu));
    print_finding(d, true, "cpu", cpu->name, NULL);
    const char *refusal = backend_tiles_refusal(cpu);
    if (refusal)
        print_finding(
            d, false, "AMX", refusal,
            "results are the same without AMX; permission to use it needs Linux 5.16 or newer, and a sandbox "
            "must allow arch_prctl");
    device_close(cpu);
    return OTT_OK;
}

/* Loading the backend fails if it was not built, or if cuBLASLt, with which it is linked, is missing. */
static void report_no_backend(doctor *d) {
    const char *why = status_text();
    print_finding(d, false, "CUDA backend", why,
                  strstr(why, "libcublasLt")
                      ? "pip install nvidia-cublas, and its lib folder in LD_LIBRARY_PATH"
                      : "make cuda");
}

static bool has_nvcc(char path[PATH_MAX]) {
    const char *home = getenv("CUDA_HOME"), *places = getenv("PATH");
    snprintf(path, PATH_MAX, "%s/bin/nvcc", home && *home ? home : "/usr/local/cuda");
    if (access(path, X_OK) == 0) return true;
    for (const char *at = places; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(path, PATH_MAX, "%.*s/nvcc", (int)strcspn(at, ":"), at);
        if (access(path, X_OK) == 0) return true;
    }
    return false;
}

static void report_toolkit(doctor *d) {
    char path[PATH_MAX];
    bool there = has_nvcc(path);
    print_finding(d, there, "CUDA toolkit", there ? path : "no nvcc in CUDA_HOME, /usr/local/cuda or PATH",
                  "install CUDA 13 (developer.nvidia.com/cuda-downloads): the backend is built with it");
}

static void report_driver(doctor *d) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    print_finding(
        d, driver != NULL, "driver", driver ? "libcuda.so.1" : "no NVIDIA driver",
        "install the driver for this GPU (Debian: apt install nvidia-driver; in a container: start it with "
        "--gpus all)");
    if (driver) dlclose(driver);
}

static void report_gpu(doctor *d) {
    const plugin *p;
    char missing[LIBRARY_TEXT];
    if (loader_find(&p) != OTT_OK) {
        report_no_backend(d);
        report_toolkit(d);
        report_driver(d);
        return;
    }
    if (loader_list_missing(p, missing))
        print_finding(d, false, "CUDA backend", "it is incomplete", "train on the CPU");
    else
        print_finding(d, true, "CUDA backend", LOADER_FILE, NULL);
    p->inspect(print_finding, d);
}

static void report_mpi(doctor *d) {
    const char *version;
    bool there = mpi_version(&version) == OTT_OK;
    print_finding(d, there, "MPI", there ? version : "libottava_mpi.so cannot be opened",
                  "only runs with several ranks need it: install Open MPI and build again");
}

ott_status doctor_run(ott_context *context, ott_text_fn write, void *user, int *missing) {
    doctor d = {.text = {.account = context->account}};
    ott_status status = report_cpu(&d, context);
    report_mpi(&d);
    if (status == OTT_OK) report_gpu(&d);
    if (status == OTT_OK) status = str_finish(&d.text);
    if (status == OTT_OK) write(user, d.text.text);
    *missing = d.missing;
    str_free(&d.text);
    return status;
}
