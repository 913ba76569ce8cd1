/* base/arena: bump allocation in chunks. A guarded build (debug or AddressSanitizer) gives each block a
   header, data and a red zone. So a write outside the data is caught immediately, or found by arena_check. */
#include "base/arena.h"
#include "base/text/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(address, bytes)   __asan_poison_memory_region(address, bytes)
#define UNPOISON(address, bytes) __asan_unpoison_memory_region(address, bytes)
#define READS_RED_ZONES          __attribute__((no_sanitize("address"), noinline))
#else
#define POISON(address, bytes)   ((void)(address), (void)(bytes))
#define UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#define READS_RED_ZONES
#endif

#if defined(OTT_DEBUG) || defined(ARENA_ASAN)
enum { GUARDED = 1 };
#else
enum { GUARDED = 0 };
#endif

enum {
    UNIT = 16, /* alignment of blocks; a header or a red zone also has this many bytes */
    FRONT = GUARDED ? UNIT : 0,
    BACK = GUARDED ? UNIT : 0,
    CHUNK = 16 * 1024,
    RED = 0xa5
};

typedef struct front {
    int64_t bytes;
    uint64_t seal; /* the bits of `bytes` ^ SEAL, unless a write damaged the header */
} front;
#define SEAL UINT64_C(0x5ea15ea15ea15ea1)

typedef struct chunk {
    struct chunk *next;
    int64_t used, size; /* bytes of `data`: used bytes, and all bytes */
    int64_t unused;     /* keeps `data` aligned to UNIT */
    unsigned char data[];
} chunk;

_Static_assert(sizeof(front) == UNIT && sizeof(chunk) % UNIT == 0, "blocks must be aligned to UNIT");

struct arena {
    mem *account;
    mem_kind kind;
    chunk *first; /* the chunk that is being filled */
};

static int64_t round_to_unit(int64_t bytes) {
    return (bytes + UNIT - 1) & ~(int64_t)(UNIT - 1);
}

ott_status arena_open(mem *account, mem_kind kind, arena **out) {
    *out = NULL;
    TRY(mem_alloc(account, kind, sizeof(arena), "an arena", out));
    **out = (arena){.account = account, .kind = kind};
    return OTT_OK;
}

void arena_close(arena *a) {
    if (!a) return;
    int damaged = arena_check(a);
    if (damaged) { /* can only happen in guarded builds */
        fprintf(stderr, "arena_close: %d blocks were written outside their bounds\n", damaged);
        abort();
    }
    for (chunk *c = a->first, *next; c; c = next) {
        next = c->next;
        UNPOISON(c->data, (size_t)c->size);
        mem_free(a->account, c);
    }
    mem_free(a->account, a);
}

/* Adds a chunk with at least `need` bytes. A large block gets its own chunk. Later small blocks still go to
   the chunk that is being filled. */
static ott_status add_chunk(arena *a, int64_t need, chunk **out) {
    chunk *c;
    int large = need > CHUNK / 4;
    int64_t size = large ? need : CHUNK;
    TRY(mem_alloc(a->account, a->kind, (int64_t)sizeof(chunk) + size, "an arena's chunk", &c));
    chunk **place = large && a->first ? &a->first->next : &a->first;
    c->size = size;
    c->next = *place;
    *place = *out = c;
    POISON(c->data, (size_t)size);
    return OTT_OK;
}

/* Takes a block from the unused memory of the chunk and returns its data. */
static void *place_block(chunk *c, int64_t bytes, int64_t need) {
    unsigned char *data = c->data + c->used + FRONT;
    UNPOISON(data - FRONT, (size_t)need);
    if (GUARDED) {
        *(front *)(data - FRONT) = (front){bytes, (uint64_t)bytes ^ SEAL};
        memset(data + bytes, RED, (size_t)(need - FRONT - bytes));
        POISON(data - FRONT, FRONT);
        POISON(data + bytes, (size_t)(need - FRONT - bytes));
    }
    c->used += need;
    return data;
}

ott_status(arena_alloc)(arena *a, int64_t bytes, void **out) {
    *out = NULL;
    STATUS_REQUIRE(bytes >= 0);
    if (bytes > PTRDIFF_MAX / 2)
        return status_fail(OTT_ERR_MEMORY, "out of memory: an arena's block needs %" PRId64 " bytes", bytes);
    int64_t need = FRONT + round_to_unit(bytes ? bytes : 1) + BACK;
    chunk *c = a->first;
    if (!c || c->size - c->used < need) TRY(add_chunk(a, need, &c));
    return *out = place_block(c, bytes, need), OTT_OK;
}

ott_status arena_strdup(arena *a, const char *text, const char **out) {
    *out = NULL;
    size_t bytes = strlen(text) + 1;
    void *copy;
    TRY(arena_alloc(a, (int64_t)bytes, &copy));
    return *out = memcpy(copy, text, bytes), OTT_OK;
}

ott_status arena_printf(arena *a, const char **out, const char *format, ...) {
    *out = NULL;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = text_vformat(NULL, 0, format, arguments);
    va_end(arguments);
    void *text = NULL;
    ott_status status = length < 0 ? status_fail(OTT_ERR_INTERNAL, "cannot format \"%s\"", format)
                                   : arena_alloc(a, (int64_t)length + 1, &text);
    if (status == OTT_OK) *out = (text_vformat(text, (size_t)length + 1, format, again), text);
    va_end(again);
    return status;
}

/* Counts the damaged blocks of a chunk. Stops at a damaged header, because its size is unknown. */
READS_RED_ZONES static int check_chunk(const chunk *c) {
    int damaged = 0;
    for (int64_t at = 0; at < c->used;) {
        const front *f = (const front *)(c->data + at);
        int64_t bytes = f->bytes;
        if (((uint64_t)bytes ^ SEAL) != f->seal) return damaged + 1;
        int64_t end = at + FRONT + round_to_unit(bytes ? bytes : 1) + BACK;
        int intact = 1;
        for (int64_t i = at + FRONT + bytes; i < end; i++) intact &= c->data[i] == RED;
        damaged += !intact;
        at = end;
    }
    return damaged;
}

int arena_check(const arena *a) {
    int damaged = 0;
    for (const chunk *c = GUARDED ? a->first : NULL; c; c = c->next) damaged += check_chunk(c);
    return damaged;
}
