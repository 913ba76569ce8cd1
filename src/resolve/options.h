/* resolve/options: fills in the defaults of ott_model_options, makes model_options of them, and copies them
   from and to a configuration. presets.c applies model.preset. */
#ifndef RESOLVE_OPTIONS_H
#define RESOLVE_OPTIONS_H

#include "config/config.h"
#include "model/options.h"
#include "ottava/module.h"

/* Copy members from and to the keys of [model], except lists. A key with its default that the user did
   not set becomes 0. */
void options_from_config(const config *cfg, ott_model_options *out);
void options_to_config(const ott_model_options *o, config *cfg);

/* Replaces members that are 0 by defaults, and -1 by 0. Switches become 0 or 1. OTT_ERR_CONFIG if a member is
   out of range; the message names its key, "model.n_heads". */
ott_status options_complete(ott_model_options *o);
/* Fills the members of *out that describe the model; others become 0. OTT_ERR_CONFIG if they contradict each
   other. Call options_complete first. */
ott_status options_describe(const ott_model_options *o, model_options *out);
/* Writes all members, with the lists, to section [model] of cfg. */
ott_status options_record(const ott_model_options *o, mem *account, config *cfg);

/* Sets the keys of [model] to the values of model.preset, unless the user set them. */
void presets_apply(config *cfg);

#endif
