/* parallel/mesh: arithmetic of the mesh. */
#include "parallel/mesh.h"
#include "base/text/size.h"
#include <stdio.h>

static const char *const names[] = {
#define X(name, text, what) text,
    MESH_DIMENSION_MAP(X)
#undef X
};

#define OFFER "--distributed.fit=true reduces the dimensions to fit the ranks"

static ott_status fail_ranks(const int64_t size[MESH_DIMENSIONS], int64_t product, int64_t ranks,
                             bool takes_rest) {
    char factors[160];
    /* Writes the sizes of all dimensions in order: "1 × 2 × 4 × 1 × 1 × 1". */
    int length = 0;
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        length +=
            snprintf(factors + length, 160 - (size_t)length, "%s%lld", d ? " × " : "", (long long)size[d]);
    if (takes_rest)
        return status_fail(
            OTT_ERR_CONFIG,
            "Parallelism dimensions (%s = %lld) do not match world_size (%lld): "
            "distributed.dp_shard = -1 takes the ranks that pp, dp_replicate, cp, ep and tp leave, but "
            "%lld is not a multiple of %lld; " OFFER,
            factors, (long long)product, (long long)ranks, (long long)ranks, (long long)product);
    return status_fail(
        OTT_ERR_CONFIG,
        "Parallelism dimensions (%s = %lld) do not match world_size (%lld): start %lld ranks, or "
        "change distributed.pp, dp_replicate, dp_shard (-1: all that remain), cp, ep, tp; " OFFER,
        factors, (long long)product, (long long)ranks, (long long)product);
}

/* Reads the sizes of all mesh dimensions; -1 counts as 1. *product: their product, at most INT64_MAX. */
static ott_status read_sizes(const int64_t asked[MESH_DIMENSIONS], int64_t size[MESH_DIMENSIONS],
                             int64_t *product) {
    *product = 1;
    for (int d = 0; d < MESH_DIMENSIONS; d++) {
        size[d] = asked[d] == -1 ? 1 : asked[d];
        STATUS_REQUIRE(size[d] >= 1);
        if (__builtin_mul_overflow(*product, size[d], product)) *product = INT64_MAX;
    }
    return OTT_OK;
}

ott_status mesh_open(const int64_t asked[MESH_DIMENSIONS], int64_t ranks, mesh *out) {
    bool takes_rest = asked[MESH_DP_SHARD] == -1;
    int64_t product;
    STATUS_REQUIRE(ranks >= 1);
    TRY(read_sizes(asked, out->size, &product));
    if (takes_rest && ranks % product == 0) out->size[MESH_DP_SHARD] = ranks / product;
    if (takes_rest ? ranks % product == 0 : product == ranks) return OTT_OK;
    return fail_ranks(out->size, product, ranks, takes_rest);
}

ott_status mesh_fit(int64_t asked[MESH_DIMENSIONS], int64_t ranks, const logger *log) {
    /* Order in which dimensions get ranks. Each size except dp_shard's becomes a divisor of the old size. */
    static const mesh_dimension order[] = {MESH_TP, MESH_CP,           MESH_PP,
                                           MESH_EP, MESH_DP_REPLICATE, MESH_DP_SHARD};
    int64_t size[MESH_DIMENSIONS], product, left = ranks;
    bool takes_rest = asked[MESH_DP_SHARD] == -1;
    STATUS_REQUIRE(ranks >= 1);
    TRY(read_sizes(asked, size, &product));
    if (takes_rest ? ranks % product == 0 : product == ranks) return OTT_OK;
    for (int i = 0; i < MESH_DIMENSIONS; i++) {
        mesh_dimension d = order[i];
        int64_t fitting = d == MESH_DP_SHARD ? left : size_common_divisor(size[d], left);
        left /= fitting;
        if (fitting == size[d] || asked[d] == -1) continue;
        log_info(log, "distributed.fit: distributed.%s = %lld (was %lld), on %lld rank%s", names[d],
                 (long long)fitting, (long long)size[d], (long long)ranks, ranks == 1 ? "" : "s");
        asked[d] = fitting;
    }
    return OTT_OK;
}

int64_t mesh_ranks(const mesh *m) {
    return mesh_group_size(m, MESH_ALL);
}

void mesh_describe(const mesh *m, char text[128]) {
    int length = snprintf(text, 128, "%s", mesh_ranks(m) == 1 ? "1 rank" : "");
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        if (m->size[d] > 1)
            length += snprintf(text + length, 128 - (size_t)length, "%s%s %lld", length ? " x " : "",
                               names[d], (long long)m->size[d]);
}

/* Sets at[] to the rank's coordinates in the mesh. */
static void find_coordinates(const mesh *m, int64_t rank, int64_t at[MESH_DIMENSIONS]) {
    for (int d = MESH_DIMENSIONS - 1; d >= 0; d--) {
        at[d] = rank % m->size[d];
        rank /= m->size[d];
    }
}

int64_t mesh_group_size(const mesh *m, mesh_set dimensions) {
    int64_t count = 1;
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        if (dimensions >> d & 1) count *= m->size[d];
    return count;
}

void mesh_group(const mesh *m, mesh_set dimensions, int64_t rank, int *ranks) {
    int64_t own[MESH_DIMENSIONS], at[MESH_DIMENSIONS], count = 0;
    find_coordinates(m, rank, own);
    for (int64_t r = 0; r < mesh_ranks(m); r++) {
        bool member = true;
        find_coordinates(m, r, at);
        for (int d = 0; d < MESH_DIMENSIONS; d++) member &= dimensions >> d & 1 || at[d] == own[d];
        if (member) ranks[count++] = (int)r;
    }
}

int64_t mesh_group_rank(const mesh *m, mesh_set dimensions, int64_t rank) {
    int64_t at[MESH_DIMENSIONS], index = 0;
    find_coordinates(m, rank, at);
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        if (dimensions >> d & 1) index = index * m->size[d] + at[d];
    return index;
}
