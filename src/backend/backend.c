/* backend/backend: finds the backend of a name. */
#include "backend/backend.h"
#include "base/str.h"
#include "cpu/cpu.h"
#include <string.h>

static ott_status open_cpu(mem *account, int threads, device **out) {
    return cpu_open(account, threads, NULL, out);
}

static const backend_driver cpu = {.name = "cpu", .can = &cpu_capabilities, .open = open_cpu};

static ott_status fail_name(const char *name) {
    static const char *const names[] = {"auto", "cpu", "cuda"};
    if (str_starts_with(name, "cuda") || str_starts_with(name, "gpu"))
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "GPUs are not built yet: this build has no backend for \"%s\"; \"cpu\" and \"auto\" compute on "
            "the CPU",
            name);
    const char *nearest = str_nearest(name, names, 3);
    return status_fail(OTT_ERR_ARGUMENT, "there is no device \"%s\"; %s%s%s", name,
                       nearest ? "did you mean \"" : "give auto or cpu", nearest ? nearest : "",
                       nearest ? "\"?" : "");
}

static bool is_auto(const char *name) {
    return !name || strcmp(name, "auto") == 0;
}

ott_status backend_find(const char *name, const backend_driver **out) {
    const backend_driver *test = backend_for_tests ? backend_for_tests() : NULL;
    *out = test ? test : &cpu;
    return is_auto(name) || strcmp(name, cpu.name) == 0 ? OTT_OK : fail_name(name);
}

ott_status backend_open(const char *name, int threads, mem *account, const logger *log, device **out) {
    const backend_driver *driver;
    *out = NULL;
    TRY(backend_find(name, &driver));
    TRY(driver->open(account, threads, out));
    if (is_auto(name)) log_debug(log, "Device auto: %s", (*out)->name);
    return OTT_OK;
}
