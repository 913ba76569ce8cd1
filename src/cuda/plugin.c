/*
 * cuda/plugin: the one function that libottava_cuda.so exports.
 */
#include "backend/plugin.h"
#include "cuda/cuda.h"
#include "cuda/inspect.h"
#include "cuda/library.h"
#include "cuda/ops.h"

const plugin_services *cuda_library;

static ott_status open_device(const plugin_services *services, mem *account, int index, device **out) {
    cuda_library = services;
    return cuda_open(account, index, out);
}

__attribute__((visibility("default"))) const plugin *plugin_entry(void) {
    static plugin p = {.ops = &cuda_ops, .open = open_device, .inspect = inspect_machine};
    p.abi = plugin_abi();
    return &p;
}
