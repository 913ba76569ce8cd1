/* tensor/host: host memory as device memory. */
#include "tensor/host.h"
#include "base/clock.h"
#include <string.h>
#include <unistd.h>

ott_status host_allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    return mem_alloc(d->account, kind, bytes, what, out);
}

void host_release(device *d, void *data) {
    mem_free(d->account, data);
}

ott_status host_copy(device *d, void *to, const void *from, int64_t bytes) {
    (void)d;
    if (bytes > 0) memmove(to, from, (size_t)bytes);
    return OTT_OK;
}

ott_status host_zero(device *d, void *data, int64_t bytes) {
    (void)d;
    if (bytes > 0) memset(data, 0, (size_t)bytes);
    return OTT_OK;
}

ott_status host_synchronize(device *d) {
    (void)d;
    return OTT_OK;
}

struct device_event {
    double recorded; /* clock_seconds() when the event was recorded */
};

ott_status host_event_open(device *d, device_event **out) {
    return mem_alloc(d->account, MEM_OTHER, sizeof(device_event), "an event", out);
}

void host_event_close(device *d, device_event *e) {
    mem_free(d->account, e);
}

ott_status host_event_record(device *d, device_event *e) {
    (void)d;
    e->recorded = clock_seconds();
    return OTT_OK;
}

ott_status host_event_wait(device *d, device_event *e) {
    (void)d, (void)e;
    return OTT_OK;
}

ott_status host_event_seconds(device *d, device_event *from, device_event *to, double *out) {
    (void)d;
    return *out = to->recorded - from->recorded, OTT_OK;
}

mem_stats host_taken(const device *d) {
    return mem_read(d->account);
}

void host_read_memory(const device *d, device_memory *out) {
    out->total = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    limit_read(mem_read(d->account).now, &out->limit);
}

device host_device(mem *account) {
    static const device_table table = {HOST_TABLE_MEMORY, HOST_TABLE_EVENTS, .copy = host_copy};
    return (device){.table = &table, .account = account, .name = "the host"};
}
