/* fp8/granularity: the table of granularities, and the number of scales that an operand has. */
#include "fp8/granularity.h"

scale_block granularity_block(granularity g) {
#define ALL(n) ((n) == 0 ? INT64_MAX : (n))
    static const scale_block blocks[] = {
#define X(constant, name, mn, k) {ALL(mn), ALL(k)},
        GRANULARITY_MAP(X)
#undef X
    };
    return blocks[g];
}

const char *granularity_name(granularity g) {
    static const char *const names[] = {
#define X(constant, name, mn, k) name,
        GRANULARITY_MAP(X)
#undef X
    };
    return names[g];
}

bool granularity_is_block(granularity g) {
    return g != GRANULARITY_TENSOR && g != GRANULARITY_ROW;
}

int64_t granularity_mn_groups(granularity g, int64_t mn) {
    return granularity_blocks(mn, granularity_block(g).mn);
}

int64_t granularity_groups(granularity g, int64_t mn, int64_t k) {
    return granularity_mn_groups(g, mn) * granularity_blocks(k, granularity_block(g).k);
}
