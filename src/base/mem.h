/* base/mem: the one funnel through which the library takes memory, so that every byte is counted by kind and
   a test can make any allocation fail. A `mem` account belongs to one context; it is thread-safe. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

#define MEM_KIND_MAP(X)                                                                                      \
    X(PARAM, "parameters")                                                                                   \
    X(GRAD, "gradients")                                                                                     \
    X(OPTIMIZER, "optimizer state")                                                                          \
    X(WEIGHT, "compute weights") /* bf16 or FP8 copies of the parameters */                                  \
    X(STEP, "step arena")        /* activations and workspace of one step, packed by the memory plan */      \
    X(SCRATCH, "thread scratch") /* kernel packing buffers */                                                \
    X(DATA, "data")                                                                                          \
    X(STAGING, "checkpoint staging") /* copy of the state that is written while training goes on */          \
    X(COMM, "communication")         /* what is on its way between ranks */                                  \
    X(OTHER, "other")

typedef enum mem_kind {
#define X(name, text) MEM_##name,
    MEM_KIND_MAP(X)
#undef X
        MEM_KIND_COUNT
} mem_kind;

#define MEM_ALIGNMENT 64

typedef struct mem mem;

/* What is taken, here or on a device. */
typedef struct mem_stats {
    int64_t now, peak;               /* bytes */
    int64_t now_of[MEM_KIND_COUNT];  /* bytes, by kind */
    int64_t peak_of[MEM_KIND_COUNT]; /* each kind's own peak */
    int64_t allocations;             /* how many times memory was taken since mem_open */
} mem_stats;

/* `bytes` more of a kind are taken; below 0: given back. */
static inline void mem_stats_add(mem_stats *s, mem_kind kind, int64_t bytes) {
    s->now += bytes;
    s->now_of[kind] += bytes;
    if (s->now > s->peak) s->peak = s->now;
    if (s->now_of[kind] > s->peak_of[kind]) s->peak_of[kind] = s->now_of[kind];
}

ott_status mem_open(mem **out);
/* Every block must have been freed; in debug builds a leak is reported on stderr and aborts. NULL is allowed.
 */
void mem_close(mem *m);

/* Zero-filled, aligned to MEM_ALIGNMENT. bytes == 0 gives a valid unique pointer. OTT_ERR_MEMORY names what,
 * how much, and what is left of which limit (base/limit.h); a large block is refused too when it is more than
 * that, though the C library would give it: touching it would end the process. */
ott_status mem_alloc(mem *m, mem_kind kind, int64_t bytes, const char *what, void **out);
/* Takes count*size with overflow check. */
ott_status mem_alloc_array(mem *m, mem_kind kind, int64_t count, int64_t size, const char *what, void **out);
/* Grows a block made by mem_alloc (or NULL) to `bytes`, keeping its contents; new bytes are zero. */
ott_status mem_grow(mem *m, mem_kind kind, int64_t bytes, const char *what, void **block);
void mem_free(mem *m, void *block); /* NULL is allowed */
/* The block is from now on another account's. NULL is allowed. */
void mem_move(mem *from, mem *to, void *block);
void mem_free_all(mem *m); /* every block that is still live */
ott_status mem_strdup(mem *m, const char *text, char **out);

mem_stats mem_read(const mem *m);
const char *mem_kind_name(mem_kind kind);
/* Test hook: the n-th take from now on fails (n = 1: the next); 0 switches off. */
void mem_fail_after(mem *m, int64_t n);

#endif
