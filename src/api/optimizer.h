/* api/optimizer: an update rule over the parameters of a public module. Internal to this floor. */
#ifndef API_OPTIMIZER_H
#define API_OPTIMIZER_H

#include "api/module.h"
#include "nn/optimizer.h"

struct ott_optimizer {
    handle handle;
    ott_module *module; /* borrowed; may have been closed since */
    const optimizer_rule *rule;
    optimizer_options options;
    double lr;
    bool scheduled; /* lr is that of the model's configuration */
    int64_t updates;
    parameter *parameters; /* the module's, in its order, with state of our own */
    int count;
    void *block; /* device memory: the rule's state of all, step state */
    tensor state;
    plan *plan; /* immediate: the update's workspace */
};

/* OTT_ERR_ARGUMENT, naming the function, when the optimizer or its module is closed. */
ott_status optimizer_check(const ott_optimizer *o, const char *function);

#endif
