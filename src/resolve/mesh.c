/* resolve/mesh: the mesh of [distributed]. */
#include "resolve/resolve.h"

ott_status mesh_resolve(config *cfg, int64_t ranks, const logger *log, mesh *out) {
    int64_t *const keys[MESH_DIMENSIONS] = {[MESH_PP] = &cfg->distributed.pp,
                                            [MESH_DP_REPLICATE] = &cfg->distributed.dp_replicate,
                                            [MESH_DP_SHARD] = &cfg->distributed.dp_shard,
                                            [MESH_CP] = &cfg->distributed.cp,
                                            [MESH_EP] = &cfg->distributed.ep,
                                            [MESH_TP] = &cfg->distributed.tp};
    int64_t asked[MESH_DIMENSIONS];
    for (int d = 0; d < MESH_DIMENSIONS; d++) asked[d] = *keys[d];
    if (cfg->distributed.fit) TRY(mesh_fit(asked, ranks, log));
    for (int d = 0; d < MESH_DIMENSIONS; d++) *keys[d] = asked[d];
    return mesh_open(asked, ranks, out);
}
