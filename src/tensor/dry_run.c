/* tensor/dry_run: counts allocations instead of making them. */
#include "tensor/dry_run.h"
#include "base/text/size.h"
#include "tensor/group/group_staging.h"
#include "tensor/host.h"
#include <string.h>

/* Bytes of device memory or of host memory, now and at the peak, in total and by kind. */
typedef struct tally {
    int64_t now, peak;
    int64_t now_of[MEM_KIND_COUNT], peak_of[MEM_KIND_COUNT];
} tally;

/* An allocation. The caller gets the address of this struct as device or staging memory. */
typedef struct counted {
    mem_kind kind;
    int64_t bytes;
    uintptr_t mapped; /* address that the caller gets for mapped memory */
    struct counted *next;
} counted;

/* Communication memory of a group: for its sends (`messages`), or for all its other collectives. */
typedef struct reserved {
    const group *group;
    bool messages;
    int64_t bytes;
} reserved;

enum { RESERVED_MOST = 16 };

typedef struct counting_device {
    device base;
    tally own, host;
    reserved groups[RESERVED_MOST];
    int group_count;
    counted *mapped;
    uintptr_t mapped_end; /* next free address of mapped memory */
} counting_device;

/* Addresses of mapped memory are above all real addresses and below the address RECORDED (tensor/plan.c). */
#define MAPPED_FIRST ((uintptr_t)1 << 61)
#define MAPPED_END   ((uintptr_t)1 << 62)

bool dry_run_is_mapped(const void *data) {
    return (uintptr_t)data >= MAPPED_FIRST && (uintptr_t)data < MAPPED_END;
}

/* Returns the counts of host memory. If the dry run imitates a CPU, these are the counts of device memory. */
static tally *tally_of_host(counting_device *r) {
    return r->base.dry_run->threads > 0 ? &r->own : &r->host;
}

static ott_status count_bytes(tally *t, mem_kind kind, int64_t bytes, const char *what) {
    int64_t sum;
    if (!size_add(t->now, bytes, &sum))
        return status_fail(OTT_ERR_MEMORY, "out of memory: with %s, all memory together exceeds 2^63 bytes",
                           what);
    t->now = sum;
    t->now_of[kind] += bytes;
    if (t->now <= t->peak) return OTT_OK;
    t->peak = t->now;
    memcpy(t->peak_of, t->now_of, sizeof t->peak_of);
    return OTT_OK;
}

static void count_back(counting_device *r, tally *t, counted *c) {
    t->now -= c->bytes;
    t->now_of[c->kind] -= c->bytes;
    mem_free(r->base.account, c);
}

static ott_status count_block(counting_device *r, tally *t, mem_kind kind, int64_t bytes, const char *what,
                              void **out) {
    TRY(mem_alloc(r->base.account, MEM_OTHER, sizeof(counted), what, out));
    *(counted *)*out = (counted){.kind = kind, .bytes = bytes};
    ott_status status = count_bytes(t, kind, bytes, what);
    if (status == OTT_OK) return OTT_OK;
    mem_free(r->base.account, *out);
    *out = NULL;
    return status;
}

static ott_status count_own(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    counting_device *r = (counting_device *)d;
    return count_block(r, &r->own, kind, bytes, what, out);
}

static ott_status count_host(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    counting_device *r = (counting_device *)d;
    return count_block(r, tally_of_host(r), kind, bytes, what, out);
}

static ott_status count_mapped(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    counting_device *r = (counting_device *)d;
    if (tally_of_host(r) == &r->own) return count_own(d, kind, bytes, what, out);
    if (bytes > (int64_t)(MAPPED_END - r->mapped_end) - MEM_ALIGNMENT)
        return status_fail(OTT_ERR_MEMORY, "out of memory: %s of %lld bytes has no address", what,
                           (long long)bytes);
    TRY(count_block(r, &r->host, kind, bytes, what, out));
    counted *c = *out;
    c->mapped = r->mapped_end;
    c->next = r->mapped;
    r->mapped = c;
    r->mapped_end += (uintptr_t)backend_align(r->base.can, bytes + 1);
    *out = (void *)c->mapped;
    return OTT_OK;
}

static counted *take_mapped(counting_device *r, const void *data) {
    counted **at = &r->mapped;
    while ((*at)->mapped != (uintptr_t)data) at = &(*at)->next;
    counted *c = *at;
    *at = c->next;
    return c;
}

static void release_own(device *d, void *data) {
    counting_device *r = (counting_device *)d;
    if (dry_run_is_mapped(data))
        count_back(r, &r->host, take_mapped(r, data));
    else
        count_back(r, &r->own, data);
}

static void release_host(device *d, void *data) {
    counting_device *r = (counting_device *)d;
    count_back(r, tally_of_host(r), data);
}

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
    .allocate = count_own,
    .release = release_own,
    .allocate_mapped = count_mapped,
    .allocate_host = count_host,
    .release_host = release_host,
    .copy_in = copy_nothing,
    .copy_in_async = copy_nothing,
    .copy_out = copy_out,
    .copy = copy_nothing,
    .zero = zero,
    HOST_TABLE_EVENTS,
    .close = close_device,
};

ott_status dry_run_open(mem *account, const device *like, device **out) {
    counting_device *r;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(counting_device), "a dry run", &r));
    r->base = (device){.table = &table,
                       .ops = like->ops,
                       .can = like->can,
                       .account = account,
                       .name = like->name,
                       .dry_run = like};
    r->mapped_end = MAPPED_FIRST;
    return *out = &r->base, OTT_OK;
}

void dry_run_listen(device *d, const dry_run_listener *l) {
    d->listener = l;
}

/* ---- the fake group ---- */

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

static ott_status reserve_staging(group *g, exec *cx, const collective *call, int64_t *bytes) {
    const device *like = cx->device->dry_run;
    if (like && like->threads == 0) *bytes = group_staging_bytes(g->size, call);
    return OTT_OK;
}

static const group_table group_of_absent = {
    .start = move_nothing, .wait = move_nothing, .close = close_group, .reserve = reserve_staging};

ott_status dry_run_group_open(mem *account, int rank, int size, group **out) {
    absent_ranks *r;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(absent_ranks), "ranks of a dry run", &r));
    *r = (absent_ranks){.base = {.table = &group_of_absent, .rank = rank, .size = size}, .account = account};
    return *out = &r->base, OTT_OK;
}

/* ---- counting ---- */

ott_status dry_run_count_host(device *d, mem_kind kind, int64_t number, int64_t size, const char *what) {
    int64_t bytes;
    STATUS_REQUIRE(d->dry_run);
    TRY(size_product(what, (int64_t[]){number, size}, 2, &bytes));
    return count_bytes(tally_of_host((counting_device *)d), kind, bytes, what);
}

static int64_t show_peak(const tally *t, int64_t bytes_of_kind[MEM_KIND_COUNT]) {
    memcpy(bytes_of_kind, t->peak_of, sizeof t->peak_of);
    return t->peak;
}

ott_status dry_run_count_comm(device *d, const group *g, bool messages, int64_t bytes) {
    counting_device *r = (counting_device *)d;
    int i = 0;
    while (i < r->group_count && (r->groups[i].group != g || r->groups[i].messages != messages)) i++;
    STATUS_REQUIRE(i < RESERVED_MOST);
    if (i == r->group_count) r->groups[r->group_count++] = (reserved){g, messages, 0};
    int64_t more = bytes - r->groups[i].bytes;
    if (more <= 0) return OTT_OK;
    r->groups[i].bytes = bytes;
    return count_bytes(&r->own, MEM_COMM, more, "communication buffers");
}

int64_t dry_run_peak(const device *d, int64_t bytes_of_kind[MEM_KIND_COUNT]) {
    return show_peak(&((const counting_device *)d)->own, bytes_of_kind);
}

int64_t dry_run_host_peak(const device *d, int64_t bytes_of_kind[MEM_KIND_COUNT]) {
    return show_peak(&((const counting_device *)d)->host, bytes_of_kind);
}
