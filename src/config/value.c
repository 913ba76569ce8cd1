/* config/value: checks types, ranges and words of values from TOML, YAML and options. */
#include "config/value.h"
#include "config/parse/number.h"
#include "config/parse/yaml_number.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* One interval of a range text: "[1, inf)". */
typedef struct interval {
    double low, high;
    bool open_low, open_high;
} interval;

/* Parses a range of the key table. All ranges of the table are valid. */
static interval interval_parse(const char *text) {
    interval i = {.low = -INFINITY, .high = INFINITY, .open_low = text[0] == '('};
    const char *comma = strchr(text, ',');
    char low[40] = "", high[40] = "";
    memcpy(low, text + 1, (size_t)(comma - text - 1));
    size_t length = strlen(comma + 2) - 1;
    memcpy(high, comma + 2, length);
    number_parse_real(low, &i.low);
    if (!number_parse_real(high, &i.high)) i.high = INFINITY;
    i.open_high = comma[2 + length] == ')';
    return i;
}

/* Returns the interval "[1, inf)" of a range such as "-1|[1, inf)". *extra points to the -1, or is NULL. */
static const char *range_interval(const char *range, const char **extra) {
    const char *bar = strchr(range, '|');
    *extra = bar ? range : NULL;
    return bar ? bar + 1 : range;
}

static bool range_holds(const char *range, double x) {
    const char *extra;
    interval i = interval_parse(range_interval(range, &extra));
    return ((i.open_low ? x > i.low : x >= i.low) && (i.open_high ? x < i.high : x <= i.high)) ||
           (extra && x == -1.0);
}

static ott_status fail_range(const char *where, const char *range) {
    const char *extra;
    interval i = interval_parse(range_interval(range, &extra));
    const char *also = extra ? "-1 or " : "";
    char low[40], high[40];
    number_print_real(i.low, low);
    number_print_real(i.high, high);
    char *point = strstr(low, ".0");
    if (point) *point = '\0';
    if (isinf(i.high))
        return status_fail(OTT_ERR_CONFIG, "%s is out of range: must be %s%s %s", where, also,
                           i.open_low ? "greater than" : "at least", low);
    return status_fail(OTT_ERR_CONFIG, "%s is out of range: must be %sin %s", where, also,
                       range + (extra ? 3 : 0));
}

static ott_status fail_type(const char *where, const char *wanted) {
    return status_fail(OTT_ERR_CONFIG, "%s must be %s", where, wanted);
}

static bool node_integer(const node *n, int64_t *out) {
    if (n->kind == NODE_INTEGER) return *out = n->integer, true;
    if (n->kind != NODE_PLAIN) return false;
    return n->yaml ? yaml_integer(n->text, out) : number_parse_integer(n->text, out);
}

static ott_status read_integer(const config_key *key, const node *n, const char *where, config_value *out) {
    if (!node_integer(n, &out->integer))
        return fail_type(where, n->yaml && n->text[0] == '0' ? "an integer (in YAML a leading 0 means octal)"
                                                             : "an integer");
    return range_holds(key->range, (double)out->integer) ? OTT_OK : fail_range(where, key->range);
}

static bool node_real(const node *n, double *out) {
    int64_t as_integer;
    if ((n->kind == NODE_INTEGER || n->yaml) && node_integer(n, &as_integer))
        return *out = (double)as_integer, true;
    if (n->kind == NODE_REAL) return *out = n->real, isfinite(n->real);
    return n->kind == NODE_PLAIN && number_parse_real(n->text, out);
}

/* Fails if the number is out of range in fp32, which training uses. In fp32, 1e-320 is 0, 1e39 is infinite,
   0.99999999 is 1. */
static ott_status check_in_fp32(const config_key *key, const char *where, double x) {
    char rounded[40];
    double narrow = (double)(float)x;
    if (isinf(narrow))
        return status_fail(OTT_ERR_CONFIG, "%s is infinite in fp32: the largest number is 3.4e38", where);
    if ((narrow == 0) == (x == 0) && range_holds(key->range, narrow)) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "%s becomes %s in fp32, which training uses: give a number that fp32 can hold", where,
                       number_print_real(narrow, rounded));
}

static ott_status read_real(const config_key *key, const node *n, const char *where, double *out) {
    if (!node_real(n, out)) return fail_type(where, key->type == KEY_PAIR ? "two numbers" : "a number");
    return range_holds(key->range, *out) ? check_in_fp32(key, where, *out) : fail_range(where, key->range);
}

/* Parses "a, b" as a list. So --optimizer.betas=0.9,0.95 and filter_fqns = "a,b" need no brackets. */
static ott_status split_commas(arena *memory, const node *n, node **out) {
    tree_builder b = {.memory = memory, .place = ""}; /* .account is NULL: no temporary buffer is needed */
    const char *bracketed;
    TRY(arena_printf(memory, &bracketed, "[%s]", n->text));
    return tree_from_text(&b, bracketed, out);
}

static ott_status read_pair(arena *memory, const config_key *key, const node *n, const char *where,
                            config_value *out) {
    node *list = NULL;
    if (n->kind == NODE_PLAIN) {
        TRY(split_commas(memory, n, &list));
        n = list;
    }
    if (n->kind != NODE_LIST || !n->first || n->first->next != n->last || n->first == n->last)
        return fail_type(where, "two numbers, as [0.9, 0.95]");
    TRY(read_real(key, n->first, where, &out->real[0]));
    return read_real(key, n->last, where, &out->real[1]);
}

bool value_bool(const node *n, bool *out) {
    static const char *const yes[] = {"true", "1", "yes", "on"}, *const no[] = {"false", "0", "no", "off"};
    if (n->kind == NODE_BOOL) return *out = n->integer != 0, true;
    if (n->kind != NODE_PLAIN) return false;
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(n->text, yes[i]) == 0) return *out = true, true;
        if (strcasecmp(n->text, no[i]) == 0) return *out = false, true;
    }
    return false;
}

static bool is_of_integers(const config_key *key) {
    return key->range != NULL;
}

static ott_status fail_list(const config_key *key, const char *where) {
    return fail_type(where, is_of_integers(key) ? "a list of integers" : "a list of texts");
}

static ott_status read_item(arena *memory, const config_key *key, const node *n, const char *where,
                            const char **out) {
    config_value value;
    if (is_of_integers(key)) {
        TRY(read_integer(key, n, where, &value));
        return arena_printf(memory, out, "%lld", (long long)value.integer);
    }
    bool text = n->kind == NODE_TEXT || n->kind == NODE_PLAIN;
    if (key->state == STATE_BUILT && !text) return fail_list(key, where);
    return arena_strdup(memory, text ? n->text : "a table", out);
}

static ott_status read_list(arena *memory, const config_key *key, const node *n, const char *where,
                            config_value *out) {
    node *list = NULL;
    if (n->kind == NODE_PLAIN || n->kind == NODE_TEXT) {
        TRY(split_commas(memory, n, &list));
        n = list;
    }
    if (n->kind == NODE_TABLE && key->state == STATE_BUILT) return fail_list(key, where);
    int64_t count = 0;
    for (const node *child = n->first; child; child = child->next) count++;
    const char **items;
    TRY(arena_alloc(memory, (count + 1) * (int64_t)sizeof(char *), &items));
    int64_t at = 0;
    for (const node *child = n->first; child; child = child->next)
        TRY(read_item(memory, key, child, where, &items[at++]));
    out->list = (str_list){items, count};
    return n->kind == NODE_LIST || n->kind == NODE_TABLE ? OTT_OK : fail_list(key, where);
}

static ott_status fail_choice(const config_key *key, const char *word, const char *where) {
    const char *candidates[32];
    char list[1024] = "";
    size_t length = 0;
    for (int i = 0; i < key->choice_count && i < 32; i++) {
        candidates[i] = key->choices[i].text;
        length +=
            (size_t)snprintf(list + length, sizeof list - length, "%s\"%s\"", i ? ", " : "", candidates[i]);
    }
    const char *nearest = str_nearest(word, candidates, key->choice_count);
    if (!nearest) return status_fail(OTT_ERR_CONFIG, "%s is not one of %s", where, list);
    return status_fail(OTT_ERR_CONFIG, "%s is not one of %s; did you mean \"%s\"?", where, list, nearest);
}

static ott_status read_choice(const config_key *key, const node *n, const char *where, config_value *out) {
    if (!n->text) return fail_choice(key, "", where);
    bool on;
    int place = table_choice(key, n->text);
    if (place < 0 && value_bool(n, &on)) place = table_choice(key, on ? "true" : "false");
    if (place < 0) return fail_choice(key, n->text, where);
    out->integer = place;
    return OTT_OK;
}

ott_status value_read(arena *memory, const config_key *key, const node *n, const char *where,
                      config_value *out) {
    bool truth = false;
    *out = (config_value){0};
    switch (key->type) {
    case KEY_INT: return read_integer(key, n, where, out);
    case KEY_REAL: return read_real(key, n, where, &out->real[0]);
    case KEY_PAIR: return read_pair(memory, key, n, where, out);
    case KEY_BOOL:
        if (!value_bool(n, &truth)) return fail_type(where, "true or false");
        out->integer = truth;
        return OTT_OK;
    case KEY_TEXT:
        if (n->kind != NODE_TEXT && n->kind != NODE_PLAIN) return fail_type(where, "a text");
        return arena_strdup(memory, n->text, &out->text);
    case KEY_CHOICE: return read_choice(key, n, where, out);
    case KEY_LIST: return read_list(memory, key, n, where, out);
    }
    return OTT_OK;
}

/* Appends `text` as a TOML basic string. */
static void write_toml_text(str *out, const char *text) {
    str_append(out, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            str_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            str_printf(out, "\\u%04x", c);
        else
            str_append_bytes(out, text, 1);
    }
    str_append(out, "\"");
}

static void write_list(str *out, const config_key *key, const str_list *list) {
    str_append(out, "[");
    for (int64_t i = 0; i < list->count; i++) {
        str_append(out, i ? ", " : "");
        if (is_of_integers(key))
            str_append(out, list->items[i]);
        else
            write_toml_text(out, list->items[i]);
    }
    str_append(out, "]");
}

void value_show(str *out, const config_key *key, const config_value *value) {
    char number[40];
    switch (key->type) {
    case KEY_INT: str_printf(out, "%lld", (long long)value->integer); break;
    case KEY_REAL: str_append(out, number_print_real(value->real[0], number)); break;
    case KEY_PAIR:
        str_printf(out, "[%s, ", number_print_real(value->real[0], number));
        str_printf(out, "%s]", number_print_real(value->real[1], number));
        break;
    case KEY_BOOL: str_append(out, value->integer ? "true" : "false"); break;
    case KEY_TEXT: str_append(out, value->text); break;
    case KEY_CHOICE: str_append(out, key->choices[value->integer].text); break;
    case KEY_LIST: write_list(out, key, &value->list); break;
    }
}

void value_write(str *out, const config_key *key, const config_value *value) {
    if (key->type == KEY_TEXT)
        write_toml_text(out, value->text);
    else if (key->type == KEY_CHOICE)
        write_toml_text(out, key->choices[value->integer].text);
    else
        value_show(out, key, value);
}

void value_allowed(str *out, const config_key *key) {
    switch (key->type) {
    case KEY_INT:
    case KEY_REAL:
    case KEY_PAIR: str_append(out, key->range); break;
    case KEY_BOOL: str_append(out, "true | false"); break;
    case KEY_TEXT: str_append(out, "text"); break;
    case KEY_LIST: str_append(out, is_of_integers(key) ? key->range : "list of texts"); break;
    case KEY_CHOICE:
        for (int i = 0; i < key->choice_count; i++)
            str_printf(out, "%s%s", i ? " | " : "", key->choices[i].text);
        break;
    }
}
