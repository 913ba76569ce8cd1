/* fp8/recipe: the table of recipes, its checks, and recipe_compile, which makes a layer's specs. */
#include "fp8/recipe.h"

#include <float.h>
#include <string.h>

/* ---- the table ---- */

#define HIGH_PRECISION(d)                                                                                    \
    { .format = (d) }
#define HIGH_PRECISION_TENSOR(d)                                                                             \
    { HIGH_PRECISION(d), HIGH_PRECISION(d) }

/* torchao: dynamic scaling, saturating, rounded to nearest even. */
#define TORCHAO_CAST(d, granule, pow2)                                                                       \
    {                                                                                                        \
        .format = (d), .grain = (granule), .scale = {.rule = SCALE_TORCHAO, .power_of_two = (pow2)},         \
        .mode = CAST_SATURATE, .rounding = ROUND_NEAREST, .policy = AMAX_CURRENT                             \
    }
#define TENSORWISE(d)   TORCHAO_CAST(d, GRANULARITY_TENSOR, false)
#define TENSORWISE_POW2 TORCHAO_CAST(OTT_E4M3, GRANULARITY_TENSOR, true)
#define ROWWISE         TORCHAO_CAST(OTT_E4M3, GRANULARITY_ROW, true)

/* As in TransformerEngine, an amax of 0, inf or NaN gives scale 1. An infinite scale becomes `limit`. */
#define TE_CAST(d, granule, pow2, limit)                                                                     \
    {                                                                                                        \
        .format = (d), .grain = (granule),                                                                   \
        .scale = {.rule = SCALE_TE, .power_of_two = (pow2), .infinite = (limit)}, .mode = CAST_SATURATE,     \
        .rounding = ROUND_NEAREST, .policy = AMAX_CURRENT                                                    \
    }
#define CURRENT(d)   TE_CAST(d, GRANULARITY_TENSOR, false, FLT_MAX)
#define BLOCK(grain) TE_CAST(OTT_E4M3, grain, true, BF16_MAX)
#define DELAYED(d)                                                                                           \
    {                                                                                                        \
        .format = (d), .grain = GRANULARITY_TENSOR, .scale = {.rule = SCALE_TE, .infinite = FLT_MAX},        \
        .mode = CAST_SATURATE, .rounding = ROUND_NEAREST, .policy = AMAX_DELAYED, .algorithm = AMAX_MAX,     \
        .history = 1024, .reduce = true                                                                      \
    }
#define MX                                                                                                   \
    {                                                                                                        \
        .format = OTT_E4M3, .grain = GRANULARITY_1X32, .scale = {.rule = SCALE_E8M0}, .mode = CAST_SATURATE, \
        .rounding = ROUND_NEAREST, .policy = AMAX_CURRENT                                                    \
    }

#define GEMM(fast)                                                                                           \
    { .accumulate = ACCUMULATE_FP32, .fast_accumulate = (fast), .order = SCALE_PRODUCT }

/* As in TransformerEngine, a block's sum is first multiplied by scale_inv of A, which has 1x128 blocks. */
#define BLOCK_GEMM                                                                                           \
    { .accumulate = ACCUMULATE_FP32, .fast_accumulate = false, .order = SCALE_A_THEN_B }

#define HIGH_PRECISION_ROW(text, shown, d)                                                                   \
    {                                                                                                        \
        .name = (text), .display = (shown), .source = "every operand in the activation format",              \
        .activation = (d), .input = HIGH_PRECISION_TENSOR(d), .weight = HIGH_PRECISION_TENSOR(d),            \
        .grad_output = HIGH_PRECISION_TENSOR(d), .gemm = {                                                   \
            GEMM(false),                                                                                     \
            GEMM(false),                                                                                     \
            GEMM(false)                                                                                      \
        }                                                                                                    \
    }

static const recipe recipes[] = {
    HIGH_PRECISION_ROW("fp32", "FP32", OTT_F32),
    HIGH_PRECISION_ROW("bf16", "BF16", OTT_BF16),
    HIGH_PRECISION_ROW("fp16", "FP16", OTT_F16),
    {
        .name = "tensorwise",
        .display = "TENSORWISE",
        .source = "torchao.float8 Float8LinearRecipeName.TENSORWISE",
        .activation = OTT_BF16,
        .input = {TENSORWISE(OTT_E4M3), TENSORWISE(OTT_E4M3)},
        .weight = {TENSORWISE(OTT_E4M3), TENSORWISE(OTT_E4M3)},
        .grad_output = {TENSORWISE(OTT_E5M2), TENSORWISE(OTT_E5M2)},
        .gemm = {GEMM(true), GEMM(false), GEMM(false)},
    },
    {
        .name = "rowwise",
        .display = "ROWWISE",
        .source = "torchao.float8 Float8LinearRecipeName.ROWWISE",
        .activation = OTT_BF16,
        .input = {ROWWISE, ROWWISE},
        .weight = {ROWWISE, ROWWISE},
        .grad_output = {ROWWISE, ROWWISE},
        .gemm = {GEMM(true), GEMM(false), GEMM(false)},
    },
    {
        .name = "rowwise_with_gw_hp",
        .display = "ROWWISE_WITH_GW_HP",
        .source = "torchao.float8 Float8LinearRecipeName.ROWWISE_WITH_GW_HP",
        .activation = OTT_BF16,
        .input = {ROWWISE, HIGH_PRECISION(OTT_BF16)},
        .weight = {ROWWISE, TENSORWISE_POW2},
        .grad_output = {ROWWISE, HIGH_PRECISION(OTT_BF16)},
        .gemm = {GEMM(true), GEMM(false), GEMM(false)},
    },
    {
        .name = "delayed",
        .display = "DELAYED",
        .source = "TransformerEngine DelayedScaling",
        .activation = OTT_BF16,
        .input = {DELAYED(OTT_E4M3), DELAYED(OTT_E4M3)},
        .weight = {DELAYED(OTT_E4M3), DELAYED(OTT_E4M3)},
        .grad_output = {DELAYED(OTT_E5M2), DELAYED(OTT_E5M2)},
        .gemm = {GEMM(true), GEMM(false), GEMM(false)},
    },
    {
        .name = "current",
        .display = "CURRENT",
        .source = "TransformerEngine Float8CurrentScaling",
        .activation = OTT_BF16,
        .input = {CURRENT(OTT_E4M3), CURRENT(OTT_E4M3)},
        .weight = {CURRENT(OTT_E4M3), CURRENT(OTT_E4M3)},
        .grad_output = {CURRENT(OTT_E5M2), CURRENT(OTT_E5M2)},
        .gemm = {GEMM(true), GEMM(false), GEMM(false)},
    },
    {
        .name = "block",
        .display = "BLOCK",
        .source = "TransformerEngine Float8BlockScaling; DeepSeek-V3",
        .activation = OTT_BF16,
        .input = {BLOCK(GRANULARITY_1X128), BLOCK(GRANULARITY_1X128)},
        .weight = {BLOCK(GRANULARITY_128X128), BLOCK(GRANULARITY_128X128)},
        .grad_output = {BLOCK(GRANULARITY_1X128), BLOCK(GRANULARITY_1X128)},
        .gemm = {BLOCK_GEMM, BLOCK_GEMM, BLOCK_GEMM},
    },
    {
        .name = "mxfp8",
        .display = "MXFP8",
        .source = "TransformerEngine MXFP8BlockScaling; OCP MX v1.0",
        .activation = OTT_BF16,
        .input = {MX, MX},
        .weight = {MX, MX},
        .grad_output = {MX, MX},
        .gemm = {GEMM(false), GEMM(false), GEMM(false)},
    },
};

const recipe *recipe_table(int *count) {
    *count = (int)(sizeof recipes / sizeof recipes[0]);
    return recipes;
}

const recipe *recipe_find(const char *name) {
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const recipe *recipe_high_precision(ott_dtype d) {
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++)
        if (table[i].activation == d && !recipe_gemm_is_fp8(&table[i], GEMM_COUNT)) return &table[i];
    return NULL;
}

const char *recipe_accumulate_name(accumulate_mode mode) {
    static const char *const names[] = {[ACCUMULATE_FP32] = "fp32",
                                        [ACCUMULATE_HOPPER_FAST] = "hopper fast",
                                        [ACCUMULATE_HOPPER_SPLIT] = "hopper split",
                                        [ACCUMULATE_TILE32] = "tile32"};
    return names[mode];
}

/* ---- the operands of each GEMM ---- */

typedef struct gemm_operands {
    const char *gemm, *name[2];
    const cast_spec *use[2];
} gemm_operands;

static gemm_operands recipe_operands(const recipe *r, recipe_gemm which) {
    switch (which) {
    case GEMM_GRAD_INPUT:
        return (gemm_operands){"grad_input",
                               {"grad_output.rowwise", "weight.columnwise"},
                               {&r->grad_output.rowwise, &r->weight.columnwise}};
    case GEMM_GRAD_WEIGHT:
        return (gemm_operands){"grad_weight",
                               {"grad_output.columnwise", "input.columnwise"},
                               {&r->grad_output.columnwise, &r->input.columnwise}};
    case GEMM_OUTPUT:
    case GEMM_COUNT: break;
    }
    return (gemm_operands){
        "output", {"input.rowwise", "weight.rowwise"}, {&r->input.rowwise, &r->weight.rowwise}};
}

bool recipe_gemm_is_fp8(const recipe *r, recipe_gemm which) {
    if (which != GEMM_COUNT) return cast_spec_is_fp8(recipe_operands(r, which).use[0]);
    return recipe_gemm_is_fp8(r, GEMM_OUTPUT) || recipe_gemm_is_fp8(r, GEMM_GRAD_INPUT) ||
           recipe_gemm_is_fp8(r, GEMM_GRAD_WEIGHT);
}

/* ---- checks ---- */

static bool in_list(unsigned value, unsigned last) {
    return value <= last;
}

/* Returns the name of the first member of s that has no valid enum value; NULL if all are valid. */
static const char *use_unknown_field(const cast_spec *s) {
    if (!in_list(s->grain, GRANULARITY_COUNT - 1)) return "grain";
    if (!in_list(s->scale.rule, SCALE_RULES - 1)) return "scale.rule";
    if (!in_list(s->mode, CAST_OVERFLOW)) return "mode";
    if (!in_list(s->rounding, ROUND_STOCHASTIC)) return "rounding";
    if (!in_list(s->policy, AMAX_DELAYED)) return "policy";
    if (!in_list(s->algorithm, AMAX_MOST_RECENT)) return "algorithm";
    return NULL;
}

static ott_status check_cast_spec(const char *tensor, const char *use, const cast_spec *s,
                                  ott_dtype activation) {
    if (!cast_spec_is_fp8(s)) {
        if (s->format == activation) return OTT_OK;
        return status_fail(OTT_ERR_CONFIG,
                           "%s.%s.format is %s: must be e4m3, e5m2 or the recipe's activation format %s",
                           tensor, use, dtype_name(s->format), dtype_name(activation));
    }
    const char *field = use_unknown_field(s);
    if (field != NULL)
        return status_fail(OTT_ERR_CONFIG, "%s.%s.%s has an unknown value", tensor, use, field);
    ott_dtype given = scale_rule_format(s->scale.rule), stored = granularity_scale_format(s->grain);
    if (given != stored)
        return status_fail(OTT_ERR_CONFIG, "%s.%s.scale.rule gives %s scales, but grain %s has %s scales",
                           tensor, use, dtype_name(given), granularity_name(s->grain), dtype_name(stored));
    if (s->policy != AMAX_DELAYED) return OTT_OK;
    if (s->grain != GRANULARITY_TENSOR)
        return status_fail(OTT_ERR_CONFIG, "%s.%s.grain: delayed scaling requires one scale for the tensor",
                           tensor, use);
    if (s->history < 1 || s->history > RECIPE_LONGEST_HISTORY)
        return status_fail(OTT_ERR_CONFIG, "%s.%s.history is %d: delayed scaling needs 1 to %d", tensor, use,
                           s->history, RECIPE_LONGEST_HISTORY);
    return OTT_OK;
}

/* Delayed scaling requires equal uses: a tensor has one amax history, which gives one scale. */
static ott_status check_one_history(const char *tensor, const quant_spec *q) {
    bool delayed = q->rowwise.policy == AMAX_DELAYED || q->columnwise.policy == AMAX_DELAYED;
    if (!delayed || cast_spec_equal(&q->rowwise, &q->columnwise)) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "%s.rowwise and %s.columnwise differ: delayed scaling keeps one scale for both uses of a tensor",
        tensor, tensor);
}

static ott_status check_tensor_spec(const char *tensor, const quant_spec *q, ott_dtype activation) {
    TRY(check_cast_spec(tensor, "rowwise", &q->rowwise, activation));
    TRY(check_cast_spec(tensor, "columnwise", &q->columnwise, activation));
    bool both = cast_spec_is_fp8(&q->rowwise) && cast_spec_is_fp8(&q->columnwise);
    if (both) TRY(check_one_history(tensor, q));
    if (both && q->rowwise.format != q->columnwise.format)
        return status_fail(OTT_ERR_CONFIG,
                           "%s.columnwise.format is %s but %s.rowwise.format is %s: a tensor is cast to one "
                           "format in both its GEMMs",
                           tensor, dtype_name(q->columnwise.format), tensor, dtype_name(q->rowwise.format));
    return OTT_OK;
}

/* Block scales multiply partial sums over K, so both operands must have the same blocks along K. */
static ott_status check_contraction_blocks(const gemm_operands *o) {
    granularity a = o->use[0]->grain, b = o->use[1]->grain;
    if (a == GRANULARITY_128X128 && b == GRANULARITY_128X128)
        return status_fail(OTT_ERR_CONFIG, "%s and %s (%s GEMM): only one may have grain 128x128", o->name[0],
                           o->name[1], o->gemm);
    if (granularity_block(a).k != granularity_block(b).k)
        return status_fail(OTT_ERR_CONFIG,
                           "%s and %s (%s GEMM): both grains must split K into the same blocks", o->name[0],
                           o->name[1], o->gemm);
    return OTT_OK;
}

static ott_status check_gemm(const recipe *r, recipe_gemm which) {
    gemm_operands o = recipe_operands(r, which);
    bool a = cast_spec_is_fp8(o.use[0]), b = cast_spec_is_fp8(o.use[1]);
    if (a != b)
        return status_fail(OTT_ERR_CONFIG, "%s is %s but %s is %s: the %s GEMM needs both in FP8 or neither",
                           o.name[0], dtype_name(o.use[0]->format), o.name[1], dtype_name(o.use[1]->format),
                           o.gemm);
    if (o.use[0]->format == OTT_E5M2 && o.use[1]->format == OTT_E5M2)
        return status_fail(OTT_ERR_CONFIG, "%s and %s are both e5m2: the %s GEMM needs at least one e4m3",
                           o.name[0], o.name[1], o.gemm);
    if (a) TRY(check_contraction_blocks(&o));
    const gemm_spec *g = &r->gemm[which];
    if (!in_list(g->accumulate, ACCUMULATE_MODES - 1))
        return status_fail(OTT_ERR_CONFIG, "gemm[%s].accumulate has an unknown value", o.gemm);
    if (!in_list(g->order, SCALE_A_THEN_B))
        return status_fail(OTT_ERR_CONFIG, "gemm[%s].order has an unknown value", o.gemm);
    bool any = g->accumulate == ACCUMULATE_FP32, pairs = g->accumulate == ACCUMULATE_TILE32;
    if (!a && !any && !(pairs && r->activation == OTT_BF16))
        return status_fail(OTT_ERR_CONFIG, "gemm[%s].accumulate: \"%s\" is for FP8%s operands only", o.gemm,
                           recipe_accumulate_name(g->accumulate), pairs ? " and bf16" : "");
    return OTT_OK;
}

static ott_status check_row(const recipe *r) {
    if (!dtype_is_high_precision(r->activation))
        return status_fail(OTT_ERR_CONFIG, "activation is %s: must be fp32, bf16 or fp16",
                           dtype_name(r->activation));
    TRY(check_tensor_spec("input", &r->input, r->activation));
    TRY(check_tensor_spec("weight", &r->weight, r->activation));
    TRY(check_tensor_spec("grad_output", &r->grad_output, r->activation));
    for (int g = 0; g < GEMM_COUNT; g++) TRY(check_gemm(r, (recipe_gemm)g));
    return OTT_OK;
}

ott_status recipe_check(const recipe *r) {
    if (r->name == NULL || r->display == NULL || r->source == NULL)
        return status_fail(OTT_ERR_CONFIG, "recipe without name, display or source");
    return status_context(check_row(r), "recipe %s", r->name);
}

static quant_spec in_activation(quant_spec q, ott_dtype activation) {
    if (!cast_spec_is_fp8(&q.rowwise)) q.rowwise.format = activation;
    if (!cast_spec_is_fp8(&q.columnwise)) q.columnwise.format = activation;
    return q;
}

void recipe_compile(const recipe *r, ott_dtype activation, linear_spec *out) {
    *out = (linear_spec){
        .input = quant_spec_from(in_activation(r->input, activation), activation),
        /* weights are cast from the fp32 master */
        .weight = quant_spec_from(in_activation(r->weight, activation), OTT_F32),
        .grad_output = quant_spec_from(in_activation(r->grad_output, activation), activation),
        .activation = activation,
        .fp8 = recipe_gemm_is_fp8(r, GEMM_COUNT),
    };
    memcpy(out->gemm, r->gemm, sizeof out->gemm);
}

bool recipe_spec_equal(const linear_spec *a, const linear_spec *b) {
    for (int g = 0; g < GEMM_COUNT; g++)
        if (a->gemm[g].accumulate != b->gemm[g].accumulate || a->gemm[g].order != b->gemm[g].order ||
            a->gemm[g].fast_accumulate != b->gemm[g].fast_accumulate)
            return false;
    return a->activation == b->activation && quant_spec_equal(&a->input, &b->input) &&
           quant_spec_equal(&a->weight, &b->weight) && quant_spec_equal(&a->grad_output, &b->grad_output);
}
