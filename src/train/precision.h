/*
 * train/precision: which recipe runs when and where: from the keys of [float8] to recipes, to the precision
 * schedule and to the rules for single modules.
 *
 * A recipe of the table takes the options that are its own (margin, amax_epsilon, fp8_format, ...) and stays
 * the recipe it is. What float8.recipe_name asks for takes besides them the operand keys, fast_accum_* and
 * accumulate*; when these change it, it is "custom". A schedule or a rule names recipes of the table, bf16,
 * fp32, or fp8: what [float8] asks for.
 */
#ifndef TRAIN_PRECISION_H
#define TRAIN_PRECISION_H

#include "config/config.h"
#include "model/convert.h"

enum {
    PRECISION_ROWS = 24,
    PRECISION_PHASES_MAX = 32,
    PRECISION_RULES_MAX = 128,
    PRECISION_TEXT = 8192 /* bytes of all patterns */
};

/* From training step `first` on (the first step of a run is 0). */
typedef struct precision_phase {
    const recipe *recipe;
    int64_t first;
} precision_phase;

/* Must not be moved once it is read: it points into itself. */
typedef struct precision_plan {
    recipe rows[PRECISION_ROWS]; /* the table of fp8/recipe.h, each with the options that are its own */
    int row_count;
    recipe fp8; /* what [float8] asks for; in a run of another precision, that precision's row */
    precision_phase phases[PRECISION_PHASES_MAX]; /* [0].first is 0; ascending */
    int phase_count;
    module_rule rules[PRECISION_RULES_MAX]; /* none in a run of another precision */
    int rule_count;
    char text[PRECISION_TEXT]; /* what the patterns point into */
    int text_length;
} precision_plan;

/* Without float8.schedule there is one phase. Every recipe that phases and rules use has passed recipe_check.
   OTT_ERR_CONFIG names the key, the value, what is allowed and the nearest match. */
ott_status precision_plan_read(const config *cfg, precision_plan *out);
/* What the run is in but for its schedule and rules: fills fp8 only. */
ott_status precision_read_recipe(const config *cfg, precision_plan *out);
/* The recipe of training step `step`, 0 or later. */
const recipe *precision_at(const precision_plan *p, int64_t step);

#endif
