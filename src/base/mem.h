/* base/mem: all memory of the library is allocated here. So every byte is counted by kind, and a test can
   make any allocation fail. A `mem` account belongs to one context. It is thread-safe. */
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
    X(STAGING, "checkpoint staging") /* copy of the state that is saved during training */                   \
    X(COMM, "communication")         /* messages between ranks */                                            \
    X(OTHER, "other")

typedef enum mem_kind {
#define X(name, text) MEM_##name,
    MEM_KIND_MAP(X)
#undef X
        MEM_KIND_COUNT
} mem_kind;

#define MEM_ALIGNMENT 64

typedef struct mem mem;

/* Memory in use, on the host or a device. */
typedef struct mem_stats {
    int64_t now, peak;               /* bytes in use now, and the most bytes so far */
    int64_t now_of[MEM_KIND_COUNT];  /* bytes in use now, by kind */
    int64_t peak_of[MEM_KIND_COUNT]; /* peak of each kind; different kinds may peak at different times */
    int64_t allocations;             /* allocations since mem_open */
} mem_stats;

/* Counts bytes of a kind: negative if they are freed. */
static inline void mem_stats_add(mem_stats *s, mem_kind kind, int64_t bytes) {
    s->now += bytes;
    s->now_of[kind] += bytes;
    if (s->now > s->peak) s->peak = s->now;
    if (s->now_of[kind] > s->peak_of[kind]) s->peak_of[kind] = s->now_of[kind];
}

ott_status mem_open(mem **out);
/* Closes an account (or NULL). All blocks must be freed: debug builds report leaks on stderr and abort. */
void mem_close(mem *m);

/* Converts the address of a pointer of any type to a void **. Allocating functions write the pointer through
   it, so the build must have -fno-strict-aliasing (cmake/flags.cmake). */
#define MEM_OUT(out) ((void)sizeof(&**(out)), (void **)(void *)(out))

/* Returns zero-filled memory, aligned to MEM_ALIGNMENT; a unique pointer if bytes is 0. On OTT_ERR_MEMORY the
   error text has `what`, the bytes and the smallest memory limit (base/limit.h). A large block that exceeds
   this limit is also refused: the kernel might grant it and later kill the process. */
ott_status mem_alloc(mem *m, mem_kind kind, int64_t bytes, const char *what, void **out);
#define mem_alloc(m, kind, bytes, what, out) mem_alloc(m, kind, bytes, what, MEM_OUT(out))
/* Allocates count * size bytes; checks for overflow. */
ott_status mem_alloc_array(mem *m, mem_kind kind, int64_t count, int64_t size, const char *what, void **out);
#define mem_alloc_array(m, kind, count, size, what, out)                                                     \
    mem_alloc_array(m, kind, count, size, what, MEM_OUT(out))
/* Grows a block from mem_alloc (or NULL) to `bytes` bytes. Keeps its contents. New bytes are zero. */
ott_status mem_grow(mem *m, mem_kind kind, int64_t bytes, const char *what, void **block);
#define mem_grow(m, kind, bytes, what, block) mem_grow(m, kind, bytes, what, MEM_OUT(block))
/* Makes room for `need` elements in an array of *capacity elements of `size` bytes. If the array must grow,
   sets *capacity, which at least doubles. */
ott_status mem_reserve(mem *m, mem_kind kind, int64_t need, int64_t size, const char *what, int64_t *capacity,
                       void **array);
#define mem_reserve(m, kind, need, what, capacity, array)                                                    \
    mem_reserve(m, kind, need, (int64_t)sizeof **(array), what, capacity, MEM_OUT(array))
void mem_free(mem *m, void *block); /* NULL is allowed */
/* Moves a block to another account. NULL is allowed. */
void mem_move(mem *from, mem *to, void *block);
void mem_free_all(mem *m); /* frees all live blocks */
ott_status mem_strdup(mem *m, const char *text, char **out);

mem_stats mem_read(const mem *m);
const char *mem_kind_name(mem_kind kind);
/* For tests: the n-th allocation from now on fails (1: the next one). 0: none fails. */
void mem_fail_after(mem *m, int64_t n);

#endif
