/*
 * tests/api/plugin/gpu: a CUDA plugin that computes nothing. It reports one GPU with the capabilities of an
 * H100 if OTTAVA_TEST_GPU is set, and no GPU otherwise.
 */
#include "backend/plugin.h"
#include <stdlib.h>

#define OP(name, fields)                                                                                     \
    static ott_status name##_of_nothing(exec *cx, const name##_args *a) {                                    \
        (void)cx, (void)a;                                                                                   \
        return OTT_ERR_UNSUPPORTED;                                                                          \
    }
#define MANY(name)
#include "tensor/ops.def"
#undef OP

static const op_table ops = {
#define OP(name, fields) .name = name##_of_nothing,
#define MANY(name)
#include "tensor/ops.def"
#undef OP
};

static const backend_capabilities h100 = {
    .name = "cuda",
    .alignment = 16,
    .no_granularity = {[GRANULARITY_1X32] = "needs compute capability 10.0"}};

static ott_status count(const plugin_services *services, int *out) {
    *out = getenv("OTTAVA_TEST_GPU") ? 1 : 0;
    return *out ? OTT_OK : services->fail(OTT_ERR_DEVICE, "cuda: there is no GPU here");
}

static void close_gpu(device *d) {
    (void)d;
}

static ott_status open_gpu(const plugin_services *services, mem *account, int index, bool emulates,
                           device **out) {
    static const device_table table = {.close = close_gpu};
    static device d = {.table = &table, .ops = &ops, .can = &h100, .name = "cuda:0 H100"};
    (void)services, (void)account, (void)index, (void)emulates;
    *out = &d;
    return OTT_OK;
}

static void inspect(plugin_finding report, void *user) {
    (void)report, (void)user;
}

__attribute__((visibility("default"))) const void *plugin_entry(void) {
    static plugin p = {.ops = &ops, .count = count, .open = open_gpu, .inspect = inspect};
    p.abi = plugin_abi();
    return &p;
}
