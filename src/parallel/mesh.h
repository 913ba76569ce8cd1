/*
 * parallel/mesh: arranges a run's ranks in a six-dimensional mesh. It only computes; it does not communicate.
 *
 * The dimensions are in KempnerForge's order, outermost first. Consecutive ranks are neighbors in tp, the
 * dimension with the most communication. So tp ranks are usually on one machine.
 */
#ifndef PARALLEL_MESH_H
#define PARALLEL_MESH_H

#include "base/log.h"
#include "base/status.h"
#include <stdint.h>

/* X(name, config key, meaning) */
#define MESH_DIMENSION_MAP(X)                                                                                \
    X(PP, "pp", "pipeline stages")                                                                           \
    X(DP_REPLICATE, "dp_replicate", "copies of the parameters")                                              \
    X(DP_SHARD, "dp_shard", "ranks that share one copy of the parameters")                                   \
    X(CP, "cp", "ranks that share one sequence")                                                             \
    X(EP, "ep", "ranks that divide the experts of one copy of the parameters")                               \
    X(TP, "tp", "ranks that share one layer")

typedef enum mesh_dimension {
#define X(name, text, what) MESH_##name,
    MESH_DIMENSION_MAP(X)
#undef X
        MESH_DIMENSIONS
} mesh_dimension;

/* A set of dimensions. Ranks of one process group differ only in their coordinates along these dimensions. */
typedef unsigned mesh_set;
#define MESH_SET(name) (1u << MESH_##name)
#define MESH_SHARD     (MESH_SET(DP_SHARD) | MESH_SET(EP))   /* ranks that share one copy of the parameters */
#define MESH_DATA      (MESH_SET(DP_REPLICATE) | MESH_SHARD) /* ranks with different micro-batches */
#define MESH_LOSS      (MESH_DATA | MESH_SET(CP))            /* ranks with different tokens */
#define MESH_ALL       ((1u << MESH_DIMENSIONS) - 1)

typedef struct mesh {
    int64_t size[MESH_DIMENSIONS]; /* number of ranks along each dimension, at least 1 */
} mesh;

/* Opens a mesh of the sizes in `asked`. dp_shard = -1 takes all remaining ranks; -1 for others counts as 1.
   OTT_ERR_CONFIG if the product of the sizes is not `ranks`; the message names the keys distributed.*. */
ott_status mesh_open(const int64_t asked[MESH_DIMENSIONS], int64_t ranks, mesh *out);

/* If the product of the sizes is not `ranks`, reduces sizes to divisors until it is. tp gets ranks first,
   then cp, pp, ep, dp_replicate; dp_shard gets the rest. Logs each change. */
ott_status mesh_fit(int64_t asked[MESH_DIMENSIONS], int64_t ranks, const logger *log);

int64_t mesh_ranks(const mesh *m);
/* Writes the mesh's sizes above 1, as in "dp_replicate 2 x dp_shard 4", or "1 rank" if all are 1. */
void mesh_describe(const mesh *m, char text[128]);

/* For rank's group along `dimensions`: its size; its ranks, ascending; the index of `rank` among them. */
int64_t mesh_group_size(const mesh *m, mesh_set dimensions);
void mesh_group(const mesh *m, mesh_set dimensions, int64_t rank, int *ranks);
int64_t mesh_group_rank(const mesh *m, mesh_set dimensions, int64_t rank);

#endif
