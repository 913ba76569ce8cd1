/* tensor/plan: records, packs and replays the buffers of a step; opens buffers in immediate mode. */
#include "tensor/plan.h"
#include "base/text/size.h"
#include <stdlib.h>
#include <string.h>

typedef struct plan_entry {
    const char *what;
    int64_t bytes;      /* size, rounded up to the device's alignment */
    int64_t offset;     /* offset in the arena; set by plan_seal */
    int32_t born, died; /* plan.time when the buffer was opened and closed; died < 0 while open */
    void *data;         /* immediate mode: the buffer's device memory; NULL: no buffer has this entry */
} plan_entry;

enum plan_state { PLAN_EMPTY, PLAN_RECORDING, PLAN_SEALED, PLAN_IMMEDIATE };

struct plan {
    device *device;
    mem *account; /* the device's account */
    enum plan_state state;
    plan_entry *entries;
    int32_t count, open;
    int32_t time;       /* number of opens and closes so far in the recording */
    int32_t next_entry; /* index of the entry that a replay opens next */
    int64_t bytes, live_peak, saved;
    int64_t opened;   /* sum of the bytes of all buffers of the recording */
    int64_t messages; /* bytes of all messages of the recording */
    char *arena;
    bool poison;
};

/* The address of every buffer during a recording. It is above all real addresses, and is never accessed. */
#define RECORDED ((uintptr_t)1 << 62)

bool plan_is_recorded(const void *data) {
    return (uintptr_t)data >= RECORDED;
}

ott_status plan_create(device *d, plan **out) {
    TRY(mem_alloc(d->account, MEM_OTHER, sizeof(plan), "memory plan", out));
    (*out)->device = d;
    (*out)->account = d->account;
    return OTT_OK;
}

/* Frees the open buffers of immediate mode and removes all entries. */
static void clear_plan(plan *p) {
    for (int32_t i = 0; p->state == PLAN_IMMEDIATE && i < p->count; i++)
        device_release(p->device, p->entries[i].data);
    p->count = p->open = p->time = p->next_entry = 0;
    p->bytes = p->live_peak = p->saved = p->opened = p->messages = 0;
    p->arena = NULL;
}

void plan_destroy(plan *p) {
    if (!p) return;
    clear_plan(p);
    mem_free(p->account, p->entries);
    mem_free(p->account, p);
}

int64_t plan_add_message(plan *p, int64_t bytes) {
    return p->messages += bytes;
}

void plan_record(plan *p) {
    clear_plan(p);
    p->state = PLAN_RECORDING;
}

void plan_immediate(plan *p) {
    clear_plan(p);
    p->state = PLAN_IMMEDIATE;
}

bool plan_recording(const plan *p) {
    return p && p->state == PLAN_RECORDING;
}
void plan_poison(plan *p) {
    p->poison = true;
}
int64_t plan_bytes(const plan *p) {
    return p->bytes;
}
int64_t plan_live_peak(const plan *p) {
    return p->live_peak;
}
int64_t plan_saved(const plan *p) {
    return p->saved;
}

void plan_mark_saved(plan *p) {
    int64_t live = 0;
    if (p->state != PLAN_RECORDING) return;
    for (int32_t i = 0; i < p->count; i++)
        if (p->entries[i].died < 0) live += p->entries[i].bytes;
    if (live > p->saved) p->saved = live;
}

void plan_bind(plan *p, void *arena) {
    p->arena = arena;
}
void plan_replay(plan *p) {
    p->next_entry = 0;
}

static ott_status grow_entries(plan *p) {
    if ((p->count & (p->count - 1)) != 0) return OTT_OK; /* the array is full if count is a power of two */
    int64_t capacity = p->count ? 2 * (int64_t)p->count : 1;
    return mem_grow(p->account, MEM_OTHER, capacity * (int64_t)sizeof(plan_entry), "memory plan",
                    &p->entries);
}

static ott_status record_open(plan *p, const char *what, int64_t bytes, plan_buffer *out) {
    if (!size_add(p->opened, bytes, &p->opened)) /* other sums of bytes are smaller */
        return status_fail(OTT_ERR_MEMORY,
                           "out of memory: the buffers of a step, up to \"%s\", are more than 2^63 bytes",
                           what);
    TRY(grow_entries(p));
    p->entries[p->count] = (plan_entry){.what = what, .bytes = bytes, .born = p->time++, .died = -1};
    *out = (plan_buffer){.id = ++p->count, .data = (void *)RECORDED};
    p->open++;
    return OTT_OK;
}

static ott_status replay_open(plan *p, const char *what, int64_t bytes, plan_buffer *out) {
    if (p->next_entry >= p->count)
        return status_fail(OTT_ERR_INTERNAL,
                           "memory plan: the step opens \"%s\" after its last planned buffer", what);
    const plan_entry *e = &p->entries[p->next_entry];
    if (e->bytes != bytes || strcmp(e->what, what) != 0)
        return status_fail(
            OTT_ERR_INTERNAL,
            "memory plan: buffer %d was recorded as \"%s\" of %lld bytes, but the step opens \"%s\" of %lld",
            (int)p->next_entry, e->what, (long long)e->bytes, what, (long long)bytes);
    *out = (plan_buffer){.id = ++p->next_entry, .data = p->arena + e->offset};
    return OTT_OK;
}

static ott_status immediate_open(plan *p, const char *what, int64_t bytes, plan_buffer *out) {
    int32_t id = 0;
    while (id < p->count && p->entries[id].data) id++; /* a linear search: only few buffers are open */
    if (id == p->count) {
        TRY(grow_entries(p));
        p->entries[p->count++] = (plan_entry){0};
    }
    plan_entry *e = &p->entries[id];
    TRY(device_allocate(p->device, MEM_STEP, bytes > 0 ? bytes : p->device->can->alignment, what, &e->data));
    e->what = what;
    *out = (plan_buffer){.id = id + 1, .data = e->data};
    return OTT_OK;
}

ott_status plan_open(plan *p, const char *what, int64_t bytes, plan_buffer *out) {
    *out = PLAN_NONE;
    STATUS_REQUIRE(bytes >= 0);
    bytes = backend_align(p->device->can, bytes);
    if (p->state == PLAN_RECORDING) return record_open(p, what, bytes, out);
    if (p->state == PLAN_IMMEDIATE) return immediate_open(p, what, bytes, out);
    STATUS_REQUIRE(p->state == PLAN_SEALED && p->arena);
    return replay_open(p, what, bytes, out);
}

static ott_status poison(plan *p, const plan_entry *e) {
    char piece[1024];
    memset(piece, 0xFF, sizeof piece);
    for (int64_t at = 0, left; (left = e->bytes - at) > 0; at += (int64_t)sizeof piece)
        TRY(device_copy_in(p->device, p->arena + e->offset + at, piece,
                           left < (int64_t)sizeof piece ? left : (int64_t)sizeof piece));
    return OTT_OK;
}

ott_status plan_close(plan *p, plan_buffer *b) {
    if (b->id == 0) return OTT_OK;
    STATUS_REQUIRE(b->id > 0 && b->id <= p->count);
    int32_t id = b->id - 1;
    if (p->state == PLAN_RECORDING) {
        if (p->entries[id].died >= 0)
            return status_fail(OTT_ERR_INTERNAL, "memory plan: \"%s\" is closed twice", p->entries[id].what);
        p->entries[id].died = p->time++;
        p->open--;
    } else if (p->state == PLAN_IMMEDIATE) {
        plan_entry *e = &p->entries[id];
        if (!e->data) return status_fail(OTT_ERR_INTERNAL, "memory plan: \"%s\" is closed twice", e->what);
        device_release(p->device, e->data);
        e->data = NULL;
    } else if (p->poison) {
        TRY(poison(p, &p->entries[id]));
    }
    return *b = PLAN_NONE, OTT_OK;
}

static int by_size(const void *a, const void *b) {
    const plan_entry *x = *(const plan_entry *const *)a, *y = *(const plan_entry *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->born < y->born ? -1 : 1;
}

/* First fit: the lowest offset where `e` does not overlap a placed entry with an overlapping lifetime.
   `placed` is sorted by offset. */
static int64_t lowest_fit(plan_entry **placed, int32_t count, const plan_entry *e) {
    int64_t offset = 0;
    for (int32_t i = 0; i < count && placed[i]->offset < offset + e->bytes; i++) {
        int64_t end = placed[i]->offset + placed[i]->bytes;
        if (end > offset && placed[i]->born < e->died && e->born < placed[i]->died) offset = end;
    }
    return offset;
}

static void insert_placed(plan_entry **placed, int32_t count, plan_entry *e) {
    int32_t at = 0, end = count;
    while (at < end) {
        int32_t middle = at + (end - at) / 2;
        if (placed[middle]->offset <= e->offset)
            at = middle + 1;
        else
            end = middle;
    }
    memmove(placed + at + 1, placed + at, (size_t)(count - at) * sizeof *placed);
    placed[at] = e;
}

/* Places all entries in the given order, each at the lowest offset where it fits. Returns the arena size. */
static int64_t place(plan_entry **order, int32_t count, plan_entry **placed) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < count; i++) {
        order[i]->offset = lowest_fit(placed, i, order[i]);
        insert_placed(placed, i, order[i]);
        int64_t end = order[i]->offset + order[i]->bytes;
        if (end > bytes) bytes = end;
    }
    return bytes;
}

/* Removes the entries that were closed at time `now` or before. Adds the bytes of the remaining entries to
   *live, and returns how many remain. */
static int32_t keep_live(plan_entry **placed, int32_t count, int32_t now, int64_t *live) {
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++) {
        if (placed[i]->died <= now) continue;
        *live += placed[i]->bytes;
        placed[kept++] = placed[i];
    }
    return kept;
}

/* Like `place`, with the entries in the order in which they were opened. This order is faster, because an
   entry is compared only with the entries that are still open. Also computes p->live_peak. */
static int64_t place_by_birth(plan *p, plan_entry **placed) {
    int64_t bytes = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < p->count; i++) {
        plan_entry *e = &p->entries[i];
        int64_t live = e->bytes;
        count = keep_live(placed, count, e->born, &live);
        if (live > p->live_peak) p->live_peak = live;
        e->offset = lowest_fit(placed, count, e);
        insert_placed(placed, count++, e);
        if (e->offset + e->bytes > bytes) bytes = e->offset + e->bytes;
    }
    return bytes;
}

/* Places the entries in two orders and keeps the smaller arena. The order of opening is optimal if lifetimes
   are nested. The order of size leaves fewer holes, but is slower, because `place` compares all pairs of
   entries. So it is tried only if the first arena is larger than p->live_peak. */
static ott_status pack_entries(plan *p) {
    plan_entry **order;
    TRY(mem_alloc_array(p->account, MEM_OTHER, 2 * (int64_t)p->count, sizeof(plan_entry *),
                        "packing the memory plan", &order));
    plan_entry **placed = order + p->count;
    p->bytes = place_by_birth(p, placed);
    if (p->bytes > p->live_peak) {
        for (int32_t i = 0; i < p->count; i++) order[i] = &p->entries[i];
        qsort(order, (size_t)p->count, sizeof *order, by_size);
        int64_t bytes = place(order, p->count, placed);
        if (bytes < p->bytes)
            p->bytes = bytes;
        else
            place_by_birth(p, placed);
    }
    mem_free(p->account, order);
    return OTT_OK;
}

ott_status plan_seal(plan *p) {
    STATUS_REQUIRE(p->state == PLAN_RECORDING);
    for (int32_t i = 0; p->open > 0 && i < p->count; i++)
        if (p->entries[i].died < 0)
            return status_fail(OTT_ERR_INTERNAL, "memory plan: \"%s\" is never closed", p->entries[i].what);
    TRY(pack_entries(p));
    p->state = PLAN_SEALED;
    return OTT_OK;
}
