/* reference_device: host memory as a device, and the table of the reference's ops. */
#include "reference/reference_parts.h"
#include <string.h>

/* An op that is in ops.def but not here does not compile: write its loops in this folder. */
const op_table reference_ops = {
#define OP(name, fields) .name = reference_op_##name,
#include "tensor/ops.def"
#undef OP
};

static ott_status allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    return mem_alloc(d->account, kind, bytes, what, out);
}

static void release(device *d, void *data) {
    mem_free(d->account, data);
}

static ott_status copy(device *d, void *to, const void *from, int64_t bytes) {
    (void)d;
    memcpy(to, from, (size_t)bytes);
    return OTT_OK;
}

static ott_status zero(device *d, void *data, int64_t bytes) {
    (void)d;
    memset(data, 0, (size_t)bytes);
    return OTT_OK;
}

static ott_status synchronize(device *d) {
    (void)d;
    return OTT_OK;
}

static void close_device(device *d) {
    mem_free(d->account, d);
}

static const device_table host_table = {
    .allocate = allocate,
    .release = release,
    .copy_in = copy,
    .copy_out = copy,
    .copy = copy,
    .zero = zero,
    .synchronize = synchronize,
    .close = close_device,
};

ott_status reference_device_open(mem *account, device **out) {
    void *block;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(device), "reference device", &block));
    device *d = block;
    static const backend_capabilities can = {.name = "reference", .alignment = MEM_ALIGNMENT};
    *d = (device){
        .table = &host_table, .ops = &reference_ops, .can = &can, .account = account, .name = "reference"};
    *out = d;
    return OTT_OK;
}
