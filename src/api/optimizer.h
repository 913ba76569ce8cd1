/* api/optimizer: AdamW over the parameters of a public module. Internal to this floor. */
#ifndef API_OPTIMIZER_H
#define API_OPTIMIZER_H

#include "api/module.h"
#include "train/optimizer.h"

struct ott_optimizer {
    handle handle;
    ott_module *module; /* borrowed; may have been closed since */
    optimizer_options options;
    double lr;
    int64_t updates;
    parameter *parameters; /* the module's, in its order, with moments of our own */
    int count;
    void *block; /* device memory: moments of all, norms, step state */
    tensor norms, state;
};

/* OTT_ERR_ARGUMENT, naming the function, when the optimizer or its module is closed. */
ott_status optimizer_check(const ott_optimizer *o, const char *function);

#endif
