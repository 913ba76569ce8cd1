/* api/optimizer: the optimizer object of the public API. Internal to this folder. */
#ifndef API_OPTIMIZER_H
#define API_OPTIMIZER_H

#include "api/module/module.h"
#include "optimizer/optimizer.h"

struct ott_optimizer {
    handle handle;
    ott_module *module; /* borrowed; optimizer_check finds out whether the caller has closed it */
    const optimizer_rule *rule;
    optimizer_options options;
    double lr;
    bool scheduled; /* lr follows [scheduler] of the model's configuration */
    int64_t updates;
    parameter *parameters; /* [count] copies of the module's parameters, with this optimizer's state */
    int count;
    void *block;  /* device memory for the optimizer state of all parameters and for `state` */
    tensor state; /* step state (tensor/step_state.h) */
    plan *plan;   /* immediate plan, which has the workspace of updates */
};

/* Fails with OTT_ERR_ARGUMENT if the optimizer or its module is closed. The text names the function. */
ott_status optimizer_check(const ott_optimizer *o, const char *function);

#endif
