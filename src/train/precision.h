/*
 * train/precision: reads the keys of [float8] into recipes, the precision schedule and rules for single
 * modules.
 *
 * Recipe options (margin, amax_epsilon, fp8_format, ...) change every recipe of the recipe table that has the
 * option. The recipes keep their names. Operand keys, fast_accum_* and accumulate* change only the recipe of
 * float8.recipe_name, which is then named "custom". Entries of the schedule and rules name a recipe of the
 * table, bf16, fp32, or "fp8", which is the recipe that [float8] describes.
 */
#ifndef TRAIN_PRECISION_H
#define TRAIN_PRECISION_H

#include "config/config.h"
#include "model/convert.h"

enum {
    PRECISION_ROWS = 24,
    PRECISION_PHASES_MAX = 32,
    PRECISION_RULES_MAX = 128,
    PRECISION_TEXT = 8192 /* bytes of the patterns of all rules */
};

/* A phase of the schedule: `recipe` applies from training step `first` on, counted from 0. */
typedef struct precision_phase {
    const recipe *recipe;
    int64_t first;
} precision_phase;

/* Do not move or copy a plan after precision_plan_read: it has pointers into itself. */
typedef struct precision_plan {
    recipe rows[PRECISION_ROWS]; /* copy of the table in fp8/recipe.h, changed by the recipe options */
    int row_count;
    const recipe *bf16; /* the row named bf16 */
    recipe fp8;         /* recipe described by [float8]; without FP8, recipe of train.mixed_precision */
    precision_phase phases[PRECISION_PHASES_MAX]; /* in ascending order; phases[0].first is 0 */
    int phase_count;
    module_rule rules[PRECISION_RULES_MAX]; /* no rules unless mixed_precision is fp8 */
    int rule_count;
    char text[PRECISION_TEXT]; /* storage of the rules' patterns */
    int text_length;
} precision_plan;

/* Without float8.schedule there is one phase. Every recipe of a phase or rule has passed recipe_check. The
   message of OTT_ERR_CONFIG has the key, the value, what is allowed and the nearest match. */
ott_status precision_plan_read(const config *cfg, precision_plan *out);
/* Fills only out->rows, out->bf16 and out->fp8; does not read the schedule and the rules. */
ott_status precision_read_recipe(const config *cfg, precision_plan *out);
/* Returns the recipe of training step `step`, counted from 0. */
const recipe *precision_at(const precision_plan *p, int64_t step);

#endif
