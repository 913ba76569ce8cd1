/*
 * model/convert: converts the linear layers of a model to FP8 or another format. A layer that an FP8 recipe
 * leaves in high precision is logged with the reason.
 */
#ifndef MODEL_CONVERT_H
#define MODEL_CONVERT_H

#include "model/model.h"

/* Layers with a name, in any spelling, that matches (* any characters, ? one) use this recipe. */
typedef struct module_rule {
    const char *match;
    const recipe *recipe;
} module_rule;

typedef struct convert_options {
    const recipe *recipe;
    const recipe *bf16; /* the recipe of layers that stay in bf16; NULL: the table's */
    /* Recipe by which frozen weights are stored in FP8, even if `recipe` is another one; NULL: none. */
    const recipe *kept;
    /* The members below matter only under an FP8 recipe. */
    /* Layers with a name, in any framework's spelling, that contains one of these texts stay in high
       precision. CONVERT_FILTER_SMALL leaves out layers that are too small to gain (torchao's thresholds). */
    const char *const *filter;
    int filter_count;
    /* Also convert layers with dimensions that are no multiples of 16 (torchao's pad_inner_dim). Padding with
       zeros changes no amax and no sum. */
    bool any_dimension;
    bool reduced; /* a large model was made small (model.reduce): CONVERT_FILTER_SMALL has no effect */
    const module_rule *rules; /* the first rule that matches a layer applies */
    int rule_count;
    int64_t keep_first, keep_last; /* number of blocks that stay in high precision at both ends */
    bool experts;                  /* also convert experts of mixtures; routers and shared experts stay */
    bool for_storage;      /* decide which weights are stored, not multiplied, in FP8: then all but routers */
    bool store_mlp_inputs; /* outputs of gate and up in FP8 layers are kept for backward in FP8 (nn/mlp.h) */
    bool smooth_mlp;       /* the input of FP8 down projections is smoothed (nn/mlp.h) */
    const logger *log;
    /* True for a call of the public API, which adds to earlier conversions. A layer that it leaves out keeps
       its format. A filter that matches nothing is a warning. Messages name options, not configuration
       keys. */
    bool by_call;
    bool small; /* same as CONVERT_FILTER_SMALL in `filter` */
    /* Last filter, called for layers that would be converted; false leaves the layer out. NULL: none. */
    bool (*accepts)(void *user, const model_module *e);
    void *user;
} convert_options;

/* torch._scaled_mm and cuBLASLt require both dimensions of an FP8 operand to be multiples of this. The CPU
   takes any dimension, but converts the same layers unless any_dimension is set. */
#define CONVERT_DIMENSION_MULTIPLE 16

#define CONVERT_FILTER_SMALL "auto_filter_small_kn"

/* Why a layer stays in high precision. */
typedef enum convert_kept {
    CONVERT_KEPT_EXPERTS,
    CONVERT_KEPT_FILTER,
    CONVERT_KEPT_FALLBACK,
    CONVERT_KEPT_END,
    CONVERT_KEPT_RULE,
    CONVERT_KEPT_DIMENSIONS,
    CONVERT_KEPT_SMALL,
    CONVERT_KEPT_REFUSED, /* `accepts` returned false */
    CONVERT_KEPT_COUNT
} convert_kept;

typedef struct convert_summary {
    int converted, linears;
    int kept[CONVERT_KEPT_COUNT]; /* layers that stay in high precision under an FP8 recipe, by reason */
    bool has_fp8_head;            /* the output head is converted, on any pipeline stage */
} convert_summary;

/* Compiles the recipe into every layer's spec, allocates compute weights and delayed-scaling state, and
   connects the activations. Logs each layer that stays in high precision under an FP8 recipe, with the
   reason. May be called again with other options between steps: layers that keep delayed scaling also keep
   its state, all other state starts from scratch. `out` may be NULL. OTT_ERR_ARGUMENT for a packed model
   (model/pack.h). OTT_ERR_UNSUPPORTED for a recipe that the device cannot run. OTT_ERR_CONFIG, under an FP8
   recipe, if a filter or rule matches no layer (model/names.h), or if no layer is converted and
   float8.fallback is not the reason. */
ott_status model_convert(model *m, const convert_options *o, convert_summary *out);

/* How one linear layer is converted. */
typedef struct convert_verdict {
    const recipe *recipe; /* the recipe that it uses; a high-precision recipe if it is not converted */
    convert_kept by;      /* valid if reason is not "" */
    char reason[256];     /* why it stays in high precision; "": it is converted */
} convert_verdict;

/* Applies the filters, rules and thresholds of `o` to layer `e` of a model with `layers` blocks and
   high_precision activations. A layer of no model has role ROLE_COUNT, layer MODULES_OUTSIDE and only a
   name. */
ott_status convert_judge(const convert_options *o, const model_module *e, int64_t layers,
                         ott_dtype high_precision, convert_verdict *out);
/* Returns the recipe of layers that stay in this high-precision format. */
const recipe *convert_high_precision(const convert_options *o, ott_dtype high);
/* True if a matrix with these dimensions can be converted. */
bool convert_takes_dimensions(const convert_options *o, int64_t in, int64_t out);
/* Logs a warning for each filter that matches no linear layer of the list, and if nothing was converted. */
void convert_warn_unmatched(const convert_options *o, const module_list *list, const convert_summary *s);

#endif
