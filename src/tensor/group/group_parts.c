/* tensor/group/group_parts: parts of a split tensor, and names of collectives. */
#include "tensor/group/group.h"

const char *group_collective_name(collective_kind kind) {
    static const char *const names[] = {
#define X(name, text) text,
        COLLECTIVE_MAP(X)
#undef X
    };
    return names[kind];
}

int64_t group_part_rows(const int64_t *rows, int64_t total, int size, int r) {
    return rows ? rows[r] : total / size;
}

int64_t group_part_first(const int64_t *rows, int64_t total, int size, int r) {
    int64_t first = 0;
    for (int i = 0; i < r; i++) first += group_part_rows(rows, total, size, i);
    return first;
}
