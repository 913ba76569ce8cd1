/* api/optimizer: the optimizer object of the public API. Internal to this folder. */
#ifndef API_OPTIMIZER_H
#define API_OPTIMIZER_H

#include "api/module.h"
#include "nn/optimizer.h"

struct ott_optimizer {
    handle handle;
    ott_module *module; /* borrowed; the caller may have closed it (optimizer_check) */
    const optimizer_rule *rule;
    optimizer_options options;
    double lr;
    bool scheduled; /* lr follows the model's [scheduler] */
    int64_t updates;
    parameter *parameters; /* [count] copies of the module's, in its order, with this optimizer's state */
    int count;
    void *block;  /* device memory: optimizer state of all parameters, then `state` */
    tensor state; /* step state */
    plan *plan;   /* immediate: workspace of the update */
};

/* OTT_ERR_ARGUMENT, naming the function, if the optimizer or its module is closed. */
ott_status optimizer_check(const ott_optimizer *o, const char *function);

#endif
