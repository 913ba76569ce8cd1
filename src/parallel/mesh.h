/*
 * parallel/mesh: how the ranks of a run are arranged: a box of six dimensions, in which every rank has a
 * place. Arithmetic alone, for any number of ranks.
 *
 * The dimensions are in KempnerForge's order, the outermost first: ranks that are neighbours in number are
 * neighbours in tp, the dimension that speaks most, and lie on one machine where they can.
 */
#ifndef PARALLEL_MESH_H
#define PARALLEL_MESH_H

#include "config/config.h"

/* X(name, text, what) */
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

/* Sets of dimensions: the ranks of a group differ in these, and in no other. */
typedef unsigned mesh_set;
#define MESH_SET(name) (1u << MESH_##name)
#define MESH_SHARD                                                                                           \
    (MESH_SET(DP_SHARD) | MESH_SET(EP)) /* one copy of the parameters; ep ranks have experts apart */
#define MESH_DATA (MESH_SET(DP_REPLICATE) | MESH_SHARD) /* rows of the data; gradients are summed */
#define MESH_LOSS (MESH_DATA | MESH_SET(CP))            /* tokens; losses and labels are summed */
#define MESH_ALL  ((1u << MESH_DIMENSIONS) - 1)

typedef struct mesh {
    int64_t size[MESH_DIMENSIONS]; /* ranks along each dimension, at least 1 */
} mesh;

/* The mesh that distributed.* asks for: ranks along each dimension, -1: for dp_shard all that remain, for the
   others 1. OTT_ERR_CONFIG when they do not make `ranks`. */
ott_status mesh_open(const config *cfg, int64_t ranks, mesh *out);

/* distributed.fit: if the sizes do not make `ranks`, reduces each to a divisor that the ranks allow (tp
   first, then cp, pp, ep and dp_replicate; dp_shard takes the rest), changes cfg and logs each change.
   Nothing without distributed.fit. */
ott_status mesh_fit(config *cfg, int64_t ranks, const logger *log);

int64_t mesh_ranks(const mesh *m);
/* "dp_replicate 2 x dp_shard 4": the dimensions of more than one rank; "1 rank" */
void mesh_describe(const mesh *m, char text[128]);

/* The ranks of the group that `rank` is in: how many, which, ascending (of mesh_group_size), and the
   how-manieth it is. */
int64_t mesh_group_size(const mesh *m, mesh_set dimensions);
void mesh_group(const mesh *m, mesh_set dimensions, int64_t rank, int *ranks);
int64_t mesh_group_rank(const mesh *m, mesh_set dimensions, int64_t rank);

#endif
