/* api/loss: targets of losses. Internal to this floor. */
#ifndef API_LOSS_H
#define API_LOSS_H

#include "api/tensor.h"

/* How many targets count (the others are -100), all of them checked: 0 to classes - 1. OTT_ERR_ARGUMENT names the first
   that is not, or says that none counts. */
ott_status loss_count_targets(const ott_tensor *target, int64_t classes, const char *function,
                              int64_t *counted);

#endif
