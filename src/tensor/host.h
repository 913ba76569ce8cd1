/*
 * tensor/host: what device tables are made of where a device's memory is the host's: every call has completed when it
 * returns, and an event is the moment it is recorded.
 */
#ifndef TENSOR_HOST_H
#define TENSOR_HOST_H

#include "tensor/device.h"

ott_status host_allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
void host_release(device *d, void *data);
ott_status host_copy(device *d, void *to, const void *from, int64_t bytes);
ott_status host_zero(device *d, void *data, int64_t bytes);
ott_status host_synchronize(device *d);
ott_status host_event_open(device *d, device_event **out);
void host_event_close(device *d, device_event *e);
ott_status host_event_record(device *d, device_event *e);
ott_status host_event_wait(device *d, device_event *e);
ott_status host_event_seconds(device *d, device_event *from, device_event *to, double *out);
mem_stats host_taken(const device *d); /* the device's account */
void host_read_memory(const device *d, device_memory *out);

#endif
