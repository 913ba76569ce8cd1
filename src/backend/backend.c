/* backend/backend: opens a device by its name. */
#include "backend/backend.h"
#include "backend/loader.h"
#include "base/text/str.h"
#include "cpu/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a device of a backend ---- */

enum { NO_INDEX = -1 };

static ott_status open_cpu(const backend_row *row, const backend_choice *c, int index, mem *account,
                           device **out) {
    backend_open_fn *test = backend_for_tests ? backend_for_tests() : NULL;
    (void)index;
    if (test) return test(account, c->threads, out);
    TRY(cpu_open(account, c->threads, NULL, out));
    const char *warning = cpu_warning(*out);
    if (warning) log_warning(c->log, "Device %s: %s", row->name, warning);
    return OTT_OK;
}

/* Finds the backend's plugin. Fails if the plugin does not have all ops, because a run would fail later. */
static ott_status find_plugin(const backend_row *row, const plugin **out) {
    char missing[LIBRARY_TEXT];
    TRY(loader_find(row, out));
    if (!loader_list_missing(*out, missing)) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s: the %s backend is incomplete, it lacks %s; \"cpu\" and \"auto\" compute on the CPU", row->name,
        row->title, missing);
}

/* Chooses the GPU for a name without an index: the only visible GPU. If there are several, the one with index
   local_rank. */
static ott_status choose_gpu(const backend_row *row, const plugin *p, const backend_choice *c, int *index) {
    int count;
    TRY(p->count(loader_services(), &count));
    *index = count == 1 ? 0 : c->local_rank;
    if (*index < count) return OTT_OK;
    return status_fail(
        OTT_ERR_DEVICE,
        "%s: process %d of this machine finds %d GPUs; each process needs its own: start at most %d here, "
        "or compute on the CPU (\"cpu\")",
        row->name, c->local_rank + 1, count, count);
}

static ott_status open_gpu(const backend_row *row, const backend_choice *c, int index, mem *account,
                           device **out) {
    const plugin *p;
    if (index != NO_INDEX && c->local_ranks > 1)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s is one GPU, and %d processes run on this machine: give \"%s\", with which "
                           "each process has its own GPU",
                           c->name, c->local_ranks, row->name);
    TRY(find_plugin(row, &p));
    if (index == NO_INDEX) TRY(choose_gpu(row, p, c, &index));
    return p->open(loader_services(), account, index, c->emulates, out);
}

/* ---- the backends ---- */

/* A new backend is a new row. "auto" tries the plugins in this order, up to the first with a device here. */
static const backend_row rows[] = {
    {.name = "cpu", .open = open_cpu, .can = &cpu_capabilities},
    {.name = "cuda",
     .title = "CUDA",
     .plugin = {.file = "libottava_cuda.so", .variable = "OTTAVA_CUDA_PATH"},
     .open = open_gpu,
     .is_nvidia = true,
     .vendor = "NVIDIA",
     .build = "make cuda",
     .compiler = {"nvcc",
                  "install CUDA 13 (developer.nvidia.com/cuda-downloads): the backend is built with it",
                  "CUDA_HOME", "/usr/local/cuda"},
     .driver = {.file = "libcuda.so.1",
                .remedy = "install the driver for this GPU (Debian: apt install nvidia-driver; in a "
                          "container: start it with --gpus all)"},
     .linked = {.file = "libcublasLt",
                .remedy =
                    "python3 -m venv ~/nvidia && ~/nvidia/bin/pip install nvidia-cublas (libcublasLt.so.12: "
                    "nvidia-cublas-cu12), and its lib folder in LD_LIBRARY_PATH"},
     .loaded = &(const plugin *){NULL}},
};
enum { ROWS = sizeof rows / sizeof *rows };

const backend_row *backend_table(int *count) {
    *count = ROWS;
    return rows;
}

bool backend_is_built(const backend_row *row) {
    const plugin *p;
    return !row->plugin.file || find_plugin(row, &p) == OTT_OK;
}

/* ---- names ---- */

static bool is_auto(const char *name) {
    return !name || strcmp(name, "auto") == 0;
}

static ott_status fail_device_name(const char *name) {
    const char *names[ROWS + 1] = {"auto"}, *gpu = "";
    char list[128] = "auto";
    for (int i = 0; i < ROWS; i++) {
        size_t length = strlen(list);
        names[i + 1] = rows[i].name;
        snprintf(list + length, sizeof list - length, "%s%s", i + 1 < ROWS ? ", " : " or ", rows[i].name);
        if (rows[i].plugin.file && !*gpu) gpu = rows[i].name;
    }
    if (str_starts_with(name, "gpu"))
        return status_fail(OTT_ERR_ARGUMENT, "there is no device \"%s\"; a GPU is %s, or %s:1 for the second",
                           name, gpu, gpu);
    const char *nearest = str_nearest(name, names, ROWS + 1);
    return status_fail(OTT_ERR_ARGUMENT, "there is no device \"%s\"; %s%s%s", name,
                       nearest ? "did you mean \"" : "give ", nearest ? nearest : list, nearest ? "\"?" : "");
}

/* Finds a backend and the device's index: 12 for "cuda:12", NO_INDEX for "cuda". */
static const backend_row *find_backend_row(const char *name, int *index) {
    *index = NO_INDEX;
    for (int i = 0; i < ROWS; i++) {
        if (!str_starts_with(name, rows[i].name)) continue;
        const char *rest = name + strlen(rows[i].name);
        if (!*rest) return &rows[i];
        size_t digits = *rest == ':' ? strspn(rest + 1, "0123456789") : 0;
        if (!rows[i].plugin.file || digits == 0 || digits > 3 || rest[1 + digits]) continue;
        *index = atoi(rest + 1);
        return &rows[i];
    }
    return NULL;
}

const backend_row *backend_of_name(const char *name) {
    int index;
    return find_backend_row(name, &index);
}

/* ---- "auto" ---- */

static bool can_run(const device *d, const recipe *r) {
    return !r || backend_check_recipe(d->can, r) == OTT_OK;
}

/* Opens a GPU that can run recipe and second_recipe of `c`. If there is none, returns false, with the reason
   in status_text(). *is_here: true if this machine has a GPU. */
static bool try_gpu(const backend_row *row, const backend_choice *c, mem *account, device **out,
                    bool *is_here) {
    const plugin *p;
    int count;
    *is_here = false;
    if (find_plugin(row, &p) != OTT_OK) return false;
    *is_here = p->count(loader_services(), &count) == OTT_OK && count > 0;
    if (open_gpu(row, c, NO_INDEX, account, out) != OTT_OK) return false;
    if (can_run(*out, c->recipe) && can_run(*out, c->second_recipe)) return true;
    device_close(*out);
    *out = NULL;
    return false;
}

static ott_status open_best(const backend_choice *c, mem *account, device **out) {
    bool is_here = false;
    if (backend_for_tests && backend_for_tests()) return open_cpu(rows, c, NO_INDEX, account, out);
    for (int i = 0; i < ROWS && !is_here; i++) {
        if (!rows[i].plugin.file || !try_gpu(&rows[i], c, account, out, &is_here)) continue;
        log_info(c->log, "Device auto: %s", (*out)->name);
        return OTT_OK;
    }
    if (is_here)
        log_warning(c->log, "Device auto: the CPU, though there is a GPU: %s", status_text());
    else
        log_debug(c->log, "Device auto: the CPU: %s", status_text());
    return open_cpu(rows, c, NO_INDEX, account, out);
}

/* ---- by name ---- */

ott_status backend_open(const backend_choice *c, mem *account, device **out) {
    int index;
    *out = NULL;
    if (is_auto(c->name)) return open_best(c, account, out);
    const backend_row *row = find_backend_row(c->name, &index);
    return row ? row->open(row, c, index, account, out) : fail_device_name(c->name);
}

ott_status backend_check_name(const char *name) {
    return is_auto(name) || backend_of_name(name) ? OTT_OK : fail_device_name(name);
}

/* Fails if the device that was opened cannot run the recipe. */
static ott_status check_device(const char *name, const recipe *r, mem *account) {
    device *d;
    TRY(backend_open(&(backend_choice){.name = name, .threads = 1}, account, &d));
    ott_status status = r ? backend_check_recipe(d->can, r) : OTT_OK;
    device_close(d);
    return status;
}

ott_status backend_check(const char *name, const recipe *r) {
    mem *account;
    const backend_row *row = is_auto(name) ? rows : backend_of_name(name);
    if (row && row->can) return r ? backend_check_recipe(row->can, r) : OTT_OK;
    TRY(mem_open(&account));
    ott_status status = check_device(name, r, account);
    mem_close(account);
    return status;
}

bool backend_has_tiles(const device *d) {
    return cpu_has_tiles(d);
}

ott_status backend_tiles_speed(device *d, double *out) {
    return cpu_tiles_speed(d, out);
}

const char *backend_tiles_refusal(const device *d) {
    const char *warning = cpu_warning(d);
    return warning ? warning : cpu_tiles_refusal();
}

const char *backend_peak_unit(const device *d, ott_dtype format) {
    return cpu_peak_unit(d, format);
}
