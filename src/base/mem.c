/* base/mem: counted memory. A header of one cache line is before each block's data, so freeing needs no size.
   The account lists its live blocks, so leaks are found. */
#include "base/mem.h"
#include "base/limit.h"
#include "base/text/size.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef OTT_DEBUG
enum { MEM_DEBUG = 1 };
#else
enum { MEM_DEBUG = 0 };
#endif

enum { ASKED_FROM = 64 << 20 }; /* blocks of at least this many bytes are checked against the memory limits */
enum { HUGE_FROM = 8 << 20 };   /* weights of at least this many bytes get huge pages */

#define MAGIC_LIVE UINT32_C(0x6f747461)
#define MAGIC_DEAD UINT32_C(0xdead0ff0)

/* `kind` and `magic` are the last fields, because free() overwrites the first bytes of a block. */
typedef struct block {
    void *base; /* the pointer from calloc */
    struct block *next, *previous;
    int64_t bytes;
    char what[24];
    uint32_t kind, magic;
} block;

_Static_assert(sizeof(block) == MEM_ALIGNMENT, "data follows its header at the next aligned address");

struct mem {
    pthread_mutex_t lock;
    mem_stats stats;
    block *blocks;
    int64_t fail_in; /* number of allocations until one fails on purpose; 0: none fails */
};

static const char *const kind_names[] = {
#define X(name, text) text,
    MEM_KIND_MAP(X)
#undef X
};

const char *mem_kind_name(mem_kind kind) {
    return (unsigned)kind < MEM_KIND_COUNT ? kind_names[kind] : "?";
}

ott_status mem_open(mem **out) {
    *out = NULL;
    mem *m = calloc(1, sizeof *m);
    if (!m) return status_fail(OTT_ERR_MEMORY, "out of memory: a memory account (%zu bytes)", sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    return *out = m, OTT_OK;
}

static void report_leaks(const mem *m) {
    int64_t count = 0;
    for (const block *b = m->blocks; b; b = b->next)
        if (count++ < 10)
            fprintf(stderr, "mem_close: leaked %" PRId64 " bytes: %s (%s)\n", b->bytes, b->what,
                    mem_kind_name((mem_kind)b->kind));
    fprintf(stderr, "mem_close: %" PRId64 " blocks leaked\n", count);
    abort();
}

void mem_close(mem *m) {
    if (!m) return;
    if (MEM_DEBUG && m->blocks) report_leaks(m);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* True if mem_fail_after chose this allocation to fail. */
static int must_fail(mem *m) {
    pthread_mutex_lock(&m->lock);
    int fail = m->fail_in > 0 && --m->fail_in == 0;
    pthread_mutex_unlock(&m->lock);
    return fail;
}

/* Asks the kernel for huge pages for a large block of weights: generation reads all weights for each token,
   and with huge pages the CPU translates fewer addresses. */
static void use_huge_pages(mem_kind kind, char *data, int64_t bytes) {
#ifdef MADV_HUGEPAGE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)data + page - 1) / page * page;
    if (kind == MEM_WEIGHT && bytes >= HUGE_FROM)
        (void)madvise((void *)begin, (size_t)bytes / page * page - page, MADV_HUGEPAGE);
#else
    (void)kind, (void)data, (void)bytes;
#endif
}

/* Uses calloc, not aligned_alloc and memset, so that untouched pages of a large block use no memory. */
static block *make_block(mem_kind kind, int64_t bytes, const char *what) {
    if (bytes > PTRDIFF_MAX - 2 * MEM_ALIGNMENT) return NULL;
    void *base = calloc(1, (size_t)bytes + 2 * MEM_ALIGNMENT);
    if (!base) return NULL;
    use_huge_pages(kind, base, bytes);
    uintptr_t data = ((uintptr_t)base + 2 * MEM_ALIGNMENT - 1) & ~(uintptr_t)(MEM_ALIGNMENT - 1);
    block *b = (block *)(data - sizeof(block));
    *b = (block){.base = base, .bytes = bytes, .kind = (uint32_t)kind, .magic = MAGIC_LIVE};
    snprintf(b->what, sizeof b->what, "%s", what);
    return b;
}

static ott_status fail_take(const mem *m, mem_kind kind, int64_t bytes, const char *what) {
    memory_limit limit;
    int64_t now = mem_read(m).now;
    const char *kind_name = mem_kind_name(kind);
    bool same = strcmp(what, kind_name) == 0;
    char needed[SIZE_TEXT], used[SIZE_TEXT], left[LIMIT_TEXT];
    limit_read(now, &limit);
    return status_fail(
        OTT_ERR_MEMORY,
        "out of memory: %s%s%s%s needs %s, with %s in use, and %s: use smaller sizes or free memory", what,
        same ? "" : " (", same ? "" : kind_name, same ? "" : ")", size_text(bytes, needed),
        size_text(now, used), limit_text(&limit, left));
}

/* True if a large block exceeds the available memory. mem_alloc then refuses it, because the kernel might
   grant it and later kill the process. */
static bool is_too_much(const mem *m, int64_t bytes) {
    memory_limit capacity;
    if (bytes < ASKED_FROM) return false;
    limit_read(mem_read(m).now, &capacity);
    return bytes > capacity.left;
}

static void take_out(mem *m, block *b) {
    pthread_mutex_lock(&m->lock);
    *(b->previous ? &b->previous->next : &m->blocks) = b->next;
    if (b->next) b->next->previous = b->previous;
    mem_stats_add(&m->stats, (mem_kind)b->kind, -b->bytes);
    pthread_mutex_unlock(&m->lock);
}

static void put_in(mem *m, block *b) {
    pthread_mutex_lock(&m->lock);
    b->previous = NULL;
    b->next = m->blocks;
    if (b->next) b->next->previous = b;
    m->blocks = b;
    m->stats.allocations++;
    mem_stats_add(&m->stats, (mem_kind)b->kind, b->bytes);
    pthread_mutex_unlock(&m->lock);
}

ott_status(mem_alloc)(mem *m, mem_kind kind, int64_t bytes, const char *what, void **out) {
    *out = NULL;
    STATUS_REQUIRE((unsigned)kind < MEM_KIND_COUNT && bytes >= 0);
    bool refused = must_fail(m) || is_too_much(m, bytes);
    block *b = refused ? NULL : make_block(kind, bytes, what);
    if (!b) return fail_take(m, kind, bytes, what);
    put_in(m, b);
    return *out = b + 1, OTT_OK;
}

ott_status(mem_alloc_array)(mem *m, mem_kind kind, int64_t count, int64_t size, const char *what,
                            void **out) {
    *out = NULL;
    int64_t bytes;
    STATUS_REQUIRE(count >= 0 && size >= 0);
    if (!size_multiply(count, size, &bytes))
        return status_fail(OTT_ERR_MEMORY,
                           "out of memory: %s (%s) of %" PRId64 " x %" PRId64
                           " bytes is more than any memory",
                           what, mem_kind_name(kind), count, size);
    return mem_alloc(m, kind, bytes, what, out);
}

/* Returns a block's header. If `data` is no live block (a bug), aborts in debug builds, else returns NULL. */
static block *live_block(void *data) {
    block *b = (block *)data - 1;
    if (b->magic == MAGIC_LIVE) return b;
    if (MEM_DEBUG) {
        fprintf(stderr, "mem: %p %s\n", data, b->magic == MAGIC_DEAD ? "given twice" : "is not a block");
        abort();
    }
    return NULL;
}

ott_status(mem_grow)(mem *m, mem_kind kind, int64_t bytes, const char *what, void **data) {
    if (!*data) return mem_alloc(m, kind, bytes, what, data);
    const block *old = live_block(*data);
    STATUS_REQUIRE(old != NULL);
    if (bytes <= old->bytes) return OTT_OK;
    void *larger;
    TRY(mem_alloc(m, kind, bytes, what, &larger));
    memcpy(larger, *data, (size_t)old->bytes);
    mem_free(m, *data);
    return *data = larger, OTT_OK;
}

ott_status(mem_reserve)(mem *m, mem_kind kind, int64_t need, int64_t size, const char *what,
                        int64_t *capacity, void **array) {
    int64_t more = *capacity > 0 ? 2 * *capacity : 16;
    if (need <= *capacity) return OTT_OK;
    if (more < need) more = need;
    TRY(mem_grow(m, kind, more * size, what, array));
    return *capacity = more, OTT_OK;
}

void mem_free(mem *m, void *data) {
    block *b = data ? live_block(data) : NULL;
    if (!b) return;
    take_out(m, b);
    b->magic = MAGIC_DEAD;
    free(b->base);
}

void mem_move(mem *from, mem *to, void *data) {
    block *b = data ? live_block(data) : NULL;
    if (!b) return;
    take_out(from, b);
    put_in(to, b);
}

void mem_free_all(mem *m) {
    while (m->blocks) mem_free(m, m->blocks + 1);
}

ott_status mem_strdup(mem *m, const char *text, char **out) {
    *out = NULL;
    size_t bytes = strlen(text) + 1;
    void *copy;
    TRY(mem_alloc(m, MEM_OTHER, (int64_t)bytes, "a string", &copy));
    return *out = memcpy(copy, text, bytes), OTT_OK;
}

mem_stats mem_read(const mem *m) {
    pthread_mutex_t *lock = (pthread_mutex_t *)&m->lock; /* const for the caller: only the lock changes */
    pthread_mutex_lock(lock);
    mem_stats stats = m->stats;
    pthread_mutex_unlock(lock);
    return stats;
}

void mem_fail_after(mem *m, int64_t n) {
    pthread_mutex_lock(&m->lock);
    m->fail_in = n;
    pthread_mutex_unlock(&m->lock);
}
