/* base/arena: many small blocks with the same lifetime, such as a configuration's strings or a model's names.
   Debug builds put red zones between blocks (poisoned under AddressSanitizer, else checked at close). */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/mem.h"

typedef struct arena arena;

ott_status arena_open(mem *account, mem_kind kind, arena **out);
void arena_close(arena *a); /* frees the arena and every block; NULL is allowed */
/* Returns zero-filled memory, aligned to 16 bytes, owned by the arena. */
ott_status arena_alloc(arena *a, int64_t bytes, void **out);
#define arena_alloc(a, bytes, out) arena_alloc(a, bytes, MEM_OUT(out))
ott_status arena_strdup(arena *a, const char *text, const char **out);
ott_status arena_printf(arena *a, const char **out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the number of blocks with damaged red zones (debug builds; always 0 in release). */
int arena_check(const arena *a);

#endif
