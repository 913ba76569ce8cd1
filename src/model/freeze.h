/* model/freeze: which parameters the patterns of train.freeze and train.freeze_schedule match. */
#ifndef MODEL_FREEZE_H
#define MODEL_FREEZE_H

#include "model/model.h"

/* True if the pattern matches, in any framework's spelling, the name "<module>.<kind>" of a parameter or the
   name of a module that contains the parameter. kind: "weight", "bias", ... */
bool freeze_names(const model_options *o, const model_module *e, const char *kind, const char *pattern);
/* Freezes exactly the trained parameters that the patterns match: until the next call, they get no updates.
   *frozen: number of frozen parameters on all pipeline stages. OTT_ERR_CONFIG if a pattern matches no trained
   parameter that earlier patterns do not match, or if no parameter would train. */
ott_status freeze_apply(model *m, const char *const *patterns, int count, int *frozen);

#endif
