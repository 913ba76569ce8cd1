/* tensor/device: the checked calls over the device table. */
#include "tensor/device.h"

ott_status device_allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    *out = NULL;
    STATUS_REQUIRE(bytes >= 0);
    return d->table->allocate(d, kind, bytes, what, out);
}

void device_release(device *d, void *data) {
    if (data) d->table->release(d, data);
}

ott_status device_copy_in(device *d, void *to_device, const void *from_host, int64_t bytes) {
    return d->table->copy_in(d, to_device, from_host, bytes);
}

ott_status device_copy_out(device *d, void *to_host, const void *from_device, int64_t bytes) {
    return d->table->copy_out(d, to_host, from_device, bytes);
}

ott_status device_copy(device *d, void *to, const void *from, int64_t bytes) {
    return d->table->copy(d, to, from, bytes);
}

ott_status device_zero(device *d, void *data, int64_t bytes) {
    return d->table->zero(d, data, bytes);
}

ott_status device_synchronize(device *d) {
    return d->table->synchronize(d);
}

double device_peak(device *d, ott_dtype format) {
    return d->table->peak ? d->table->peak(d, format) : 0;
}

void device_close(device *d) {
    if (d) d->table->close(d);
}
