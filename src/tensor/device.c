/* tensor/device: checks arguments and calls the functions of the device table. */
#include "tensor/device.h"

ott_status(device_allocate)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    *out = NULL;
    STATUS_REQUIRE(bytes >= 0);
    return d->table->allocate(d, kind, bytes, what, out);
}

ott_status(device_allocate_mapped)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    if (!d->table->allocate_mapped) return device_allocate(d, kind, bytes, what, out);
    *out = NULL;
    STATUS_REQUIRE(bytes >= 0);
    return d->table->allocate_mapped(d, kind, bytes, what, out);
}

void device_release(device *d, void *data) {
    if (data) d->table->release(d, data);
}

enum { ARENA_BLOCK = 32 << 20 }; /* bytes of a block for several tensors */
/* Tensors of at least this many bytes get a block of their own: in a shared block, such a tensor could leave
   much memory unused. These blocks are large enough for huge pages (base/mem.c). */
enum { ARENA_OWN_BLOCK_FROM = 8 << 20 };

static ott_status add_arena_block(device *d, device_arena *a, mem_kind kind, int64_t bytes, const char *what,
                                  void **out) {
    TRY(mem_grow(d->account, MEM_OTHER, (a->count + 1) * (int64_t)sizeof *a->blocks, "list of blocks",
                 &a->blocks));
    TRY(device_allocate(d, kind, bytes, what, out));
    a->blocks[a->count++] = *out;
    return OTT_OK;
}

ott_status device_arena_take(device *d, device_arena *a, mem_kind kind, int64_t bytes, const char *what,
                             void **out) {
    int64_t aligned = backend_align(d->can, bytes);
    if (aligned >= ARENA_OWN_BLOCK_FROM) return add_arena_block(d, a, kind, aligned, what, out);
    if (aligned > a->rest) {
        void *block;
        TRY(add_arena_block(d, a, kind, ARENA_BLOCK, what, &block));
        a->next = block;
        a->rest = ARENA_BLOCK;
    }
    *out = a->next;
    a->next += aligned;
    a->rest -= aligned;
    return OTT_OK;
}

void device_arena_release(device *d, device_arena *a) {
    for (int i = 0; i < a->count; i++) device_release(d, a->blocks[i]);
    mem_free(d->account, a->blocks);
    *a = (device_arena){0};
}

ott_status(device_allocate_host)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    *out = NULL;
    STATUS_REQUIRE(bytes >= 0);
    return d->table->allocate_host(d, kind, bytes, what, out);
}

void device_release_host(device *d, void *data) {
    if (data) d->table->release_host(d, data);
}

ott_status device_copy_in(device *d, void *to_device, const void *from_host, int64_t bytes) {
    return d->table->copy_in(d, to_device, from_host, bytes);
}

ott_status device_copy_in_async(device *d, void *to_device, const void *staging, int64_t bytes) {
    return d->table->copy_in_async(d, to_device, staging, bytes);
}

ott_status device_copy_out(device *d, void *to_host, const void *from_device, int64_t bytes) {
    return d->table->copy_out(d, to_host, from_device, bytes);
}

ott_status device_copy(device *d, void *to, const void *from, int64_t bytes) {
    return d->table->copy(d, to, from, bytes);
}

ott_status device_copy_many(device *d, const device_piece *pieces, int64_t count) {
    if (d->table->copy_many) return d->table->copy_many(d, pieces, count);
    for (int64_t i = 0; i < count; i++) TRY(device_copy(d, pieces[i].to, pieces[i].from, pieces[i].bytes));
    return OTT_OK;
}

ott_status device_zero(device *d, void *data, int64_t bytes) {
    return d->table->zero(d, data, bytes);
}

ott_status device_synchronize(device *d) {
    return d->table->synchronize(d);
}

ott_status device_event_open(device *d, device_event **out) {
    *out = NULL;
    return d->table->event_open(d, out);
}

void device_event_close(device *d, device_event *e) {
    if (e) d->table->event_close(d, e);
}

ott_status device_event_record(device *d, device_event *e) {
    return d->table->event_record(d, e);
}

ott_status device_event_wait(device *d, device_event *e) {
    return d->table->event_wait(d, e);
}

ott_status device_event_seconds(device *d, device_event *from, device_event *to, double *out) {
    return d->table->event_seconds(d, from, to, out);
}

bool device_has_graphs(const device *d) {
    return d->table->capture_begin != NULL;
}

ott_status device_capture_begin(device *d) {
    STATUS_REQUIRE(device_has_graphs(d));
    return d->table->capture_begin(d);
}

ott_status device_capture_end(device *d, device_graph **out) {
    if (out) *out = NULL;
    return d->table->capture_end(d, out);
}

ott_status device_graph_run(device *d, device_graph *g) {
    return d->table->graph_run(d, g);
}

void device_graph_close(device *d, device_graph *g) {
    if (g) d->table->graph_close(d, g);
}

mem_stats device_taken(const device *d) {
    return d->table->taken(d);
}

void device_read_memory(const device *d, device_memory *out) {
    d->table->read_memory(d, out);
}

double device_peak(device *d, ott_dtype format) {
    return d->table->peak ? d->table->peak(d, format) : 0;
}

bool device_holds(device *d, const void *data, int64_t bytes) {
    return !d->table->holds || d->table->holds(d, data, bytes);
}

bool device_is_host(const device *d) {
    return !(d->dry_run ? d->dry_run : d)->table->holds;
}

void device_close(device *d) {
    if (d) d->table->close(d);
}
