/* fp8/granularity: the table of granularities, and the number and the memory of an operand's scales. */
#include "fp8/granularity.h"

typedef struct granularity_row {
    const char *name;
    scale_block block;
    ott_dtype scale;
    int levels;
} granularity_row;

static const granularity_row rows[GRANULARITY_COUNT] = {
#define ALL(n)                                  ((n) == 0 ? INT64_MAX : (n))
#define X(constant, name, mn, k, scale, levels) {name, {ALL(mn), ALL(k)}, OTT_##scale, levels},
    GRANULARITY_MAP(X)
#undef X
};

scale_block granularity_block(granularity g) {
    return rows[g].block;
}

const char *granularity_name(granularity g) {
    return rows[g].name;
}

ott_dtype granularity_scale_format(granularity g) {
    return rows[g].scale;
}

bool granularity_is_block(granularity g) {
    return rows[g].block.k != INT64_MAX;
}

bool granularity_spans_tensor(granularity g) {
    return g == GRANULARITY_TENSOR || rows[g].levels == 2;
}

int64_t granularity_mn_groups(granularity g, int64_t mn) {
    return granularity_blocks(mn, rows[g].block.mn);
}

scale_grid granularity_grid(granularity g, int64_t mn, int64_t k) {
    return (scale_grid){granularity_mn_groups(g, mn), granularity_blocks(k, rows[g].block.k)};
}

int64_t granularity_groups(granularity g, int64_t mn, int64_t k) {
    scale_grid grid = granularity_grid(g, mn, k);
    return grid.mn * grid.k;
}

scale_tiles granularity_tiles(granularity g, scale_grid grid) {
    scale_tiles t = {.format = rows[g].scale, .first = rows[g].levels == 2 ? SCALE_TILE_BYTES : 0};
    if (t.format == OTT_F32) return t;
    t.along_k = (grid.k + SCALE_TILE_K - 1) / SCALE_TILE_K;
    if (t.along_k == 0) t.along_k = 1;
    return t;
}

int64_t granularity_scale_bytes(granularity g, scale_grid grid) {
    if (rows[g].scale == OTT_F32) return dtype_count_bytes(OTT_F32, grid.mn * grid.k);
    const scale_tiles t = granularity_tiles(g, grid);
    return t.first + scale_tiles_bytes(grid.mn, t.along_k);
}
