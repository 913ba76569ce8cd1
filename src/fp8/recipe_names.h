/* fp8/recipe_names: the names under which others know the recipes of the table (fp8/recipe.h): the classes of
   TransformerEngine, the words of torchao's and Megatron's options. One list for configurations and the
   API. */
#ifndef FP8_RECIPE_NAMES_H
#define FP8_RECIPE_NAMES_H

/*
 * The table's name for `word`: "delayed" for "delayed", "DelayedScaling", "delayed_scaling" and
 * "transformer_engine.common.recipe.DelayedScaling". Case, '-' and '_' do not count, nor does what stands
 * before the last point. NULL when no recipe is meant.
 */
const char *recipe_canonical_name(const char *word);
/* The name, the table's or another's, that a mistyped one is near to; NULL: none is. */
const char *recipe_nearest_name(const char *word);
/*
 * What to say to a word that stands near recipes and is none ("HYBRID", "float8"): a clause that names what
 * it is and what to choose instead; NULL for any other word.
 */
const char *recipe_word_advice(const char *word);

#endif
