/*
 * model/convert: converts the linear layers of a model to FP8 or another format. A layer that an FP8 recipe
 * leaves in high precision is logged with the reason.
 */
#ifndef MODEL_CONVERT_H
#define MODEL_CONVERT_H

#include "model/model.h"

/* A layer uses `recipe` if `match` (* any characters, ? one) matches its name in any framework. */
typedef struct module_rule {
    const char *match;
    const recipe *recipe;
} module_rule;

typedef struct convert_options {
    const recipe *recipe;
    const recipe *bf16; /* recipe of layers that stay in bf16; NULL: recipe_high_precision(OTT_BF16) */
    const recipe *kept; /* recipe for frozen weights that are stored in FP8; NULL: none */
    /* The members below have no effect if `recipe` is not FP8. */
    /* A layer stays in high precision if any framework's name for it contains one of these texts.
       CONVERT_FILTER_SMALL excludes layers that are too small to gain (torchao's thresholds). */
    const char *const *filter;
    int filter_count;
    /* Also converts layers with dimensions that are not multiples of 16 (torchao's pad_inner_dim). Padding
       with zeros changes no amax and no sum. */
    bool any_dimension;
    bool reduced;             /* model.reduce made the model small, so CONVERT_FILTER_SMALL has no effect */
    const module_rule *rules; /* the first rule that matches a layer applies */
    int rule_count;
    int64_t keep_first, keep_last; /* number of first and of last blocks that stay in high precision */
    bool experts;          /* also converts expert weights; routers and shared experts are never converted */
    bool for_storage;      /* decides which weights are stored in FP8: expert weights too, but no routers */
    bool store_mlp_inputs; /* stores the outputs of FP8 gate and up layers for backward in FP8 (nn/mlp.h) */
    bool smooth_mlp;       /* applies SmoothQuant to the input of FP8 down projections (nn/mlp.h) */
    const logger *log;
    /* True for a call of the public API, which adds to earlier conversions: layers left out keep their
       format, a filter without a match is a warning, and messages name API options, not keys. */
    bool by_call;
    bool small; /* same effect as CONVERT_FILTER_SMALL in `filter` */
    /* Last filter, called for layers that would be converted; false: does not convert. NULL: no filter. */
    bool (*accepts)(void *user, const model_module *e);
    void *user;
} convert_options;

/* torch._scaled_mm and cuBLASLt require both dimensions of an FP8 operand to be multiples of 16. CPU GEMMs
   accept any dimension, but the CPU converts the same layers, unless any_dimension is set. */
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
    int kept[CONVERT_KEPT_COUNT]; /* number of layers that stay in high precision, by reason */
    bool has_fp8_head;            /* the output head, on the last pipeline stage, is converted */
} convert_summary;

/* Compiles the recipe into every layer's spec, allocates compute weights and delayed-scaling state, and
   connects the activations. Logs each layer that an FP8 recipe leaves in high precision, with the reason. May
   be called again with other options between steps: layers that keep delayed scaling also keep its state; all
   other delayed-scaling state starts from scratch. `out` may be NULL. OTT_ERR_ARGUMENT for a packed model
   (model/pack.h). OTT_ERR_UNSUPPORTED for a recipe that the device cannot run. OTT_ERR_CONFIG, under an FP8
   recipe, if a filter or rule matches no layer (model/names.h), or if no layer is converted and
   float8.fallback is not the reason. */
ott_status model_convert(model *m, const convert_options *o, convert_summary *out);

/* How one linear layer is converted. */
typedef struct convert_verdict {
    const recipe *recipe; /* the layer's recipe; a high-precision recipe if the layer is not converted */
    convert_kept by;      /* kind of `reason`; valid if `reason` is not "" */
    char reason[256];     /* why the layer stays in high precision; "" if it is converted */
} convert_verdict;

/* Applies the filters, rules and thresholds of `o` to linear layer `e` of a model with `layers` blocks and
   activations in format high_precision. A layer without a model: ROLE_COUNT and MODULES_OUTSIDE. */
ott_status convert_judge(const convert_options *o, const model_module *e, int64_t layers,
                         ott_dtype high_precision, convert_verdict *out);
/* Returns the recipe of layers that stay in this high-precision format. */
const recipe *convert_high_precision(const convert_options *o, ott_dtype high);
/* True if a matrix with these dimensions can be converted. */
bool convert_takes_dimensions(const convert_options *o, int64_t in, int64_t out);
/* Logs a warning for each filter that matches no linear layer of the list, and if no layer was converted. */
void convert_warn_unmatched(const convert_options *o, const module_list *list, const convert_summary *s);

#endif
