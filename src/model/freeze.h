/* model/freeze: which parameters the patterns of train.freeze and train.freeze_schedule name. */
#ifndef MODEL_FREEZE_H
#define MODEL_FREEZE_H

#include "model/model.h"

/* Does the pattern name parameter "<module>.<kind>", or all of a module it is in, in any framework's spelling? */
bool freeze_names(const model_options *o, const model_module *e, const char *kind, const char *pattern);
/* Lets the trained parameters here that the patterns name rest, and no others: they have no updates. Returns how many of all
   stages' rest; OTT_ERR_CONFIG for a pattern that names none that is trained, or when all would rest. */
ott_status freeze_apply(model *m, const char *const *patterns, int count, int *frozen);

#endif
