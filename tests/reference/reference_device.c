/* reference_device: host memory as a device, and the table of the reference's ops. */
#include "reference/reference_parts.h"
#include "tensor/host.h"

/* An op that is in ops.def but not here does not compile: write its loops in this folder. */
const op_table reference_ops = {
#define OP(name, fields) .name = reference_op_##name,
#include "tensor/ops.def"
#undef OP
};

static void close_device(device *d) {
    mem_free(d->account, d);
}

static const device_table host_table = {
    .allocate = host_allocate,
    .release = host_release,
    .allocate_host = host_allocate,
    .release_host = host_release,
    .copy_in = host_copy,
    .copy_in_async = host_copy,
    .copy_out = host_copy,
    .copy = host_copy,
    .zero = host_zero,
    .synchronize = host_synchronize,
    .event_open = host_event_open,
    .event_close = host_event_close,
    .event_record = host_event_record,
    .event_wait = host_event_wait,
    .event_seconds = host_event_seconds,
    .taken = host_taken,
    .read_memory = host_read_memory,
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
