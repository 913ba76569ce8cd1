/* backend/backend: opens a device by its name. */
#include "backend/backend.h"
#include "backend/loader.h"
#include "base/str.h"
#include "cpu/cpu.h"
#include <stdlib.h>
#include <string.h>

static ott_status open_cpu(const backend_choice *c, mem *account, device **out) {
    backend_open_fn *test = backend_for_tests ? backend_for_tests() : NULL;
    if (test) return test(account, c->threads, out);
    TRY(cpu_open(account, c->threads, NULL, out));
    const char *warning = cpu_warning(*out);
    if (warning) log_warning(c->log, "Device cpu: %s", warning);
    return OTT_OK;
}

static bool is_auto(const char *name) {
    return !name || strcmp(name, "auto") == 0;
}

static ott_status fail_device_name(const char *name) {
    static const char *const names[] = {"auto", "cpu", "cuda"};
    if (str_starts_with(name, "gpu"))
        return status_fail(OTT_ERR_ARGUMENT,
                           "there is no device \"%s\"; a GPU is cuda, or cuda:1 for the second", name);
    const char *nearest = str_nearest(name, names, 3);
    return status_fail(OTT_ERR_ARGUMENT, "there is no device \"%s\"; %s%s%s", name,
                       nearest ? "did you mean \"" : "give auto, cpu or cuda", nearest ? nearest : "",
                       nearest ? "\"?" : "");
}

/* Returns the index of the GPU: 0 for "cuda", 12 for "cuda:12"; -1 if the name is not a GPU's. */
static int gpu_index(const char *name) {
    if (strcmp(name, "cuda") == 0) return 0;
    const char *digits = str_starts_with(name, "cuda:") ? name + 5 : "";
    size_t count = strspn(digits, "0123456789");
    return count == 0 || count > 3 || digits[count] ? -1 : atoi(digits);
}

/* Finds the CUDA backend. Fails if the backend does not have all ops, because a run would fail later. */
static ott_status find_plugin(const plugin **out) {
    char missing[LIBRARY_TEXT];
    TRY(loader_find(out));
    if (!loader_list_missing(*out, missing)) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "cuda: the CUDA backend is incomplete, it lacks %s; \"cpu\" and \"auto\" compute on the CPU",
        missing);
}

/* Chooses the GPU for the name "cuda": the only visible GPU, or of several the one with index local_rank. */
static ott_status choose_gpu(const plugin *p, const backend_choice *c, int *index) {
    int count;
    TRY(p->count(loader_services(), &count));
    *index = count == 1 ? 0 : c->local_rank;
    if (*index < count) return OTT_OK;
    return status_fail(
        OTT_ERR_DEVICE,
        "cuda: process %d of this machine finds %d GPUs; each process needs its own: start at most %d here, "
        "or compute on the CPU (\"cpu\")",
        c->local_rank + 1, count, count);
}

static ott_status open_gpu(const backend_choice *c, int index, mem *account, device **out) {
    const plugin *p;
    bool has_index = strchr(c->name, ':') != NULL;
    if (has_index && c->local_ranks > 1)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s is one GPU, and %d processes run on this machine: give \"cuda\", with which "
                           "each process has its own GPU",
                           c->name, c->local_ranks);
    TRY(find_plugin(&p));
    if (!has_index) TRY(choose_gpu(p, c, &index));
    return p->open(loader_services(), account, index, c->emulates, out);
}

/* ---- "auto" ---- */

static bool can_run(const device *d, const recipe *r) {
    return !r || backend_check_recipe(d->can, r) == OTT_OK;
}

/* Opens a GPU that can run recipe and second_recipe of `c`. If there is none, returns false, with the reason
   in status_text(). *is_here: true if this machine has a GPU. */
static bool try_gpu(const backend_choice *c, mem *account, device **out, bool *is_here) {
    const plugin *p;
    backend_choice gpu = *c;
    gpu.name = "cuda";
    *is_here = false;
    if (find_plugin(&p) != OTT_OK) return false;
    int count;
    *is_here = p->count(loader_services(), &count) == OTT_OK && count > 0;
    if (open_gpu(&gpu, 0, account, out) != OTT_OK) return false;
    if (can_run(*out, c->recipe) && can_run(*out, c->second_recipe)) return true;
    device_close(*out);
    *out = NULL;
    return false;
}

static ott_status open_best(const backend_choice *c, mem *account, device **out) {
    bool is_here;
    if (backend_for_tests && backend_for_tests()) return open_cpu(c, account, out);
    if (try_gpu(c, account, out, &is_here)) {
        log_info(c->log, "Device auto: %s", (*out)->name);
        return OTT_OK;
    }
    if (is_here)
        log_warning(c->log, "Device auto: the CPU, though there is a GPU: %s", status_text());
    else
        log_debug(c->log, "Device auto: the CPU: %s", status_text());
    return open_cpu(c, account, out);
}

/* ---- by name ---- */

ott_status backend_open(const backend_choice *c, mem *account, device **out) {
    *out = NULL;
    if (is_auto(c->name)) return open_best(c, account, out);
    if (strcmp(c->name, "cpu") == 0) return open_cpu(c, account, out);
    int index = gpu_index(c->name);
    return index < 0 ? fail_device_name(c->name) : open_gpu(c, index, account, out);
}

ott_status backend_check_name(const char *name) {
    bool known = is_auto(name) || strcmp(name, "cpu") == 0 || gpu_index(name) >= 0;
    return known ? OTT_OK : fail_device_name(name);
}

bool backend_has_cuda(void) {
    const plugin *p;
    return find_plugin(&p) == OTT_OK;
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
    if (is_auto(name) || strcmp(name, "cpu") == 0)
        return r ? backend_check_recipe(&cpu_capabilities, r) : OTT_OK;
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
