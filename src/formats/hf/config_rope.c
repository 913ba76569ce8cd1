/* formats/hf/config_rope: reads, compares and writes rotary embedding: rope_theta, partial_rotary_factor and
   rope_scaling (rope_parameters since transformers 5). */
#include "base/text/number.h"
#include "formats/hf/config_keys.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define DEFAULT_THETA 10000.0 /* rope_theta of families without their own default */

/* ---- scaling rules ---- */

static const char *const rule_words[HF_ROPE_COUNT] = {
    [HF_ROPE_PLAIN] = "default", [HF_ROPE_LLAMA3] = "llama3",     [HF_ROPE_LINEAR] = "linear",
    [HF_ROPE_YARN] = "yarn",     [HF_ROPE_LONGROPE] = "longrope", [HF_ROPE_DYNAMIC] = "dynamic"};

/* A parameter of a rope scaling rule, and the member of hf_config that holds the parameter. */
typedef struct rule_member {
    hf_rope rope;
    const char *name;
    size_t offset;
    double least, default_value; /* default_value NAN: required */
} rule_member;

/* Sorted by name. */
static const rule_member rule_members[] = {
    {HF_ROPE_YARN, "attention_factor", offsetof(hf_config, rope_attention_factor), 1e-6, 0},
    {HF_ROPE_LONGROPE, "attention_factor", offsetof(hf_config, rope_attention_factor), 1e-6, 0},
    {HF_ROPE_YARN, "beta_fast", offsetof(hf_config, rope_beta_fast), 1e-6, 32},
    {HF_ROPE_YARN, "beta_slow", offsetof(hf_config, rope_beta_slow), 1e-6, 1},
    {HF_ROPE_LLAMA3, "factor", offsetof(hf_config, rope_factor), 1, NAN},
    {HF_ROPE_LINEAR, "factor", offsetof(hf_config, rope_factor), 1, NAN},
    {HF_ROPE_DYNAMIC, "factor", offsetof(hf_config, rope_factor), 1, NAN},
    {HF_ROPE_YARN, "factor", offsetof(hf_config, rope_factor), 1, NAN},
    {HF_ROPE_LONGROPE, "factor", offsetof(hf_config, rope_factor), 1, 0},
    {HF_ROPE_LLAMA3, "high_freq_factor", offsetof(hf_config, rope_high_freq_factor), 1e-6, NAN},
    {HF_ROPE_LLAMA3, "low_freq_factor", offsetof(hf_config, rope_low_freq_factor), 1e-6, NAN},
    {HF_ROPE_YARN, "mscale", offsetof(hf_config, rope_mscale), 0, 0},
    {HF_ROPE_YARN, "mscale_all_dim", offsetof(hf_config, rope_mscale_all_dim), 0, 0},
};
enum { RULE_MEMBERS = sizeof rule_members / sizeof *rule_members };

static double *member_of(hf_config *c, const rule_member *m) {
    return (double *)(void *)((char *)c + m->offset);
}

static double value_of(const hf_config *c, const rule_member *m) {
    return *(const double *)(const void *)((const char *)c + m->offset);
}

/* Returns max_position_embeddings divided by the original length, at least 1. */
static double longrope_factor(const hf_config *c) {
    double factor = (double)c->max_position_embeddings / (double)c->rope_original_max_position;
    return factor > 1 ? factor : 1;
}

/* Number of columns of a head that rotary embedding may rotate. */
static int64_t rope_width(const hf_config *c) {
    return c->family->latent ? c->qk_rope_head_dim : c->head_dim;
}

/* True if the rule needs the context length of the original training. */
static bool has_original(hf_rope rope) {
    return rope == HF_ROPE_LLAMA3 || rope == HF_ROPE_YARN || rope == HF_ROPE_LONGROPE;
}

/* ---- reading ---- */

/* Reads rope_theta, from the top level or from rope_parameters. If both have it, they must agree. */
static ott_status read_theta(const char *name, json_t *root, json_t *parameters, hf_config *c) {
    json_t *outer = hf_get(root, "rope_theta"), *inner = hf_get(parameters, "rope_theta");
    json_t *theta = inner ? inner : outer;
    double default_value = c->family->theta > 0 ? c->family->theta : DEFAULT_THETA;
    c->rope_theta = theta ? json_number_value(theta) : default_value;
    if (theta && !(json_is_number(theta) && c->rope_theta >= 1 && c->rope_theta <= 1e15))
        return hf_fail(OTT_ERR_FORMAT, name, "rope_theta", theta, "must be a number from 1 to 1e15");
    if (inner && outer && json_number_value(inner) != json_number_value(outer))
        return hf_fail(OTT_ERR_FORMAT, name, "rope_theta", outer, "rope_parameters has another rope_theta");
    return OTT_OK;
}

static ott_status read_rotary_fraction(const char *name, json_t *root, json_t *parameters, hf_config *c) {
    static const char key[] = "partial_rotary_factor";
    json_t *outer = hf_get(root, key), *inner = hf_get(parameters, key), *fraction = inner ? inner : outer;
    double default_value = c->family->partial_rotary_factor;
    c->partial_rotary_factor = fraction ? json_number_value(fraction) : default_value > 0 ? default_value : 1;
    if (default_value == 0 && c->partial_rotary_factor != 1)
        return hf_fail(OTT_ERR_UNSUPPORTED, name, key, fraction,
                       "only 1 (rotation of the full head) is supported for %s", c->family->name);
    double columns = floor((double)rope_width(c) * c->partial_rotary_factor);
    if (!(c->partial_rotary_factor > 0 && c->partial_rotary_factor <= 1) || columns < 2 ||
        fmod(columns, 2) != 0)
        return hf_fail(OTT_ERR_FORMAT, name, key, fraction,
                       "must be above 0 and at most 1, and select an even number of head_dim = %" PRId64
                       " columns",
                       c->head_dim);
    return OTT_OK;
}

static ott_status read_member(const char *name, const char *key, json_t *parameters, const rule_member *m,
                              hf_config *c) {
    json_t *value = hf_get(parameters, m->name);
    double *out = member_of(c, m);
    *out = value ? json_number_value(value) : m->default_value;
    if (!value && !isnan(m->default_value)) return OTT_OK;
    if (json_is_number(value) && *out >= m->least && *out <= 1e9) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, parameters, "rope type %s needs '%s', a number of at least %g",
                   rule_words[c->rope], m->name, m->least);
}

/* Reads original_max_position_embeddings. For yarn and longrope it may be outside of the rope parameters, or
   missing: then it is max_position_embeddings. */
static ott_status read_original(const char *name, const char *key, json_t *root, json_t *parameters,
                                hf_config *c) {
    static const char member[] = "original_max_position_embeddings";
    json_t *value = hf_get(parameters, member);
    if (!value && c->rope != HF_ROPE_LLAMA3) {
        value = hf_get(root, member);
        c->rope_original_max_position = c->max_position_embeddings;
        if (!value) return OTT_OK;
    }
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 1 && number <= 1e9))
        return hf_fail(OTT_ERR_FORMAT, name, key, parameters,
                       "rope type %s needs '%s', a number of at least 1", rule_words[c->rope], member);
    c->rope_original_max_position = (int64_t)number;
    if (number != (double)c->rope_original_max_position)
        return hf_fail(OTT_ERR_FORMAT, name, key, parameters, "%s must be an integer", member);
    return OTT_OK;
}

static ott_status read_longrope_factors(const char *name, const char *key, json_t *parameters,
                                        const char *member, const hf_config *c,
                                        float out[HF_CONFIG_MOST_FACTORS]) {
    json_t *list = hf_get(parameters, member);
    int64_t pairs = (int64_t)((double)rope_width(c) * c->partial_rotary_factor) / 2;
    bool good = pairs <= HF_CONFIG_MOST_FACTORS && (int64_t)json_array_size(list) == pairs;
    for (int64_t i = 0; good && i < pairs; i++) {
        json_t *value = json_array_get(list, (size_t)i);
        out[i] = (float)json_number_value(value);
        good = json_is_number(value) && out[i] >= 1e-6f && out[i] <= 1e9f;
    }
    if (good) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, parameters,
                   "rope type longrope needs '%s', a list of %" PRId64 " numbers above 0, one per pair",
                   member, pairs);
}

static ott_status read_longrope(const char *name, const char *key, json_t *parameters, hf_config *c) {
    if (c->rope_factor == 0) c->rope_factor = longrope_factor(c);
    TRY(read_longrope_factors(name, key, parameters, "short_factor", c, c->rope_short_factor));
    TRY(read_longrope_factors(name, key, parameters, "long_factor", c, c->rope_long_factor));
    c->rope_factors = (int)((double)rope_width(c) * c->partial_rotary_factor) / 2;
    return OTT_OK;
}

static ott_status read_rope_rule(const char *name, const char *key, json_t *root, json_t *parameters,
                                 hf_config *c) {
    for (int i = 0; i < RULE_MEMBERS; i++)
        if (rule_members[i].rope == c->rope) TRY(read_member(name, key, parameters, &rule_members[i], c));
    if (c->rope == HF_ROPE_LLAMA3 && c->rope_high_freq_factor <= c->rope_low_freq_factor)
        return hf_fail(OTT_ERR_FORMAT, name, key, parameters,
                       "high_freq_factor must be above low_freq_factor");
    if (!has_original(c->rope)) return OTT_OK;
    TRY(read_original(name, key, root, parameters, c));
    /* only models of families that Ottava does not read have truncate = false */
    if (c->rope == HF_ROPE_YARN && json_is_false(hf_get(parameters, "truncate")))
        return hf_fail(OTT_ERR_UNSUPPORTED, name, key, parameters,
                       "yarn with truncate = false is not supported");
    return c->rope == HF_ROPE_LONGROPE ? read_longrope(name, key, parameters, c) : OTT_OK;
}

static ott_status read_kind(const char *name, const char *key, json_t *parameters, hf_config *c) {
    json_t *type = hf_get(parameters, "rope_type");
    if (!type) type = hf_get(parameters, "type"); /* older name of the key rope_type */
    const char *word = type ? json_string_value(type) : "default";
    if (word && strcmp(word, "su") == 0) word = "longrope"; /* "su" is the first name of longrope */
    for (int i = 0; word && i < HF_ROPE_COUNT; i++)
        if (strcmp(word, rule_words[i]) == 0) return c->rope = (hf_rope)i, OTT_OK;
    return hf_fail(
        OTT_ERR_UNSUPPORTED, name, key, parameters,
        "the rope types default, linear, dynamic, llama3, yarn and longrope are supported; %s is not",
        word ? str_show(word).text : "this");
}

/* Reads the theta of layers with a window: from rope_local_base_freq, or in a file of transformers 5 from
   rope_parameters["sliding_attention"]. If so, *parameters becomes rope_parameters["full_attention"]. */
static ott_status read_local(const char *name, json_t *root, json_t **parameters, hf_config *c) {
    json_t *local = hf_get(*parameters, "sliding_attention"), *theta = hf_get(root, "rope_local_base_freq");
    const char *kind = json_string_value(hf_get(local, "rope_type"));
    c->rope_local_theta = c->family->local_theta;
    if (c->family->local_theta == 0) return OTT_OK;
    if (local) {
        theta = hf_get(local, "rope_theta");
        *parameters = hf_get(*parameters, "full_attention");
        if (kind && strcmp(kind, "default") != 0)
            return hf_fail(OTT_ERR_UNSUPPORTED, name, "rope_parameters", local,
                           "in layers with a window only rope type default is supported");
    }
    if (!theta) return OTT_OK;
    c->rope_local_theta = json_number_value(theta);
    if (json_is_number(theta) && c->rope_local_theta >= 1 && c->rope_local_theta <= 1e15) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, "rope_local_base_freq", theta, "must be a number from 1 to 1e15");
}

ott_status hf_read_rope(const char *name, json_t *root, hf_config *c) {
    const char *key = hf_get(root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    json_t *parameters = hf_get(root, key), *member;
    const char *member_name;
    c->rope = HF_ROPE_PLAIN;
    c->rope_original_max_position = c->rope_factors = 0;
    for (int i = 0; i < RULE_MEMBERS; i++) *member_of(c, &rule_members[i]) = 0;
    if (parameters && !json_is_object(parameters))
        return hf_fail(OTT_ERR_FORMAT, name, key, parameters, "must be an object");
    TRY(read_local(name, root, &parameters, c));
    json_object_foreach(parameters, member_name, member) {
        if (json_is_object(member))
            return hf_fail(OTT_ERR_UNSUPPORTED, name, key, parameters,
                           "different rope types in one model are not supported");
    }
    TRY(read_theta(name, root, parameters, c));
    TRY(read_rotary_fraction(name, root, parameters, c));
    if (!parameters) return OTT_OK;
    TRY(read_kind(name, key, parameters, c));
    return read_rope_rule(name, key, root, parameters, c);
}

/* ---- comparing and writing ---- */

bool hf_rope_equal(const hf_config *a, const hf_config *b) {
    size_t bytes = (size_t)a->rope_factors * sizeof *a->rope_short_factor;
    bool equal = a->rope == b->rope && (float)a->rope_theta == (float)b->rope_theta &&
                 (float)a->partial_rotary_factor == (float)b->partial_rotary_factor &&
                 (float)a->rope_local_theta == (float)b->rope_local_theta &&
                 a->rope_original_max_position == b->rope_original_max_position &&
                 a->rope_factors == b->rope_factors &&
                 memcmp(a->rope_short_factor, b->rope_short_factor, bytes) == 0 &&
                 memcmp(a->rope_long_factor, b->rope_long_factor, bytes) == 0;
    for (int i = 0; i < RULE_MEMBERS; i++)
        equal = equal && (float)value_of(a, &rule_members[i]) == (float)value_of(b, &rule_members[i]);
    return equal;
}

void hf_append_real(str *out, double x) {
    char text[32];
    number_metric(x, text);
    str_printf(out, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

static void append_factors(str *out, const char *name, const hf_config *c, const float *factor) {
    str_printf(out, "\n    \"%s\": [", name);
    for (int i = 0; i < c->rope_factors; i++) {
        str_append(out, i ? ", " : "");
        hf_append_real(out, (double)factor[i]);
    }
    str_append(out, "],");
}

/* True if config.json need not have this value, a default. transformers 4 refuses unused longrope values. */
static bool is_implied(const hf_config *c, const rule_member *m) {
    double x = value_of(c, m);
    if (m->rope == HF_ROPE_LONGROPE && strcmp(m->name, "factor") == 0) return x == longrope_factor(c);
    return x == 0 && m->default_value == 0;
}

void hf_rope_append(const hf_config *c, str *out) {
    str_append(out, "{");
    for (int i = 0; i < RULE_MEMBERS; i++) {
        const rule_member *m = &rule_members[i];
        if (m->rope != c->rope || is_implied(c, m)) continue;
        str_printf(out, "\n    \"%s\": ", m->name);
        hf_append_real(out, value_of(c, m));
        str_append(out, ",");
    }
    if (c->rope == HF_ROPE_LONGROPE) {
        append_factors(out, "long_factor", c, c->rope_long_factor);
        append_factors(out, "short_factor", c, c->rope_short_factor);
        str_append(out, "\n    \"type\": \"longrope\"\n  }");
        return;
    }
    if (has_original(c->rope))
        str_printf(out, "\n    \"original_max_position_embeddings\": %" PRId64 ",",
                   c->rope_original_max_position);
    str_printf(out, "\n    \"rope_type\": \"%s\"\n  }", rule_words[c->rope]);
}
