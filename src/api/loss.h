/* api/loss: checks of loss targets. Internal to this folder. */
#ifndef API_LOSS_H
#define API_LOSS_H

#include "api/fp8/tensor.h"

/* Counts the targets that are not -100 (ignored). OTT_ERR_ARGUMENT if such a target is not in [0, classes),
   or if all targets are -100. */
ott_status loss_count_targets(const ott_tensor *target, int64_t classes, const char *function,
                              int64_t *counted);

#endif
