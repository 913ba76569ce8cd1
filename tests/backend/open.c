/* open: opens the CPU, with or without a fence, or a GPU. */
#include "backend/open.h"
#include "backend/fenced.h"
#include "backend/loader.h"
#include "cpu/cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The CUDA backend. Defined only in programs that link it (tests/cuda/device.cmake). */
ott_status cuda_open(mem *account, int index, bool emulates, device **out) __attribute__((weak));

static bool is_cuda(const char *name) {
    return name && strcmp(name, "cuda") == 0;
}

static ott_status open_gpu(mem *account, device **out) {
    const plugin *p;
    bool emulates = getenv(TEST_EMULATES_VARIABLE);
    if (cuda_open) return cuda_open(account, 0, emulates, out);
    TRY(loader_find(backend_of_name("cuda"), &p));
    return p->open(loader_services(), account, 0, false, out);
}

bool test_device_has_own_sums(const device *d) {
    return is_cuda(getenv(TEST_DEVICE_VARIABLE)) && !cuda_open && d->threads == 0;
}

ott_status test_device_open_named(const char *name, mem *account, int threads, const char *isa,
                                  device **out) {
    device *cpu;
    if (is_cuda(name)) return open_gpu(account, out);
    if (name && strcmp(name, "amx_emulated") == 0) return cpu_open(account, threads, name, out);
    bool plain = !name || !*name, transposed = !plain && strcmp(name, "fenced_transposed") == 0;
    if (!plain && !transposed && strcmp(name, "fenced") != 0)
        return status_fail(OTT_ERR_ARGUMENT,
                           TEST_DEVICE_VARIABLE "=%s: give amx_emulated, fenced, fenced_transposed or cuda",
                           name);
    if (plain) return cpu_open(account, threads, isa, out);
    *out = NULL;
    TRY(cpu_open(account, threads, isa, &cpu));
    return fenced_open(cpu, transposed, out);
}

ott_status test_device_open(mem *account, int threads, const char *isa, device **out) {
    return test_device_open_named(getenv(TEST_DEVICE_VARIABLE), account, threads, isa, out);
}

ott_status test_device_open_gpu(mem *account, int index, device **out) {
    STATUS_REQUIRE(cuda_open);
    return cuda_open(account, index, false, out);
}

void *test_device_fetch(device *d, const void *data, int64_t bytes) {
    void *host = malloc((size_t)bytes + 1);
    if (host && device_copy_out(d, host, data, bytes) == OTT_OK) return host;
    fprintf(stderr, "test_device_fetch: %s\n", host ? status_text() : "no memory");
    abort();
}
