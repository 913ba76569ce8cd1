/* fp8/recipe_names: the tables of other projects' names, and the comparison of names. */
#include "fp8/recipe_names.h"
#include "base/text/str.h"
#include "fp8/recipe.h"
#include <ctype.h>
#include <string.h>

static const struct {
    const char *word, *name;
} others[] = {
    /* TransformerEngine's classes */
    {"DelayedScaling", "delayed"},
    {"Float8CurrentScaling", "current"},
    {"CurrentScaling", "current"},
    {"Float8BlockScaling", "block"},
    {"BlockScaling", "block"},
    {"MXFP8BlockScaling", "mxfp8"},
    /* names in Megatron's options and DeepSeek's papers */
    {"blockwise", "block"},
    {"blockwise_fp8", "block"},
};

static const struct {
    const char *word, *advice;
} no_recipes[] = {
    {"float8", "that is a number format; \"tensorwise\" is torchao's default recipe, \"delayed\" "
               "TransformerEngine's"},
    {"fp8", "that is a number format; \"tensorwise\" is torchao's default recipe, \"delayed\" "
            "TransformerEngine's"},
    {"hybrid", "that is a choice of formats: set fp8_format = \"hybrid\" with the recipe \"delayed\" or "
               "\"current\"; \"tensorwise\" always uses these formats"},
    {"e4m3", "that is a number format: set fp8_format = \"e4m3\" with the recipe \"delayed\" or \"current\""},
    {"e5m2", "that is a number format: choose a recipe, and set the format of an operand: input = \"e5m2\""},
};

static int next_letter(const char **at) {
    while (**at == '_' || **at == '-') (*at)++;
    return **at ? tolower((unsigned char)*(*at)++) : 0;
}

static bool is_same(const char *a, const char *b) {
    int x, y;
    do {
        x = next_letter(&a);
        y = next_letter(&b);
    } while (x == y && x);
    return x == y;
}

const char *recipe_canonical_name(const char *word) {
    int count;
    const recipe *table = recipe_table(&count);
    const char *point = strrchr(word, '.');
    if (point) word = point + 1;
    for (int i = 0; i < count; i++)
        if (is_same(word, table[i].name)) return table[i].name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_same(word, others[i].word)) return others[i].name;
    return NULL;
}

const char *recipe_nearest_name(const char *word) {
    enum { OTHERS = sizeof others / sizeof *others, MOST = 32 };
    int count, known = 0;
    const char *names[MOST + OTHERS];
    const recipe *table = recipe_table(&count);
    for (; known < count && known < MOST; known++) names[known] = table[known].name;
    for (int i = 0; i < OTHERS; i++) names[known++] = others[i].word;
    return str_nearest(word, names, known);
}

const char *recipe_word_advice(const char *word) {
    for (size_t i = 0; i < sizeof no_recipes / sizeof *no_recipes; i++)
        if (is_same(word, no_recipes[i].word)) return no_recipes[i].advice;
    return NULL;
}
