/*
 * api/module_model: a whole model as a module: the program's (model/model.h), opened from a configuration. Its parts are
 * nodes that point at the model's layers and parameters, one for each module of its list, in that order. Internal to
 * this floor.
 */
#ifndef API_MODULE_MODEL_H
#define API_MODULE_MODEL_H

#include "api/sequence_layout.h"
#include "model/run.h"
#include "train/trainer.h"

/* The body of a model; it is not moved. */
typedef struct model_body {
    struct config *cfg; /* resolved; of its own */
    precision_plan precision;
    trainer_options options;
    const optimizer_rule *rule; /* the configuration's */
    model *m;
    model_slot *slot;
    const char *recipe_name; /* of the last conversion; static */
    run_state run;           /* what a run's checkpoint counts */
    ott_group *amax_group;   /* of the last conversion; NULL: alone */
    sequence_layout sequences;
    batch batch;        /* that forward kept */
    module_value token; /* its tokens, the module's own */
} model_body;

/* NULL: it is no model. */
static inline model_body *module_model_body(const ott_module *m) {
    return m->table->is_model ? m->body : NULL;
}
/* OTT_ERR_ARGUMENT, naming function and argument, unless it is an open model. */
ott_status module_model_check(const ott_module *m, const char *function, const char *argument);
/* What a checkpoint of the program asks of layers that had fallen back: they run in high precision from now on. */
ott_status module_model_apply_fallbacks(model_body *b);
/* Of the next step, as the configuration's schedule says. */
double module_model_learning_rate(const model_body *b);
/* An optimizer step over the model is done; the updates of that optimizer. */
void module_model_count_step(model_body *b, int64_t updates, bool skipped);

#endif
