/* reference_device: a device with host memory, and the op table of the reference. */
#include "reference/reference_parts.h"
#include "tensor/host.h"

/* An op of ops.def without a function reference_op_NAME is a compile error here: write its loops. */
const op_table reference_ops = {
#define OP(name, fields) .name = reference_op_##name,
#include "tensor/ops.def"
#undef OP
};

static void close_device(device *d) {
    mem_free(d->account, d);
}

static const device_table host_table = {
    HOST_TABLE_MEMORY,
    .copy = host_copy,
    HOST_TABLE_EVENTS,
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
