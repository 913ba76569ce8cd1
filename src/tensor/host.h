/*
 * tensor/host: functions of the device table for devices that use host memory. Each call completes before it
 * returns. An event keeps the time at which it was recorded.
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
mem_stats host_taken(const device *d); /* memory counts of the device's account */
void host_read_memory(const device *d, device_memory *out);

/* Returns a device for host memory, without an op table. It needs no close. The account must outlive it. */
device host_device(mem *account);

/* Entries of a device_table for host memory. _MEMORY: memory and copies; _EVENTS: events and memory use. */
#define HOST_TABLE_MEMORY                                                                                    \
    .allocate = host_allocate, .release = host_release, .allocate_host = host_allocate,                      \
    .release_host = host_release, .copy_in = host_copy, .copy_in_async = host_copy, .copy_out = host_copy,   \
    .zero = host_zero
#define HOST_TABLE_EVENTS                                                                                    \
    .synchronize = host_synchronize, .event_open = host_event_open, .event_close = host_event_close,         \
    .event_record = host_event_record, .event_wait = host_event_wait, .event_seconds = host_event_seconds,   \
    .taken = host_taken, .read_memory = host_read_memory

#endif
