/*
 * api/module/model: a model (model/model.h) as a public module. It has one child node per entry of the
 * model's module list. These nodes point to the model's layers and parameters. Internal to this folder.
 */
#ifndef API_MODULE_MODEL_H
#define API_MODULE_MODEL_H

#include "api/sequence_layout.h"
#include "run/inference.h"
#include "train/trainer.h"

/* The body of a model module. It must not be moved, because `options` points into `precision`. */
typedef struct model_body {
    struct config *cfg; /* copy of the configuration, or a record of the options; with derived values */
    precision_plan precision;
    trainer_options options;
    const optimizer_rule *rule; /* rule of the optimizer in section [optimizer] */
    model *m;
    model_slot *slot;
    const char *recipe_name; /* name of the last conversion's recipe; static text */
    run_state run;           /* the counters that checkpoints save */
    ott_group *amax_group;   /* group of the last conversion; NULL: this rank only */
    sequence_layout sequences;
    batch batch;        /* batch of the last forward */
    module_value token; /* the module's copy of the caller's tokens */
} model_body;

/* Returns the body of m; NULL if m is not a model. */
static inline model_body *module_model_body(const ott_module *m) {
    return m->table->is_model ? m->body : NULL;
}
/* Fails with OTT_ERR_ARGUMENT unless m is an open model. The text names the function and the argument. */
ott_status module_model_check(const ott_module *m, const char *function, const char *argument);
/* Prepares m, a model between two steps, for passes with its weights as they are now. *out borrows m's
   parts. */
ott_status module_model_live(ott_module *m, live_model *out);
/* Sets layers to high precision if they had fallen back (float8.fallback) when the checkpoint was saved. */
ott_status module_model_apply_fallbacks(model_body *b);
/* The learning rate of the next step, from the configuration's schedule. */
double module_model_learning_rate(const model_body *b);
/* Counts an optimizer step. updates: the optimizer's updates so far. skipped: this step made no update. */
void module_model_count_step(model_body *b, int64_t updates, bool skipped);

#endif
