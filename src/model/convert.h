/*
 * model/convert: gives every linear layer of a model its numeric representation. A layer that a recipe's FP8
 * does not reach says why; nothing falls back unasked.
 */
#ifndef MODEL_CONVERT_H
#define MODEL_CONVERT_H

#include "model/model.h"

typedef struct convert_options {
    const recipe *recipe;
    const char *const
        *filter; /* a layer whose name, in any framework's spelling, contains one of these stays */
    int filter_count;
    const logger *log;
} convert_options;

typedef struct convert_summary {
    int converted, linears;
} convert_summary;

/* Compiles the recipe into every layer's spec, allocates compute weights and connects the edges. Logs each
   layer that stays in high precision under an FP8 recipe, with its reason. May be called again with another
   recipe between steps. */
ott_status model_convert(model *m, const convert_options *o, convert_summary *out);

#endif
