/* fp8/recipe_names: maps names from other projects (TransformerEngine's classes, torchao's and Megatron's
   options) to recipes of the table in fp8/recipe.h. Configurations and the API use the same list. */
#ifndef FP8_RECIPE_NAMES_H
#define FP8_RECIPE_NAMES_H

/* Returns the table's name for `word`: "delayed" for "delayed", "DelayedScaling", "delayed_scaling" and
   "transformer_engine.common.recipe.DelayedScaling". Ignores case, '-', '_' and everything before the last
   point. NULL if `word` names no recipe. */
const char *recipe_canonical_name(const char *word);
/* Returns the known name nearest to a mistyped `word`; NULL if none is near. */
const char *recipe_nearest_name(const char *word);
/* For a word that is related to recipes but names none ("HYBRID", "float8"): returns a clause that explains
   it and what to choose instead. NULL for other words. */
const char *recipe_word_advice(const char *word);

#endif
