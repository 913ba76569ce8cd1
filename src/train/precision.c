/* train/precision: reads the keys of [float8] into recipes, phases and rules. */
#include "train/precision.h"
#include "base/text/str.h"
#include "config/parse/number.h"
#include "fp8/recipe_names.h"
#include "fp8/recipe_text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FAIL(...) return status_fail(OTT_ERR_CONFIG, __VA_ARGS__)

/* ---- recipe options ---- */

static bool is_block(granularity g) {
    return g == GRANULARITY_1X128 || g == GRANULARITY_128X128;
}

static void apply_delayed(const config *cfg, cast_spec *s) {
    s->scale.margin = (int)cfg->float8.margin;
    s->history = (int)cfg->float8.amax_history_len;
    s->algorithm = cfg->float8.amax_compute_algo == ALGO_MAX ? AMAX_MAX : AMAX_MOST_RECENT;
    s->reduce = cfg->float8.reduce_amax;
}

static void apply_scale(const config *cfg, cast_spec *s) {
    switch (s->scale.rule) {
    case SCALE_TE:
        s->scale.epsilon = (float)cfg->float8.amax_epsilon;
        if (is_block(s->grain)) s->scale.power_of_two = !cfg->float8.use_f32_scales;
        break;
    case SCALE_E8M0:
    case SCALE_E8M0_FLOOR:
        s->scale.rule = cfg->float8.mx_scale == MX_SCALE_FLOOR ? SCALE_E8M0_FLOOR : SCALE_E8M0;
        break;
    default: break;
    }
}

/* True if float8.round_scales_to_power_of_2 has an effect on the scales of this cast. */
static bool can_round(const config *cfg, const cast_spec *s) {
    bool rounds = s->scale.rule == SCALE_TORCHAO || s->scale.rule == SCALE_TE;
    return rounds && !(s->policy == AMAX_DELAYED || (cfg->float8.use_f32_scales && is_block(s->grain)));
}

/* round_scales_to_power_of_2 = true changes every cast that can_round allows, even one of an operand key. */
static void apply_pow2(const config *cfg, cast_spec *s) {
    bool on = cfg->float8.round_scales_to_power_of_2 == SCALE_ROUNDING_TRUE;
    if (on && can_round(cfg, s)) s->scale.power_of_two = true;
}

/* round_scales_to_power_of_2 = false changes casts of recipes, but no cast of an operand key with "pow2". */
static void clear_pow2(const config *cfg, cast_spec *s) {
    bool off = cfg->float8.round_scales_to_power_of_2 == SCALE_ROUNDING_FALSE;
    if (off && can_round(cfg, s)) s->scale.power_of_two = false;
}

static void apply_options_to(const config *cfg, cast_spec *s) {
    if (s->policy == AMAX_DELAYED)
        apply_delayed(cfg, s);
    else
        apply_scale(cfg, s);
    clear_pow2(cfg, s);
    apply_pow2(cfg, s);
}

/* As in TransformerEngine, fp8_format sets the format of gradients. torchao's recipes ignore it. */
static void apply_format(const config *cfg, cast_spec *s) {
    if (cfg->float8.fp8_format == FP8_FORMAT_RECIPE || s->scale.rule == SCALE_TORCHAO) return;
    s->format = cfg->float8.fp8_format == FP8_FORMAT_HYBRID ? OTT_E5M2 : OTT_E4M3;
}

typedef void (*use_change)(const config *cfg, cast_spec *s);

static void change_tensor(const config *cfg, quant_spec *q, use_change change) {
    if (cast_spec_is_fp8(&q->rowwise)) change(cfg, &q->rowwise);
    if (cast_spec_is_fp8(&q->columnwise)) change(cfg, &q->columnwise);
}

static void change_uses(const config *cfg, recipe *r, use_change change) {
    change_tensor(cfg, &r->input, change);
    change_tensor(cfg, &r->weight, change);
    change_tensor(cfg, &r->grad_output, change);
}

/* Returns the order in which a GEMM without FP8 operands adds its products. */
static accumulate_mode high_precision_mode(const config *cfg, const recipe *r) {
    bool tiles = cfg->train.bf16_accumulate == BF16_SUM_TILE32 && r->activation == OTT_BF16;
    return tiles ? ACCUMULATE_TILE32 : ACCUMULATE_FP32;
}

static ott_status read_rows(const config *cfg, precision_plan *p) {
    const recipe *table = recipe_table(&p->row_count);
    STATUS_REQUIRE(p->row_count <= PRECISION_ROWS);
    for (int i = 0; i < p->row_count; i++) {
        p->rows[i] = table[i];
        change_uses(cfg, &p->rows[i], apply_options_to);
        change_tensor(cfg, &p->rows[i].grad_output, apply_format);
        for (int g = 0; g < GEMM_COUNT; g++)
            if (!recipe_gemm_is_fp8(&p->rows[i], (recipe_gemm)g))
                p->rows[i].gemm[g].accumulate = high_precision_mode(cfg, &p->rows[i]);
    }
    return OTT_OK;
}

static const recipe *find_recipe_row(const precision_plan *p, const char *name) {
    for (int i = 0; i < p->row_count; i++)
        if (strcmp(p->rows[i].name, name) == 0) return &p->rows[i];
    return NULL;
}

/* ---- operand keys ---- */

static ott_status read_use(const char *key, const char *text, cast_spec *out) {
    return status_context(recipe_cast_parse(text, OTT_BF16, out), "%s = \"%s\"", key, str_show(text).text);
}

/* A tensor's columnwise cast is the same as its rowwise cast, as in torchao, unless `column` is given. */
static ott_status read_tensor(const char *row_key, const char *row, const char *column_key,
                              const char *column, quant_spec *q) {
    if (*row) {
        TRY(read_use(row_key, row, &q->rowwise));
        q->columnwise = q->rowwise;
    }
    return *column ? read_use(column_key, column, &q->columnwise) : OTT_OK;
}

static ott_status read_operands(const config *cfg, recipe *r) {
    TRY(read_tensor("float8.input", cfg->float8.input, "float8.input_for_grad_weight",
                    cfg->float8.input_for_grad_weight, &r->input));
    TRY(read_tensor("float8.weight", cfg->float8.weight, "float8.weight_for_grad_input",
                    cfg->float8.weight_for_grad_input, &r->weight));
    TRY(read_tensor("float8.grad_output", cfg->float8.grad_output, "float8.grad_output_for_grad_weight",
                    cfg->float8.grad_output_for_grad_weight, &r->grad_output));
    change_uses(cfg, r, apply_pow2);
    return OTT_OK;
}

/* ---- products ---- */

typedef struct product_keys {
    const char *name;
    config_fast_accum fast;
    config_gemm_sum sum;
} product_keys;

static product_keys keys_of(const config *cfg, recipe_gemm which) {
    switch (which) {
    case GEMM_GRAD_INPUT:
        return (product_keys){"grad_input", cfg->float8.fast_accum_grad_input,
                              cfg->float8.accumulate_grad_input};
    case GEMM_GRAD_WEIGHT:
        return (product_keys){"grad_weight", cfg->float8.fast_accum_grad_weight,
                              cfg->float8.accumulate_grad_weight};
    case GEMM_OUTPUT:
    case GEMM_COUNT: break;
    }
    return (product_keys){"output", cfg->float8.fast_accum_output, cfg->float8.accumulate_output};
}

/* Partial sums of block-scaled operands are multiplied by A's scale, then B's, as in TransformerEngine. */
static scale_order order_of(const recipe *r, recipe_gemm which) {
    const cast_spec *a = which == GEMM_OUTPUT       ? &r->input.rowwise
                         : which == GEMM_GRAD_INPUT ? &r->grad_output.rowwise
                                                    : &r->grad_output.columnwise;
    return is_block(a->grain) ? SCALE_A_THEN_B : SCALE_PRODUCT;
}

static accumulate_mode mode_of(config_sum sum, bool fast) {
    switch (sum) {
    case SUM_HOPPER: return fast ? ACCUMULATE_HOPPER_FAST : ACCUMULATE_HOPPER_SPLIT;
    case SUM_HOPPER_FAST: return ACCUMULATE_HOPPER_FAST;
    case SUM_HOPPER_SPLIT: return ACCUMULATE_HOPPER_SPLIT;
    case SUM_TILE32: return ACCUMULATE_TILE32;
    case SUM_AUTO: /* run/auto_keys has not chosen yet */
    case SUM_FP32: break;
    }
    return ACCUMULATE_FP32;
}

/* Gives a GEMM without FP8 operands its defaults. Fails if its keys fast_accum_* or accumulate_* are set. */
static ott_status clear_product(const config *cfg, const product_keys *k, recipe *r, gemm_spec *g) {
    if (k->fast == FAST_ACCUM_TRUE)
        FAIL("float8.fast_accum_%s = true: the %s GEMM of recipe %s has no FP8 operands", k->name, k->name,
             r->name);
    if (k->sum > GEMM_SUM_FP32)
        FAIL("float8.accumulate_%s: the %s GEMM of recipe %s has no FP8 operands; "
             "train.bf16_accumulate applies to it",
             k->name, k->name, r->name);
    *g = (gemm_spec){.accumulate = high_precision_mode(cfg, r), .order = SCALE_PRODUCT};
    return OTT_OK;
}

static ott_status read_product(const config *cfg, recipe *r, recipe_gemm which) {
    product_keys k = keys_of(cfg, which);
    gemm_spec *g = &r->gemm[which];
    if (!recipe_gemm_is_fp8(r, which)) return clear_product(cfg, &k, r, g);
    config_sum sum = k.sum == GEMM_SUM_DEFAULT ? cfg->float8.accumulate : (config_sum)(k.sum - 1);
    if (k.fast != FAST_ACCUM_RECIPE) g->fast_accumulate = k.fast == FAST_ACCUM_TRUE;
    g->accumulate = mode_of(sum, g->fast_accumulate);
    g->order = order_of(r, which);
    return OTT_OK;
}

/* ---- the recipe of [float8] ---- */

static void name_custom(recipe *r) {
    r->name = "custom";
    r->display = "CUSTOM";
    r->source = "[float8] of the configuration";
}

static bool recipe_differs(const recipe *a, const recipe *b) {
    linear_spec x, y;
    recipe_compile(a, a->activation, &x);
    recipe_compile(b, b->activation, &y);
    return !recipe_spec_equal(&x, &y);
}

static ott_status check_recipe(const recipe *r) {
    return status_context(recipe_check(r), "float8");
}

static ott_status read_fp8(const config *cfg, precision_plan *p) {
    bool custom = cfg->float8.recipe_name == RECIPE_CUSTOM;
    const recipe *base = find_recipe_row(p, custom ? "bf16" : config_word(cfg, "float8.recipe_name"));
    STATUS_REQUIRE(base != NULL);
    p->fp8 = *base;
    TRY(read_operands(cfg, &p->fp8));
    if (custom || recipe_differs(&p->fp8, base)) name_custom(&p->fp8);
    TRY(check_recipe(&p->fp8)); /* read_product needs both operands in FP8 or none */
    if (!recipe_gemm_is_fp8(&p->fp8, GEMM_COUNT))
        FAIL("float8.recipe_name = \"%s\": no operand is in FP8; give float8.input, float8.weight and "
             "float8.grad_output",
             config_word(cfg, "float8.recipe_name"));
    for (int g = 0; g < GEMM_COUNT; g++) TRY(read_product(cfg, &p->fp8, (recipe_gemm)g));
    if (recipe_differs(&p->fp8, base)) name_custom(&p->fp8);
    return check_recipe(&p->fp8);
}

/* ---- names of recipes ---- */

/* True if an entry of the schedule, or a rule for a module, may name this recipe. fp16 is not allowed, as it
   needs loss scaling in the full run. Nor is fp32 for a module, as all layers share one activation format. */
static bool may_name(bool for_module, const char *name) {
    return strcmp(name, "fp16") != 0 && !(for_module && strcmp(name, "fp32") == 0);
}

static ott_status fail_name(const precision_plan *p, bool for_module, const char *name) {
    const char *advice = recipe_word_advice(name);
    if (advice) FAIL("recipe \"%s\": %s", str_show(name).text, advice);
    const char *names[PRECISION_ROWS + 1] = {"fp8"};
    char list[512] = "\"fp8\"";
    int count = 1;
    for (int i = 0; i < p->row_count; i++) {
        if (!may_name(for_module, p->rows[i].name)) continue;
        names[count++] = p->rows[i].name;
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, ", \"%s\"", p->rows[i].name);
    }
    const char *near = str_nearest(name, names, count);
    FAIL("recipe \"%s\" is not one of %s%s%s%s", str_show(name).text, list, near ? "; did you mean \"" : "",
         near ? near : "", near ? "\"?" : "");
}

static ott_status find_recipe(const precision_plan *p, bool for_module, const char *name,
                              const recipe **out) {
    const char *own = recipe_canonical_name(name);
    if (own) name = own;
    *out = strcmp(name, "fp8") == 0 || strcmp(name, p->fp8.name) == 0 ? &p->fp8 : find_recipe_row(p, name);
    if (!*out) return fail_name(p, for_module, name);
    if (may_name(for_module, name)) return OTT_OK;
    if (for_module)
        FAIL("%s: a layer in high precision has the activation format of the run: write bf16", name);
    FAIL("fp16: loss scaling applies to a full run; use bf16, or train.mixed_precision = \"fp16\"");
}

/* Copies `length` characters without spaces at the ends; false if they do not fit. */
static bool copy_trimmed(const char *text, size_t length, char *out, size_t size) {
    while (length > 0 && *text == ' ') text++, length--;
    while (length > 0 && text[length - 1] == ' ') length--;
    if (length >= size) return false;
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

/* ---- the schedule ---- */

#define ENTRY_LIMIT 64

typedef struct schedule_reader {
    precision_plan *plan;
    int64_t max_steps;
    int64_t lengths[PRECISION_PHASES_MAX];
    int rest; /* index of the entry without a length, which gets the remaining steps; -1: none yet */
    char rest_text[sizeof(str_shown)];
} schedule_reader;

/* Reads "10%" or "0.1" as a share of max_steps. */
static ott_status read_share(const schedule_reader *r, const char *entry, const char *text, int64_t *out) {
    char number[ENTRY_LIMIT];
    double share;
    size_t length = strlen(text);
    bool percent = length > 0 && text[length - 1] == '%';
    memcpy(number, text, length + 1);
    if (percent) number[length - 1] = '\0';
    if (!number_parse_real(number, &share))
        FAIL("\"%s\": a length is a number of steps, or a share of train.max_steps such as 10%% or 0.1",
             entry);
    if (percent) share /= 100.0;
    if (!(share > 0.0 && share < 1.0))
        FAIL("\"%s\": a share must be between 0 and 1, or 0%% and 100%%", entry);
    *out = llround(share * (double)r->max_steps);
    if (*out < 1)
        FAIL("\"%s\" of train.max_steps = %lld is less than one step", entry, (long long)r->max_steps);
    return OTT_OK;
}

static ott_status read_length(const schedule_reader *r, const char *entry, const char *text, int64_t *out) {
    if (!number_parse_integer(text, out)) return read_share(r, entry, text, out);
    if (*out < 1) FAIL("\"%s\": a length is at least 1 step", entry);
    return OTT_OK;
}

/* Reads one entry of float8.schedule: "NAME" or "NAME:LENGTH", without spaces at the ends. */
static ott_status read_entry(schedule_reader *r, const char *entry) {
    char name[ENTRY_LIMIT], length[ENTRY_LIMIT];
    int at = r->plan->phase_count;
    const char *colon = strchr(entry, ':'), *end = colon ? colon : entry + strlen(entry);
    if (at == PRECISION_PHASES_MAX) FAIL("more than %d entries", PRECISION_PHASES_MAX);
    copy_trimmed(entry, (size_t)(end - entry), name, sizeof name);
    TRY(find_recipe(r->plan, false, name, &r->plan->phases[at].recipe));
    r->plan->phase_count++;
    if (colon) {
        copy_trimmed(colon + 1, strlen(colon + 1), length, sizeof length);
        return read_length(r, entry, length, &r->lengths[at]);
    }
    if (r->rest >= 0)
        FAIL("\"%s\" and \"%s\" both have no length; only one entry may take the rest", r->rest_text, entry);
    r->rest = at;
    snprintf(r->rest_text, sizeof r->rest_text, "%s", entry);
    return OTT_OK;
}

static ott_status read_entries(schedule_reader *r, const char *text) {
    for (const char *at = text;; at++) {
        char entry[ENTRY_LIMIT];
        size_t span = strcspn(at, ",");
        if (!copy_trimmed(at, span, entry, sizeof entry))
            FAIL("an entry has %zu characters; at most %d are allowed", span, ENTRY_LIMIT - 1);
        if (!*entry) FAIL("an entry is empty");
        TRY(read_entry(r, str_show(entry).text));
        at += span;
        if (!*at) return OTT_OK;
    }
}

/* Gives the remaining steps to the entry that has no length, and sets the first step of each phase. */
static ott_status place_entries(schedule_reader *r) {
    int64_t left = r->max_steps, first = 0;
    if (r->rest < 0)
        FAIL("every entry has a length; leave out one length, for the entry that takes the rest");
    for (int i = 0; i < r->plan->phase_count; i++) {
        if (i == r->rest) continue;
        if (r->lengths[i] >= left)
            FAIL("entry %d needs %lld steps, but %lld of train.max_steps = %lld are left and \"%s\" needs "
                 "at least 1",
                 i + 1, (long long)r->lengths[i], (long long)left, (long long)r->max_steps, r->rest_text);
        left -= r->lengths[i];
    }
    r->lengths[r->rest] = left;
    for (int i = 0; i < r->plan->phase_count; i++) {
        r->plan->phases[i].first = first;
        first += r->lengths[i];
    }
    return OTT_OK;
}

static ott_status check_phases(const precision_plan *p) {
    bool fp8 = false;
    for (int i = 0; i < p->phase_count; i++) {
        TRY(check_recipe(p->phases[i].recipe));
        fp8 = fp8 || recipe_gemm_is_fp8(p->phases[i].recipe, GEMM_COUNT);
    }
    return fp8 ? OTT_OK
               : status_fail(OTT_ERR_CONFIG, "no entry is in FP8; set train.mixed_precision instead");
}

static ott_status read_schedule(const config *cfg, precision_plan *p) {
    const char *text = cfg->float8.schedule;
    schedule_reader r = {.plan = p, .max_steps = cfg->train.max_steps, .rest = -1};
    ott_status status = read_entries(&r, *text ? text : "fp8");
    if (status == OTT_OK) status = place_entries(&r);
    if (status == OTT_OK) status = check_phases(p);
    return status_context(status, "float8.schedule = \"%s\"", str_show(text).text);
}

/* ---- rules for single modules ---- */

static ott_status read_rule(precision_plan *p, const char *text) {
    char name[ENTRY_LIMIT], *pattern = p->text + p->text_length;
    const char *equals = strrchr(text, '=');
    if (p->rule_count == PRECISION_RULES_MAX) FAIL("more than %d rules", PRECISION_RULES_MAX);
    if (!equals) FAIL("a rule is written pattern=recipe, such as \"model.layers.0.*=bf16\"");
    if (!copy_trimmed(text, (size_t)(equals - text), pattern, (size_t)(PRECISION_TEXT - p->text_length)))
        FAIL("all patterns together have more than %d characters", PRECISION_TEXT - 1);
    if (!*pattern) FAIL("the pattern is empty; \"*\" matches every layer");
    if (!copy_trimmed(equals + 1, strlen(equals + 1), name, sizeof name))
        return fail_name(p, true, equals + 1);
    module_rule *rule = &p->rules[p->rule_count++];
    rule->match = pattern;
    p->text_length += (int)strlen(pattern) + 1;
    TRY(find_recipe(p, true, name, &rule->recipe));
    return check_recipe(rule->recipe);
}

static ott_status read_rules(const config *cfg, precision_plan *p) {
    for (int64_t i = 0; i < cfg->float8.module.count; i++) {
        const char *text = cfg->float8.module.items[i];
        TRY(status_context(read_rule(p, text), "float8.module \"%s\"", str_show(text).text));
    }
    return OTT_OK;
}

/* ---- the plan ---- */

static ott_status read_one_precision(const config *cfg, precision_plan *p) {
    const char *name = config_word(cfg, "train.mixed_precision");
    const recipe *row = find_recipe_row(p, name);
    STATUS_REQUIRE(row != NULL);
    if (*cfg->float8.schedule)
        FAIL("float8.schedule = \"%s\" needs train.mixed_precision = \"fp8\"; it is \"%s\"",
             str_show(cfg->float8.schedule).text, name);
    if (cfg->train.bf16_accumulate == BF16_SUM_TILE32 && row->activation != OTT_BF16)
        FAIL("train.bf16_accumulate = \"tile32\": with train.mixed_precision = \"%s\" no product has bf16 "
             "operands; leave it out",
             name);
    p->fp8 = *row;
    p->phases[p->phase_count++] = (precision_phase){.recipe = row};
    return OTT_OK;
}

ott_status precision_read_recipe(const config *cfg, precision_plan *out) {
    memset(out, 0, sizeof *out);
    TRY(read_rows(cfg, out));
    out->bf16 = find_recipe_row(out, "bf16");
    return cfg->train.mixed_precision == PRECISION_FP8 ? read_fp8(cfg, out) : read_one_precision(cfg, out);
}

ott_status precision_plan_read(const config *cfg, precision_plan *out) {
    TRY(precision_read_recipe(cfg, out));
    if (cfg->train.mixed_precision != PRECISION_FP8) return OTT_OK;
    TRY(read_schedule(cfg, out));
    return read_rules(cfg, out);
}

const recipe *precision_at(const precision_plan *p, int64_t step) {
    int at = p->phase_count - 1;
    while (at > 0 && p->phases[at].first > step) at--;
    return p->phases[at].recipe;
}
