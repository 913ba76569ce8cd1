/* base/arena: many small blocks with one lifetime: strings and tables of a configuration, names of a model.
   Debug builds put red zones between blocks (poisoned under AddressSanitizer, checked at close otherwise). */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/mem.h"

typedef struct arena arena;

ott_status arena_open(mem *account, mem_kind kind, arena **out);
void arena_close(arena *a); /* frees every block; NULL is allowed */
/* Zero-filled, aligned to 16. */
ott_status arena_alloc(arena *a, int64_t bytes, void **out);
ott_status arena_strdup(arena *a, const char *text, const char **out);
ott_status arena_printf(arena *a, const char **out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 0 when every red zone is intact, else the number of damaged blocks (debug builds; always 0 in release). */
int arena_check(const arena *a);

#endif
