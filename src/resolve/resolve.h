/* resolve: resolves a configuration into the options of a model and into a mesh of ranks. */
#ifndef RESOLVE_RESOLVE_H
#define RESOLVE_RESOLVE_H

#include "config/config.h"
#include "model/options.h"
#include "parallel/mesh.h"

/* Fills *out from cfg. Keys override the preset. Other values are derived. Writes all values back to cfg, so
   that the saved configuration is complete. OTT_ERR_CONFIG if values contradict each other. *out borrows
   lists and strings of cfg. The caller sets groups, stage, mixer, ffn and frozen_convert. */
ott_status model_options_resolve(config *cfg, model_options *out);

/* Opens the mesh of distributed.* on `ranks` ranks. If sizes do not fit, distributed.fit reduces them in cfg,
   with log lines; without it OTT_ERR_CONFIG. */
ott_status mesh_resolve(config *cfg, int64_t ranks, const logger *log, mesh *out);

#endif
