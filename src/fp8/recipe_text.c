/* fp8/recipe_text: parses and writes the text of a cast_spec, with one table of words. */
#include "fp8/recipe_text.h"
#include "base/text/str.h"
#include "base/text/text.h"
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the words ---- */

/* The properties of a cast, in the order in which recipe_cast_write writes them. */
typedef enum field {
    FIELD_FORMAT,
    FIELD_GRAIN,
    FIELD_POLICY,
    FIELD_RULE,
    FIELD_POW2,
    FIELD_EPSILON,
    FIELD_MARGIN,
    FIELD_HISTORY,
    FIELD_ALGORITHM,
    FIELD_REDUCE,
    FIELD_MODE,
    FIELD_COUNT
} field;

typedef struct word {
    const char *text; /* a text that ends in "=" is followed by a number */
    field field;
    int value;     /* value of the field, unless the word has a number */
    int low, high; /* range of the number, if it is an integer */
} word;

#define HIGH_FORMAT    (-1) /* value of FIELD_FORMAT for the word "high", the activation format */
#define LARGEST_MARGIN 16

static const word words[] = {
/* A format is a word if its kind is FP8. */
#define WORD_FP8(constant, name) {name, FIELD_FORMAT, OTT_##constant, 0, 0},
#define WORD_HIGH(constant, name)
#define WORD_SCALE(constant, name)
#define WORD_INTEGER(constant, name)
#define X(constant, name, safetensors, bits, kind, largest) WORD_##kind(constant, name)
    OTT_DTYPE_MAP(X)
#undef X
        {"high", FIELD_FORMAT, HIGH_FORMAT, 0, 0},
#define X(constant, name, mn, depth, scale, levels) {name, FIELD_GRAIN, GRANULARITY_##constant, 0, 0},
    GRANULARITY_MAP(X)
#undef X
        {"delayed", FIELD_POLICY, AMAX_DELAYED, 0, 0},
#define X(constant, word, format, text) {word, FIELD_RULE, SCALE_##constant, 0, 0},
    SCALE_RULE_MAP(X)
#undef X
        {"pow2", FIELD_POW2, true, 0, 0},
    {"eps=", FIELD_EPSILON, 0, 0, 0},
    {"margin=", FIELD_MARGIN, 0, -LARGEST_MARGIN, LARGEST_MARGIN},
    {"history=", FIELD_HISTORY, 0, 1, RECIPE_LONGEST_HISTORY},
    {"algo=max", FIELD_ALGORITHM, AMAX_MAX, 0, 0},
    {"algo=most_recent", FIELD_ALGORITHM, AMAX_MOST_RECENT, 0, 0},
    {"no_reduce", FIELD_REDUCE, false, 0, 0},
    {"overflow", FIELD_MODE, CAST_OVERFLOW, 0, 0},
};
#define WORD_COUNT (int)(sizeof words / sizeof *words)

/* Returns the value of property f of a cast; 0 for epsilon, which is not an integer. */
static int field_get(const cast_spec *s, field f) {
    switch (f) {
    case FIELD_FORMAT: return cast_spec_is_fp8(s) ? (int)s->format : HIGH_FORMAT;
    case FIELD_GRAIN: return (int)s->grain;
    case FIELD_POLICY: return (int)s->policy;
    case FIELD_RULE: return (int)s->scale.rule;
    case FIELD_POW2: return s->scale.power_of_two;
    case FIELD_MARGIN: return s->scale.margin;
    case FIELD_HISTORY: return s->history;
    case FIELD_ALGORITHM: return (int)s->algorithm;
    case FIELD_REDUCE: return s->reduce;
    case FIELD_MODE: return (int)s->mode;
    default: return 0;
    }
}

static void field_put(cast_spec *s, field f, int value) {
    switch (f) {
    case FIELD_FORMAT: s->format = (ott_dtype)value; break;
    case FIELD_GRAIN: s->grain = (granularity)value; break;
    case FIELD_POLICY: s->policy = (amax_policy)value; break;
    case FIELD_RULE: s->scale.rule = (scale_rule)value; break;
    case FIELD_POW2: s->scale.power_of_two = value; break;
    case FIELD_MARGIN: s->scale.margin = value; break;
    case FIELD_HISTORY: s->history = value; break;
    case FIELD_ALGORITHM: s->algorithm = (amax_algorithm)value; break;
    case FIELD_REDUCE: s->reduce = value; break;
    case FIELD_MODE: s->mode = (cast_mode)value; break;
    default: break;
    }
}

/* Returns SCALE_TORCHAO, or the first rule for the format of the granularity's scales. */
static scale_rule default_rule(granularity grain) {
    scale_rule rule = SCALE_TORCHAO;
    while (scale_rule_format(rule) != granularity_scale_format(grain)) rule++;
    return rule;
}

/* Returns a spec with the given format, granularity and policy, and with defaults for its other members. */
static cast_spec defaults(ott_dtype format, granularity grain, amax_policy policy) {
    cast_spec s = {.format = format,
                   .grain = grain,
                   .scale = {.rule = default_rule(grain)},
                   .mode = CAST_SATURATE,
                   .rounding = ROUND_NEAREST,
                   .policy = policy};
    if (policy != AMAX_DELAYED) return s;
    s.scale.rule = SCALE_TE;
    s.algorithm = AMAX_MAX;
    s.history = 1024;
    s.reduce = true;
    return s;
}

/* Returns scale_options.infinite; 0 if the rule does not use it. */
static float infinite_scale(const cast_spec *s) {
    if (s->scale.rule != SCALE_TE) return 0.0f;
    return s->grain == GRANULARITY_TENSOR || s->grain == GRANULARITY_ROW ? FLT_MAX : BF16_MAX;
}

/* ---- numbers ---- */

static bool read_float(const char *text, float *out) {
    char *end;
    size_t length = strlen(text);
    if (length == 0 || length >= 32 || strspn(text, "0123456789.eE+-") != length) return false;
    *out = text_to_float(text, &end);
    return *end == '\0' && isfinite(*out) && *out >= 0.0f;
}

/* Removes the zeros of an exponent: "1e-04" becomes "1e-4". */
static void shorten_exponent(char *text) {
    char *exponent = strchr(text, 'e');
    if (!exponent) return;
    char *from = exponent + 1, *to = exponent + 1;
    if (*from == '-') to++;
    from++;
    while (*from == '0') from++;
    memmove(to, from, strlen(from) + 1);
}

/* Writes the shortest text that read_float reads as exactly this value. */
static void write_float(float value, char out[32]) {
    char plain[32];
    float back = -1.0f;
    for (int digits = 1; digits <= 9 && back != value; digits++) {
        text_format(out, 32, "%.*e", digits - 1, (double)value);
        text_format(plain, sizeof plain, "%.*g", digits, (double)value);
        shorten_exponent(out);
        shorten_exponent(plain);
        read_float(plain, &back);
    }
    if (strlen(plain) <= strlen(out)) memcpy(out, plain, sizeof plain);
}

static bool read_integer(const word *w, const char *text, int *out) {
    char *end;
    size_t length = strlen(text), digits = strspn(text + (*text == '-'), "0123456789");
    if (digits == 0 || digits > 9 || length != digits + (*text == '-')) return false;
    *out = (int)strtol(text, &end, 10);
    return *out >= w->low && *out <= w->high;
}

/* ---- reading ---- */

/* The words of a text: word[f] sets field f. */
typedef struct sentence {
    const word *word[FIELD_COUNT]; /* NULL: no word sets the field */
    int number[FIELD_COUNT];
    float epsilon;
} sentence;

#define WORD_LIMIT 40

static bool takes_number(const word *w) {
    return str_ends_with(w->text, "=");
}

static const word *find_word(const char *text) {
    for (int i = 0; i < WORD_COUNT; i++)
        if (takes_number(&words[i]) ? str_starts_with(text, words[i].text) : strcmp(text, words[i].text) == 0)
            return &words[i];
    return NULL;
}

/* Lists the format words (first is true), or all other words. Returns the number of listed words. */
static int candidates(bool first, const char *out[WORD_COUNT], char *list, size_t size) {
    int count = 0;
    size_t length = 0;
    for (int i = 0; i < WORD_COUNT; i++) {
        if ((words[i].field == FIELD_FORMAT) != first) continue;
        length += (size_t)snprintf(list + length, size - length, "%s%s%s", count ? ", " : "", words[i].text,
                                   takes_number(&words[i]) ? "NUMBER" : "");
        out[count++] = words[i].text;
    }
    return count;
}

static ott_status fail_unknown(const char *text, bool first) {
    const char *all[WORD_COUNT];
    char list[256];
    int count = candidates(first, all, list, sizeof list);
    const char *nearest = str_nearest(text, all, count);
    const char *what = first ? "a format, which comes first" : "a word that may follow the format";
    if (nearest)
        return status_fail(OTT_ERR_CONFIG, "\"%s\" is not %s: %s; did you mean \"%s\"?", text, what, list,
                           nearest);
    return status_fail(OTT_ERR_CONFIG, "\"%s\" is not %s: %s", text, what, list);
}

static ott_status read_option_number(const word *w, const char *text, sentence *out) {
    const char *number = text + strlen(w->text);
    if (w->field == FIELD_EPSILON) {
        if (read_float(number, &out->epsilon)) return OTT_OK;
        return status_fail(OTT_ERR_CONFIG, "\"%s\": eps must be a finite number that is not negative", text);
    }
    if (read_integer(w, number, &out->number[w->field])) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "\"%s\": %.*s must be an integer from %d to %d", text,
                       (int)strlen(w->text) - 1, w->text, w->low, w->high);
}

static ott_status add_word(const char *text, bool first, sentence *out) {
    const word *w = find_word(text);
    if (!w || (first && w->field != FIELD_FORMAT)) return fail_unknown(text, first);
    const word *before = out->word[w->field];
    if (before == w) return status_fail(OTT_ERR_CONFIG, "\"%s\" is given twice", text);
    if (before)
        return status_fail(OTT_ERR_CONFIG, "\"%s\" and \"%s\" contradict each other", before->text, text);
    out->word[w->field] = w;
    out->number[w->field] = w->value;
    return takes_number(w) ? read_option_number(w, text, out) : OTT_OK;
}

static bool is_printable(char c) {
    return c > 0x20 && c < 0x7f;
}

/* True if text is short and printable, as all valid words are. */
static bool may_be_word(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!is_printable(text[i])) return false;
    return length <= WORD_LIMIT;
}

/* Reports a word that is too long or unprintable. Prints its first bytes, with '?' for unprintable bytes. */
static ott_status fail_foreign(const char *text, size_t length, bool first) {
    char shown[WORD_LIMIT + 1];
    snprintf(shown, sizeof shown, "%.*s", (int)(length < WORD_LIMIT ? length : WORD_LIMIT), text);
    for (char *c = shown; *c; c++)
        if (!is_printable(*c)) *c = '?';
    return fail_unknown(shown, first);
}

static ott_status read_words(const char *text, sentence *out) {
    char one[WORD_LIMIT + 1];
    bool first = true;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (!may_be_word(at, length)) return fail_foreign(at, length, first);
        memcpy(one, at, length);
        one[length] = '\0';
        TRY(add_word(one, first, out));
        first = false;
        at += length;
    }
    return first ? fail_unknown("", true) : OTT_OK;
}

/* True if the cast depends on property f, given the policy and rule of s. */
static bool field_counts(const cast_spec *s, field f) {
    bool delayed = s->policy == AMAX_DELAYED;
    switch (f) {
    case FIELD_GRAIN: return !delayed || s->grain == GRANULARITY_TENSOR;
    case FIELD_RULE: return !delayed || s->scale.rule == SCALE_TE;
    case FIELD_POW2: return !delayed && (s->scale.rule == SCALE_TORCHAO || s->scale.rule == SCALE_TE);
    case FIELD_EPSILON: return !delayed && s->scale.rule == SCALE_TE;
    case FIELD_MARGIN: return s->scale.rule == SCALE_TE;
    case FIELD_HISTORY:
    case FIELD_ALGORITHM:
    case FIELD_REDUCE: return delayed;
    default: return true;
    }
}

static const char *field_word(const cast_spec *s, field f) {
    for (int i = 0; i < WORD_COUNT; i++)
        if (words[i].field == f && words[i].value == field_get(s, f)) return words[i].text;
    return "";
}

static ott_status fail_meaning(const char *text, const cast_spec *s, field f) {
    if (f == FIELD_HISTORY || f == FIELD_ALGORITHM || f == FIELD_REDUCE)
        return status_fail(OTT_ERR_CONFIG, "\"%s\" can be combined only with \"delayed\"", text);
    if (s->policy == AMAX_DELAYED)
        return status_fail(OTT_ERR_CONFIG, "\"%s\" cannot be combined with \"delayed\"", text);
    return status_fail(OTT_ERR_CONFIG, "\"%s\" cannot be combined with the scale rule \"%s\"", text,
                       field_word(s, FIELD_RULE));
}

static cast_spec build_spec(const sentence *given) {
    ott_dtype format = (ott_dtype)given->number[FIELD_FORMAT];
    granularity grain = GRANULARITY_TENSOR;
    if (given->word[FIELD_GRAIN]) grain = (granularity)given->number[FIELD_GRAIN];
    cast_spec s = defaults(format, grain, given->word[FIELD_POLICY] ? AMAX_DELAYED : AMAX_CURRENT);
    for (int f = 0; f < FIELD_COUNT; f++)
        if (given->word[f]) field_put(&s, (field)f, given->number[f]);
    s.scale.epsilon = given->epsilon;
    s.scale.infinite = infinite_scale(&s);
    return s;
}

static ott_status check_high(const sentence *given) {
    for (int f = FIELD_FORMAT + 1; f < FIELD_COUNT; f++)
        if (given->word[f])
            return status_fail(OTT_ERR_CONFIG, "\"%s\" cannot be combined with \"high\"",
                               given->word[f]->text);
    return OTT_OK;
}

ott_status recipe_cast_parse(const char *text, ott_dtype activation, cast_spec *out) {
    sentence given = {0};
    TRY(read_words(text, &given));
    if (given.number[FIELD_FORMAT] == HIGH_FORMAT) {
        *out = (cast_spec){.format = activation};
        return check_high(&given);
    }
    *out = build_spec(&given);
    for (int f = 0; f < FIELD_COUNT; f++)
        if (given.word[f] && !field_counts(out, (field)f))
            return fail_meaning(given.word[f]->text, out, (field)f);
    ott_dtype given_scales = scale_rule_format(out->scale.rule),
              stored = granularity_scale_format(out->grain);
    if (given_scales != stored)
        return status_fail(OTT_ERR_CONFIG, "\"%s\" and \"%s\" contradict each other: %s scales and %s scales",
                           granularity_name(out->grain), field_word(out, FIELD_RULE), dtype_name(stored),
                           dtype_name(given_scales));
    return OTT_OK;
}

/* ---- writing ---- */

static bool is_written(const cast_spec *s, const cast_spec *default_spec, field f) {
    if (f == FIELD_FORMAT || f == FIELD_POLICY) return f == FIELD_FORMAT || s->policy == AMAX_DELAYED;
    if (!field_counts(s, f)) return false;
    return f == FIELD_EPSILON ? s->scale.epsilon != default_spec->scale.epsilon
                              : field_get(s, f) != field_get(default_spec, f);
}

static void write_word(const cast_spec *s, const word *w, char out[RECIPE_CAST_TEXT]) {
    char number[32] = "";
    size_t length = strlen(out);
    if (w->field == FIELD_EPSILON)
        write_float(s->scale.epsilon, number);
    else if (takes_number(w))
        snprintf(number, sizeof number, "%d", field_get(s, w->field));
    snprintf(out + length, RECIPE_CAST_TEXT - length, "%s%s%s", length ? " " : "", w->text, number);
}

void recipe_cast_write(const cast_spec *s, char out[RECIPE_CAST_TEXT]) {
    cast_spec default_spec = defaults(s->format, GRANULARITY_TENSOR, s->policy);
    out[0] = '\0';
    for (int i = 0; i < WORD_COUNT; i++) {
        const word *w = &words[i];
        if (w->field == FIELD_POLICY) default_spec = defaults(s->format, s->grain, s->policy);
        bool holds = takes_number(w) || w->value == field_get(s, w->field);
        if (holds && is_written(s, &default_spec, w->field)) write_word(s, w, out);
        if (!cast_spec_is_fp8(s) && *out) return;
    }
}
