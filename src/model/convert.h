/*
 * model/convert: gives every linear layer of a model its numeric representation. A layer that a recipe's FP8
 * does not reach says why; nothing falls back unasked.
 */
#ifndef MODEL_CONVERT_H
#define MODEL_CONVERT_H

#include "model/model.h"

/* Layers whose name, in any framework's spelling, fits the pattern (* any characters, ? one) run under this
   recipe. */
typedef struct module_rule {
    const char *match;
    const recipe *recipe;
} module_rule;

typedef struct convert_options {
    const recipe *recipe;
    const recipe
        *kept; /* whatever recipe is in force now: after which frozen weights are kept in FP8; NULL: none */
    /* The rest matters under an FP8 recipe only. */
    const char *const
        *filter; /* a layer whose name, in any framework's spelling, contains one of these stays; and
                    CONVERT_FILTER_SMALL leaves out layers too small to gain (torchao's thresholds) */
    int filter_count;
    bool any_dimension; /* multiples of 16 or not (torchao's pad_inner_dim): zeros behind the end change no
                           amax and no sum */
    bool reduced;       /* a large model made small to try it: CONVERT_FILTER_SMALL has no effect */
    const module_rule *rules; /* the first that fits counts */
    int rule_count;
    int64_t keep_first, keep_last; /* blocks in high precision at either end */
    bool experts;                  /* the experts of mixtures too; never their routers */
    bool for_storage;      /* a weight is to be kept, and not multiplied, in FP8: then shared experts too */
    bool store_mlp_inputs; /* gate and up of layers in FP8 wait for backward in FP8 (nn/mlp.h) */
    bool smooth_mlp;       /* what down takes in FP8 is smoothed (the same) */
    const logger *log;
    /* A call of the public API, on top of earlier ones: a layer that it keeps stays as it is; what names or reaches
       nothing is warned of; messages name its options and not keys of a configuration. */
    bool by_call;
    bool small;                                         /* as CONVERT_FILTER_SMALL among the filters */
    bool (*accepts)(void *user, const model_module *e); /* asked of what nothing else keeps; NULL: all */
    void *user;
} convert_options;

/* torch._scaled_mm and cuBLASLt want both dimensions of an FP8 operand in multiples of this; so the same
   layers are converted everywhere, the CPU included, which takes any when it is asked to. */
#define CONVERT_DIMENSION_MULTIPLE 16

#define CONVERT_FILTER_SMALL "auto_filter_small_kn"

/* What kept a layer in high precision. */
typedef enum convert_kept {
    CONVERT_KEPT_EXPERTS,
    CONVERT_KEPT_FILTER,
    CONVERT_KEPT_FALLBACK,
    CONVERT_KEPT_END,
    CONVERT_KEPT_RULE,
    CONVERT_KEPT_DIMENSIONS,
    CONVERT_KEPT_SMALL,
    CONVERT_KEPT_REFUSED, /* by `accepts` */
    CONVERT_KEPT_COUNT
} convert_kept;

typedef struct convert_summary {
    int converted, linears;
    int kept[CONVERT_KEPT_COUNT]; /* the others, under an FP8 recipe */
    bool has_fp8_head;            /* the output head, of any stage of a pipeline, is converted */
} convert_summary;

/* Compiles the recipe into every layer's spec, allocates compute weights and the states of delayed scaling,
   and connects the activations. Logs each layer that stays in high precision under an FP8 recipe, with its reason.
   May be called again with other options between steps: what is delayed scaling before and after keeps its
   state, all else starts anew. OTT_ERR_ARGUMENT for a packed model (model/pack.h), OTT_ERR_UNSUPPORTED for a
   recipe that the device cannot run. OTT_ERR_CONFIG, under an
   FP8 recipe, for a filter or rule that names no layer (model/names.h), and when no layer is converted though
   none has fallen back. */
ott_status model_convert(model *m, const convert_options *o, convert_summary *out);

/* What becomes of one linear layer under an FP8 recipe. */
typedef struct convert_verdict {
    const recipe *recipe; /* what it runs under; where it stays, that of its activations */
    convert_kept by;
    char reason[256]; /* why it stays in high precision, ""; it is converted */
} convert_verdict;

/* Asks the filters, rules and thresholds of `o` about a layer of a model with so many blocks and activations of that
   format. One of no model has the role ROLE_COUNT, is in no layer, and its name is all that filters see. */
ott_status convert_judge(const convert_options *o, const model_module *e, int64_t layers,
                         ott_dtype high_precision, convert_verdict *out);
/* May a matrix of these dimensions be in FP8? */
bool convert_takes_dimensions(const convert_options *o, int64_t in, int64_t out);
/* Warns of filters that are in the name of no linear layer of the list, and of a conversion that reached none. */
void convert_warn_unmatched(const convert_options *o, const module_list *list, const convert_summary *s);

#endif
