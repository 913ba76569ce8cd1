/* backend/backend: a device by its name. */
#include "backend/backend.h"
#include "backend/loader.h"
#include "base/str.h"
#include "cpu/cpu.h"
#include <stdlib.h>
#include <string.h>

static ott_status open_cpu(mem *account, int threads, device **out) {
    backend_open_fn *test = backend_for_tests ? backend_for_tests() : NULL;
    return test ? test(account, threads, out) : cpu_open(account, threads, NULL, out);
}

static bool is_auto(const char *name) {
    return !name || strcmp(name, "auto") == 0;
}

static ott_status fail_name(const char *name) {
    static const char *const names[] = {"auto", "cpu", "cuda"};
    if (str_starts_with(name, "gpu"))
        return status_fail(OTT_ERR_ARGUMENT,
                           "there is no device \"%s\"; a GPU is cuda, or cuda:1 for the second", name);
    const char *nearest = str_nearest(name, names, 3);
    return status_fail(OTT_ERR_ARGUMENT, "there is no device \"%s\"; %s%s%s", name,
                       nearest ? "did you mean \"" : "give auto, cpu or cuda", nearest ? nearest : "",
                       nearest ? "\"?" : "");
}

/* "cuda", "cuda:12": the index of the GPU; -1: it is no such name. */
static int gpu_index(const char *name) {
    if (strcmp(name, "cuda") == 0) return 0;
    const char *digits = str_starts_with(name, "cuda:") ? name + 5 : "";
    size_t count = strspn(digits, "0123456789");
    return count == 0 || count > 3 || digits[count] ? -1 : atoi(digits);
}

/* A CUDA backend that lacks an op is not used: a run would fail in its middle. */
static ott_status open_gpu(const char *name, int index, mem *account, device **out) {
    const plugin *p;
    char missing[LOADER_TEXT];
    TRY(loader_find(&p));
    if (loader_list_missing(p, missing))
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: the CUDA backend is not whole yet, it has no %s; \"cpu\" and \"auto\" compute on the CPU",
            name, missing);
    return p->open(loader_services(), account, index, out);
}

ott_status backend_open(const char *name, int threads, mem *account, const logger *log, device **out) {
    *out = NULL;
    if (is_auto(name)) {
        TRY(open_cpu(account, threads, out));
        log_debug(log, "Device auto: %s", (*out)->name);
        return OTT_OK;
    }
    if (strcmp(name, "cpu") == 0) return open_cpu(account, threads, out);
    int index = gpu_index(name);
    return index < 0 ? fail_name(name) : open_gpu(name, index, account, out);
}

/* In a device that is opened for it. */
static ott_status check_device(const char *name, const recipe *r, mem *account) {
    device *d;
    TRY(backend_open(name, 1, account, NULL, &d));
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
