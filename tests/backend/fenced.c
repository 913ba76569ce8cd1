/* fenced: returns addresses that the host cannot access, and each call maps them to the inner device. */
#include "backend/fenced.h"
#include "backend/op_args.h"
#include "tensor/exec.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* One allocation. fence: the address that the host sees. memory: the address on the inner device. */
typedef struct fenced_block {
    char *fence, *memory;
    int64_t bytes;
    char what[48];
} fenced_block;

typedef struct fenced_device {
    device base; /* must be first: a device is cast to fenced_device */
    backend_capabilities can;
    device *inner;
    const op_table *kernels; /* the inner device's op table */
    pthread_mutex_t lock;    /* guards the list of blocks, which a checkpoint thread reads during training */
    fenced_block *blocks;
    int count, capacity;
    int64_t given, done,
        /* given: number of calls so far that a GPU would queue. done: number of these calls that are
           finished, because the host has waited for them. waits: how often the host has waited. */
        waits;
    char name[80];
} fenced_device;

static fenced_device *fenced_of(device *d) {
    return (fenced_device *)d;
}

/* ---- counts of queued calls ---- */

static void give(fenced_device *f) {
    pthread_mutex_lock(&f->lock);
    f->given++;
    pthread_mutex_unlock(&f->lock);
}

static int64_t given_so_far(fenced_device *f) {
    pthread_mutex_lock(&f->lock);
    int64_t given = f->given;
    pthread_mutex_unlock(&f->lock);
    return given;
}

/* Waits until the first `given` calls are finished. */
static void wait_for(fenced_device *f, int64_t given) {
    pthread_mutex_lock(&f->lock);
    f->waits += f->done < given;
    if (f->done < given) f->done = given;
    pthread_mutex_unlock(&f->lock);
}

int64_t fenced_waits(const device *d) {
    return ((const fenced_device *)d)->waits;
}

/* ---- from a fenced address to its memory ---- */

static const fenced_block *block_around(const fenced_device *f, const void *address) {
    for (int i = f->count - 1; i >= 0; i--) {
        const char *fence = f->blocks[i].fence;
        if ((const char *)address >= fence && (const char *)address <= fence + f->blocks[i].bytes)
            return &f->blocks[i];
    }
    return NULL;
}

static ott_status find_memory(const fenced_device *f, void **address, int64_t bytes) {
    const fenced_block *b = block_around(f, *address);
    if (!b)
        return status_fail(OTT_ERR_DEVICE,
                           "%p is not an address of this device; copy to the device first (device_copy_in)",
                           *address);
    int64_t offset = (char *)*address - b->fence;
    if (bytes > b->bytes - offset)
        return status_fail(OTT_ERR_DEVICE, "%lld bytes from byte %lld on end beyond the %lld bytes of %s",
                           (long long)bytes, (long long)offset, (long long)b->bytes, b->what);
    *address = b->memory + offset;
    return OTT_OK;
}

static ott_status behind_fence(void *user, const char *what, void **address, int64_t bytes) {
    fenced_device *f = user;
    (void)what;
    pthread_mutex_lock(&f->lock);
    ott_status status = find_memory(f, address, bytes);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static ott_status check_host(fenced_device *f, const void *address) {
    pthread_mutex_lock(&f->lock);
    const fenced_block *b = block_around(f, address);
    pthread_mutex_unlock(&f->lock);
    if (!b || (const char *)address == b->fence + b->bytes) return OTT_OK;
    return status_fail(OTT_ERR_DEVICE,
                       "a copy between host and device has two device addresses, the second in %s", b->what);
}

/* ---- ops ---- */

/* An op's arguments, with the addresses on the inner device. */
typedef struct inner_call {
    exec cx;
    op_args args;
} inner_call;

static ott_status prepare_call(const exec *cx, enum op_index op, const void *args, inner_call *out) {
    fenced_device *f = fenced_of(cx->device);
    const op_info *info = op_at((int)op);
    out->cx = *cx;
    out->cx.device = f->inner;
    give(f);
    if (cx->workspace) TRY(behind_fence(f, "workspace", &out->cx.workspace, 1));
    return op_args_copy(info, args, behind_fence, f, &out->args);
}

#define OP(name, fields)                                                                                     \
    static ott_status fenced_op_##name(exec *cx, const name##_args *a) {                                     \
        inner_call call;                                                                                     \
        TRY(prepare_call(cx, OP_INDEX_##name, a, &call));                                                    \
        return fenced_of(cx->device)->kernels->name(&call.cx, (const name##_args *)(void *)call.args.args);  \
    }
#include "tensor/ops.def"
#undef OP

/* A list of op calls with addresses on the inner device. */
typedef struct inner_list {
    inner_call *calls; /* the arguments that the list's items point at */
    char *items;       /* the items, one after the other */
} inner_list;

static ott_status fill_list(const exec *cx, enum op_index op, const void *items, int64_t count,
                            const inner_list *out) {
    size_t size = op_at((int)op)->args_size;
    for (int64_t i = 0; i < count; i++) {
        TRY(prepare_call(cx, op, (const char *)items + (size_t)i * size, &out->calls[i]));
        memcpy(out->items + (size_t)i * size, out->calls[i].args.args, size);
    }
    return OTT_OK;
}

static inner_list open_list(enum op_index op, int64_t count) {
    inner_list list = {.calls = calloc((size_t)count, sizeof *list.calls),
                       .items = calloc((size_t)count, op_at((int)op)->args_size)};
    if (!list.calls || !list.items) abort();
    return list;
}

/* Runs a list of calls of an op on the inner device, by the op's function for lists or call by call. */
#define OP(name, fields)
#define MANY(name)                                                                                           \
    static ott_status run_##name##_many(const op_table *kernels, exec *cx, const name##_args *items,         \
                                        int64_t count) {                                                     \
        if (kernels->name##_many) return kernels->name##_many(cx, items, count);                             \
        for (int64_t i = 0; i < count; i++) TRY(kernels->name(cx, &items[i]));                               \
        return OTT_OK;                                                                                       \
    }                                                                                                        \
    static ott_status fenced_op_##name##_many(exec *cx, const name##_args *items, int64_t count) {           \
        const op_table *kernels = fenced_of(cx->device)->kernels;                                            \
        inner_list list = open_list(OP_INDEX_##name, count);                                                 \
        ott_status status = fill_list(cx, OP_INDEX_##name, items, count, &list);                             \
        if (status == OTT_OK)                                                                                \
            status = run_##name##_many(kernels, &list.calls[0].cx, (const name##_args *)(void *)list.items,  \
                                       count);                                                               \
        free(list.calls);                                                                                    \
        free(list.items);                                                                                    \
        return status;                                                                                       \
    }
#include "tensor/ops.def"
#undef OP

static int64_t workspace(const device *d, enum op_index op, const void *args) {
    const fenced_device *f = (const fenced_device *)d;
    return f->kernels->workspace ? f->kernels->workspace(f->inner, op, args) : 0;
}

static int64_t packed_count(const device *d, const operand *b) {
    const fenced_device *f = (const fenced_device *)d;
    return f->kernels->packed_count ? f->kernels->packed_count(f->inner, b) : tensor_count(b->t);
}

static const op_table fenced_ops = {
#define OP(name, fields) .name = fenced_op_##name,
#define MANY(name)       .name##_many = fenced_op_##name##_many,
#include "tensor/ops.def"
#undef OP
    .workspace = workspace,
    .packed_count = packed_count,
};

/* Op table for the inner device's ops. It is empty, because a backend's op must not call other ops. */
static const op_table no_ops = {0};

/* ---- memory ---- */

static void keep_block(fenced_device *f, fenced_block b) {
    pthread_mutex_lock(&f->lock);
    if (f->count == f->capacity) {
        int capacity = 2 * f->capacity + 16;
        fenced_block *grown = realloc(f->blocks, (size_t)capacity * sizeof *grown);
        if (!grown) abort();
        f->blocks = grown;
        f->capacity = capacity;
    }
    f->blocks[f->count++] = b;
    pthread_mutex_unlock(&f->lock);
}

static ott_status allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    fenced_device *f = fenced_of(d);
    void *memory;
    TRY(device_allocate(f->inner, kind, bytes, what, &memory));
    void *fence =
        mmap(NULL, (size_t)bytes + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fence == MAP_FAILED) {
        device_release(f->inner, memory);
        return status_fail(OTT_ERR_MEMORY, "no addresses for the %lld bytes of %s", (long long)bytes, what);
    }
    fenced_block b = {.fence = fence, .memory = memory, .bytes = bytes};
    snprintf(b.what, sizeof b.what, "%s", what);
    keep_block(f, b);
    *out = fence;
    return OTT_OK;
}

static void release(device *d, void *data) {
    fenced_device *f = fenced_of(d);
    pthread_mutex_lock(&f->lock);
    int i = 0;
    while (f->blocks[i].fence != data) i++;
    fenced_block b = f->blocks[i];
    f->blocks[i] = f->blocks[--f->count];
    pthread_mutex_unlock(&f->lock);
    munmap(b.fence, (size_t)b.bytes + 1);
    device_release(f->inner, b.memory);
}

static ott_status copy_in(device *d, void *to_device, const void *from_host, int64_t bytes) {
    fenced_device *f = fenced_of(d);
    if (bytes == 0) return OTT_OK;
    TRY(behind_fence(f, "", &to_device, bytes));
    TRY(check_host(f, from_host));
    give(f);
    wait_for(f, given_so_far(f));
    return device_copy_in(f->inner, to_device, from_host, bytes);
}

static ott_status copy_in_async(device *d, void *to_device, const void *staging, int64_t bytes) {
    fenced_device *f = fenced_of(d);
    if (bytes == 0) return OTT_OK;
    TRY(behind_fence(f, "", &to_device, bytes));
    TRY(check_host(f, staging));
    give(f);
    return device_copy_in_async(f->inner, to_device, staging, bytes);
}

static ott_status copy_out(device *d, void *to_host, const void *from_device, int64_t bytes) {
    fenced_device *f = fenced_of(d);
    void *from = (void *)(uintptr_t)from_device;
    if (bytes == 0) return OTT_OK;
    TRY(behind_fence(f, "", &from, bytes));
    TRY(check_host(f, to_host));
    give(f);
    wait_for(f, given_so_far(f));
    return device_copy_out(f->inner, to_host, from, bytes);
}

static ott_status copy(device *d, void *to, const void *from_device, int64_t bytes) {
    fenced_device *f = fenced_of(d);
    void *from = (void *)(uintptr_t)from_device;
    if (bytes == 0) return OTT_OK;
    TRY(behind_fence(f, "", &to, bytes));
    TRY(behind_fence(f, "", &from, bytes));
    give(f);
    return device_copy(f->inner, to, from, bytes);
}

static ott_status zero(device *d, void *data, int64_t bytes) {
    fenced_device *f = fenced_of(d);
    if (bytes == 0) return OTT_OK;
    TRY(behind_fence(f, "", &data, bytes));
    return device_zero(f->inner, data, bytes);
}

static ott_status synchronize(device *d) {
    fenced_device *f = fenced_of(d);
    wait_for(f, given_so_far(f));
    return device_synchronize(f->inner);
}

static ott_status allocate_host(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    return device_allocate_host(fenced_of(d)->inner, kind, bytes, what, out);
}

static void release_host(device *d, void *data) {
    device_release_host(fenced_of(d)->inner, data);
}

struct device_event {
    device_event *inner;
    int64_t given; /* number of calls that were given when the event was recorded */
};

static ott_status event_open(device *d, device_event **out) {
    device_event *e = calloc(1, sizeof *e);
    if (!e) return status_fail(OTT_ERR_MEMORY, "no memory for an event");
    ott_status status = device_event_open(fenced_of(d)->inner, &e->inner);
    if (status == OTT_OK)
        *out = e;
    else
        free(e);
    return status;
}

static void event_close(device *d, device_event *e) {
    device_event_close(fenced_of(d)->inner, e->inner);
    free(e);
}

static ott_status event_record(device *d, device_event *e) {
    e->given = given_so_far(fenced_of(d));
    return device_event_record(fenced_of(d)->inner, e->inner);
}

static ott_status event_wait(device *d, device_event *e) {
    wait_for(fenced_of(d), e->given);
    return device_event_wait(fenced_of(d)->inner, e->inner);
}

static ott_status event_seconds(device *d, device_event *from, device_event *to, double *out) {
    wait_for(fenced_of(d), from->given);
    wait_for(fenced_of(d), to->given);
    return device_event_seconds(fenced_of(d)->inner, from->inner, to->inner, out);
}

static mem_stats taken(const device *d) {
    return device_taken(((const fenced_device *)d)->inner);
}

static void read_memory(const device *d, device_memory *out) {
    device_read_memory(((const fenced_device *)d)->inner, out);
}

static bool holds(device *d, const void *data, int64_t bytes) {
    void *address = (void *)(uintptr_t)data;
    return behind_fence(fenced_of(d), "", &address, bytes) == OTT_OK;
}

static double peak(device *d, ott_dtype format) {
    return device_peak(fenced_of(d)->inner, format);
}

static void close_device(device *d) {
    fenced_device *f = fenced_of(d);
    device_close(f->inner);
    pthread_mutex_destroy(&f->lock);
    free(f->blocks);
    free(f);
}

static const device_table table = {
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .copy_in = copy_in,
    .copy_in_async = copy_in_async,
    .copy_out = copy_out,
    .copy = copy,
    .zero = zero,
    .synchronize = synchronize,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_seconds = event_seconds,
    .taken = taken,
    .read_memory = read_memory,
    .peak = peak,
    .holds = holds,
    .close = close_device,
};

ott_status fenced_open(device *inner, bool contiguous_contraction, device **out) {
    fenced_device *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f) {
        device_close(inner);
        return status_fail(OTT_ERR_MEMORY, "no memory for a fenced device");
    }
    f->can = *inner->can;
    f->can.contiguous_contraction = contiguous_contraction;
    f->base = *inner;
    f->base.table = &table;
    f->base.ops = &fenced_ops;
    f->base.can = &f->can;
    snprintf(f->name, sizeof f->name, "%s, fenced%s", inner->name,
             contiguous_contraction ? " and transposed" : "");
    f->base.name = f->name;
    f->inner = inner;
    f->kernels = inner->ops;
    inner->ops = &no_ops;
    pthread_mutex_init(&f->lock, NULL);
    *out = &f->base;
    return OTT_OK;
}
