/* model/freeze: which parameters the patterns of train.freeze and train.freeze_schedule match. */
#ifndef MODEL_FREEZE_H
#define MODEL_FREEZE_H

#include "model/model.h"

/* True if the pattern matches the parameter's name "<module>.<kind>", or the name of a module that contains
   it, in any framework's spelling. kind: "weight", "bias", ... */
bool freeze_names(const model_options *o, const model_module *e, const char *kind, const char *pattern);
/* Until the next call, the trained parameters that match a pattern get no updates, and all others do.
   *frozen: number of parameters that match, on all pipeline stages. OTT_ERR_CONFIG if a pattern matches no
   parameter or only parameters that earlier patterns match, or if all parameters match. */
ott_status freeze_apply(model *m, const char *const *patterns, int count, int *frozen);

#endif
