/* tensor/dry_run: counting instead of allocating. */
#include "tensor/dry_run.h"
#include "base/size.h"
#include "tensor/host.h"
#include <string.h>

typedef struct counting_device {
    device base;
    int64_t now, peak;
    int64_t now_of[MEM_KIND_COUNT], peak_of[MEM_KIND_COUNT];
} counting_device;

/* Stands for a block; its address is what the device's users see, and never read or write behind. */
typedef struct counted {
    mem_kind kind;
    int64_t bytes;
} counted;

static ott_status count(counting_device *r, mem_kind kind, int64_t bytes, const char *what) {
    int64_t sum;
    if (!size_add(r->now, bytes, &sum))
        return status_fail(OTT_ERR_MEMORY,
                           "out of memory: %s would bring the sum of all to more than 2^63 bytes", what);
    r->now = sum;
    r->now_of[kind] += bytes;
    if (r->now <= r->peak) return OTT_OK;
    r->peak = r->now;
    memcpy(r->peak_of, r->now_of, sizeof r->peak_of);
    return OTT_OK;
}

static ott_status count_bytes(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    counting_device *r = (counting_device *)d;
    TRY(mem_alloc(d->account, MEM_OTHER, sizeof(counted), what, out));
    *(counted *)*out = (counted){kind, bytes};
    ott_status status = count(r, kind, bytes, what);
    if (status == OTT_OK) return OTT_OK;
    mem_free(d->account, *out);
    *out = NULL;
    return status;
}

static void count_release(device *d, void *data) {
    counting_device *r = (counting_device *)d;
    const counted *c = data;
    r->now -= c->bytes;
    r->now_of[c->kind] -= c->bytes;
    mem_free(d->account, data);
}

/* Nothing is there to copy to, from the host or from the device itself. */
static ott_status copy_nothing(device *d, void *to, const void *from, int64_t bytes) {
    (void)d, (void)to, (void)from, (void)bytes;
    return OTT_OK;
}

static ott_status copy_out(device *d, void *to_host, const void *from_device, int64_t bytes) {
    (void)d, (void)from_device;
    memset(to_host, 0, (size_t)bytes);
    return OTT_OK;
}

static ott_status zero(device *d, void *data, int64_t bytes) {
    (void)d, (void)data, (void)bytes;
    return OTT_OK;
}

static void close_device(device *d) {
    mem_free(d->account, d);
}

static const device_table table = {
    .allocate = count_bytes,
    .release = count_release,
    .allocate_host = count_bytes,
    .release_host = count_release,
    .copy_in = copy_nothing,
    .copy_in_async = copy_nothing,
    .copy_out = copy_out,
    .copy = copy_nothing,
    .zero = zero,
    HOST_TABLE_EVENTS,
    .close = close_device,
};

ott_status dry_run_open(mem *account, const device *like, device **out) {
    void *memory;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(counting_device), "a dry run", &memory));
    counting_device *r = memory;
    r->base = (device){.table = &table,
                       .ops = like->ops,
                       .can = like->can,
                       .account = account,
                       .name = like->name,
                       .dry_run = like};
    *out = &r->base;
    return OTT_OK;
}

void dry_run_listen(device *d, const dry_run_listener *l) {
    d->listener = l;
}

/* ---- ranks that are not there ---- */

typedef struct absent_ranks {
    group base;
    mem *account;
} absent_ranks;

static ott_status move_nothing(group *g, exec *cx, group_request *request) {
    (void)g, (void)cx, (void)request;
    return OTT_OK;
}

static void close_group(group *g) {
    mem_free(((absent_ranks *)g)->account, g);
}

static const group_table group_of_absent = {
    .start = move_nothing, .wait = move_nothing, .close = close_group};

ott_status dry_run_group_open(mem *account, int rank, int size, group **out) {
    void *memory;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(absent_ranks), "ranks of a dry run", &memory));
    absent_ranks *r = memory;
    *r = (absent_ranks){.base = {.table = &group_of_absent, .rank = rank, .size = size}, .account = account};
    *out = &r->base;
    return OTT_OK;
}

/* ---- counting ---- */

ott_status dry_run_note(device *d, mem_kind kind, int64_t number, int64_t size, const char *what) {
    int64_t bytes;
    STATUS_REQUIRE(d->dry_run);
    TRY(size_product(what, (int64_t[]){number, size}, 2, &bytes));
    return count((counting_device *)d, kind, bytes, what);
}

int64_t dry_run_peak(const device *d, int64_t of[MEM_KIND_COUNT]) {
    const counting_device *r = (const counting_device *)d;
    memcpy(of, r->peak_of, sizeof r->peak_of);
    return r->peak;
}
