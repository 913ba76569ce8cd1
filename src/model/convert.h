/*
 * model/convert: converts the linear layers of a model to FP8 or another format. A layer that an FP8 recipe
 * leaves in high precision is logged with the reason.
 */
#ifndef MODEL_CONVERT_H
#define MODEL_CONVERT_H

#include "model/model.h"

/* Layers use `recipe` if the pattern `match` (wildcards * and ?) matches their name in any framework. */
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
    /* Also converts layers with dimensions that are not multiples of 16 (torchao's pad_inner_dim). GEMMs then
       pad them with zeros, which change no amax and no sum. */
    bool any_dimension;
    bool reduced;             /* model.reduce made the model small, so CONVERT_FILTER_SMALL has no effect */
    const module_rule *rules; /* the first rule that matches a layer applies */
    int rule_count;
    int64_t keep_first, keep_last; /* number of first and of last blocks that stay in high precision */
    bool experts;          /* also converts expert weights; routers and shared experts are never converted */
    bool for_storage;      /* chooses weights to store in FP8: expert weights can be chosen, routers cannot */
    bool store_mlp_inputs; /* stores the outputs of FP8 gate and up layers for backward in FP8 (nn/mlp.h) */
    bool smooth_mlp;       /* applies SmoothQuant to the input of FP8 down projections (nn/mlp.h) */
    const logger *log;
    /* A call of the public API: layers that it does not convert keep their earlier format, filters without a
       match are warnings, and messages name API options, not configuration keys. */
    bool by_call;
    bool small; /* same effect as CONVERT_FILTER_SMALL in `filter` */
    /* Last filter, or NULL. It is called for each layer that would be converted; false prevents this. */
    bool (*accepts)(void *user, const model_module *e);
    void *user;
} convert_options;

/* torch._scaled_mm and cuBLASLt require both dimensions of an FP8 weight to be multiples of 16. CPU GEMMs do
   not, but unless any_dimension is set, the rule is the same on the CPU. */
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

/* Sets the spec of every linear layer by its recipe. Allocates compute weights and the state of delayed
   scaling, and sets which quantized copies activations need. Logs each layer that an FP8 recipe leaves in
   high precision, with the reason. May be called again between steps: layers that still use delayed scaling
   keep its state. `out` may be NULL. OTT_ERR_ARGUMENT for a packed model (model/pack.h). OTT_ERR_UNSUPPORTED
   for a recipe that the device cannot run. OTT_ERR_CONFIG, only for FP8 recipes, if a filter or rule matches
   no layer (model/names.h), or if no layer is converted and float8.fallback moved none. */
ott_status model_convert(model *m, const convert_options *o, convert_summary *out);

/* How one linear layer is converted. */
typedef struct convert_verdict {
    const recipe *recipe; /* the layer's recipe; a high-precision recipe if the layer is not converted */
    convert_kept by;      /* kind of `reason`; valid if `reason` is not "" */
    char reason[256];     /* why the layer stays in high precision; "" if it is converted */
} convert_verdict;

/* Decides about linear layer `e` by the filters, rules and thresholds of `o`. layers: blocks of the model.
   high_precision: its activation format. Layers of no model have role ROLE_COUNT, layer MODULES_OUTSIDE. */
ott_status convert_judge(const convert_options *o, const model_module *e, int64_t layers,
                         ott_dtype high_precision, convert_verdict *out);
/* Returns the recipe of layers that stay in high precision, for activations in format `high`. */
const recipe *convert_high_precision(const convert_options *o, ott_dtype high);
/* True if a matrix with these dimensions can be converted. */
bool convert_takes_dimensions(const convert_options *o, int64_t in, int64_t out);
/* Logs a warning for each filter that matches no linear layer, and one if no layer was converted. */
void convert_warn_unmatched(const convert_options *o, const module_list *list, const convert_summary *s);

#endif
