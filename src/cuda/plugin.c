/* cuda/plugin: the one function that libottava_cuda.so exports. */
#include "backend/plugin.h"
#include "cuda/cuda.h"
#include "cuda/inspect.h"
#include "cuda/library.h"
#include "cuda/ops.h"

const plugin_services *cuda_library;

static ott_status count_devices(const plugin_services *services, int *out) {
    cuda_library = services;
    return cuda_count(out);
}

static ott_status open_cuda_device(const plugin_services *services, mem *account, int index, bool emulates,
                                   device **out) {
    cuda_library = services;
    return cuda_open(account, index, emulates, out);
}

__attribute__((visibility("default"))) const void *plugin_entry(void) {
    static plugin p = {
        .ops = &cuda_ops, .count = count_devices, .open = open_cuda_device, .inspect = inspect_machine};
    p.abi = plugin_abi();
    return &p;
}
