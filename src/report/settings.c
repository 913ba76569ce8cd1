/* report/settings: reads the seed from config.toml, and finds the differences between two runs. Ottava writes
   every key to config.toml. A key that only one run has comes from another version, and is ignored. */
#include "config/parse/toml.h"
#include "report/internal.h"
#include <string.h>

typedef enum setting {
    SETTING_OTHER,
    SETTING_MODEL,
    SETTING_DATA,
    SETTING_VALIDATION,
    SETTING_SEED,
    SETTING_PRECISION, /* precision; the report compares runs that differ in it */
    SETTING_COST,      /* affects speed or memory, but not the loss */
    SETTING_IGNORED    /* paths and output settings */
} setting;

/* If several rows match a key, the first one applies. */
static const struct {
    const char *section, *key; /* key NULL: all keys of the section */
    setting means;
} settings[] = {
    {"run", NULL, SETTING_IGNORED},
    {"checkpoint", NULL, SETTING_IGNORED},
    {"metrics", NULL, SETTING_IGNORED},
    {"profiling", NULL, SETTING_IGNORED},
    {"eval", "enabled", SETTING_IGNORED},
    {"eval", "interval", SETTING_IGNORED},
    {"eval", NULL, SETTING_VALIDATION},
    {"model", "preset", SETTING_IGNORED}, /* the dimensions of the preset are separate keys */
    {"model", NULL, SETTING_MODEL},
    {"data", NULL, SETTING_DATA},
    {"train", "seed", SETTING_SEED},
    {"train", "data_seed", SETTING_SEED},
    {"train", "mixed_precision", SETTING_PRECISION},
    {"train", "threads", SETTING_COST},
    {"train", "activation_checkpointing", SETTING_COST},
    {"train", "activation_checkpointing_every", SETTING_COST},
    {"train", "activation_memory_budget", SETTING_COST},
    {"train", "compile_model", SETTING_COST},
    {"train", "compile_mode", SETTING_COST},
    {"train", "deterministic", SETTING_COST},
    {"float8", "health_interval", SETTING_IGNORED},
    {"float8", NULL, SETTING_PRECISION},
};

static setting meaning_of(const char *section, const char *key) {
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(settings[i].section, section) == 0 &&
            (!settings[i].key || strcmp(settings[i].key, key) == 0))
            return settings[i].means;
    return SETTING_OTHER;
}

/* ---- reading ---- */

static const node *find_setting(const node *root, const char *section, const char *key) {
    const node *table = root ? tree_child(root, section) : NULL;
    return table && table->kind == NODE_TABLE ? tree_child(table, key) : NULL;
}

static bool read_seed(const node *root, const char *key, int64_t *out) {
    const node *n = find_setting(root, "train", key);
    if (n && n->kind == NODE_INTEGER) *out = n->integer;
    return n && n->kind == NODE_INTEGER;
}

ott_status report_read_settings(report *r, report_run_data *run) {
    node *root = NULL;
    int64_t bytes = run->config ? (int64_t)strlen(run->config) : 0;
    if (bytes == 0 || str_utf8_error(run->config, bytes) >= 0) return OTT_OK;
    tree_builder b = {.account = r->account, .memory = r->texts, .place = run->folder};
    ott_status status = toml_read(&b, run->config, bytes, &root);
    if (status == OTT_ERR_CONFIG) return OTT_OK; /* an invalid file is shown, but not compared */
    TRY(status);
    run->settings = root;
    run->seeded = read_seed(root, "seed", &run->seed);
    if (!read_seed(root, "data_seed", &run->data_seed) || run->data_seed < 0) run->data_seed = run->seed;
    return OTT_OK;
}

/* ---- comparing ---- */

static bool same_value(const node *a, const node *b) {
    if (a->kind != b->kind) return false;
    if (a->kind == NODE_INTEGER || a->kind == NODE_BOOL) return a->integer == b->integer;
    if (a->kind == NODE_REAL) return a->real == b->real;
    if (a->kind != NODE_LIST && a->kind != NODE_TABLE) return strcmp(a->text, b->text) == 0;
    const node *x = a->first, *y = b->first;
    for (; x && y; x = x->next, y = y->next)
        if ((x->name && strcmp(x->name, y->name) != 0) || !same_value(x, y)) return false;
    return !x && !y;
}

/* One key that differs between two configurations. */
typedef struct difference {
    const char *section;
    const node *a, *b;
    setting means;
} difference;

/* Advances *at to the next key whose values differ; from {0} to the first. Returns false if there is none. */
static bool next_difference(const node *first, const node *second, difference *at) {
    const node *section = at->section ? tree_child(first, at->section) : first->first;
    const node *key = at->a ? at->a->next : NULL;
    if (section && !at->section) key = section->first;
    while (section) {
        for (; key && section->kind == NODE_TABLE; key = key->next) {
            const node *other = find_setting(second, section->name, key->name);
            if (!other || same_value(key, other)) continue;
            *at = (difference){section->name, key, other, meaning_of(section->name, key->name)};
            return true;
        }
        section = section->next;
        key = section ? section->first : NULL;
    }
    return false;
}

static bool trains_in_fp8(const node *root) {
    const node *precision = find_setting(root, "train", "mixed_precision");
    return precision && precision->text && strcmp(precision->text, "fp8") == 0;
}

bool report_same_but_seed(const report_run_data *a, const report_run_data *b) {
    if (!a->seeded || !b->seeded || !a->finished || !b->finished) return false;
    if (a->summary.steps != b->summary.steps) return false;
    difference d = {0};
    while (next_difference(a->settings, b->settings, &d)) {
        if (d.means == SETTING_IGNORED || d.means == SETTING_SEED) continue;
        if (strcmp(d.section, "float8") != 0 || trains_in_fp8(a->settings)) return false;
    }
    return true;
}

/* ---- description ---- */

enum { MOST_NAMED = 3 };

typedef struct difference_list {
    bool kind[SETTING_VALIDATION + 1];
    int count;
    str *list;
} difference_list;

/* Counts a difference. Returns true if it must be listed. */
static bool note_difference(difference_list *s, setting means) {
    s->kind[means] = true;
    if (s->count++ >= MOST_NAMED) return false;
    str_append(s->list, s->count > 1 ? "; " : "");
    return true;
}

static void compare_settings(difference_list *s, const report_run_data *run, const report_run_data *first,
                             setting means) {
    difference d = {0};
    while (next_difference(run->settings, first->settings, &d)) {
        if (d.means != means || !note_difference(s, means)) continue;
        str_printf(s->list, "%s.%s = ", d.section, d.a->name);
        tree_show(s->list, d.a);
        str_append(s->list, ", not ");
        tree_show(s->list, d.b);
    }
}

static void compare_counts(difference_list *s, const report_run_data *run, const report_run_data *first) {
    const report_summary *a = &run->summary, *b = &first->summary;
    char x[32], y[32];
    if (!s->kind[SETTING_MODEL] && a->parameters > 0 && b->parameters > 0 && a->parameters != b->parameters &&
        note_difference(s, SETTING_MODEL))
        str_printf(s->list, "%s parameters, not %s", str_commas(a->parameters, x),
                   str_commas(b->parameters, y));
    if (run->finished && first->finished && a->steps != b->steps && note_difference(s, SETTING_OTHER))
        str_printf(s->list, "%s steps, not %s", str_commas(a->steps, x), str_commas(b->steps, y));
}

/* Kinds of differences, in the order in which a description lists them. */
static const struct {
    setting means;
    const char *words;
} kinds[] = {{SETTING_MODEL, "another model"},
             {SETTING_DATA, "other data"},
             {SETTING_VALIDATION, "other validation data"},
             {SETTING_OTHER, "other settings"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void append_kinds(const difference_list *s, str *out) {
    int left = 0;
    for (int i = 0; i < KINDS; i++) left += s->kind[kinds[i].means];
    for (int i = 0; i < KINDS; i++) {
        if (!s->kind[kinds[i].means]) continue;
        str_append(out, kinds[i].words);
        if (--left > 0) str_append(out, left == 1 ? " and " : ", ");
    }
}

ott_status report_differences(report *r, const report_run_data *run, const report_run_data *first,
                              const char **out) {
    str list = {.account = r->account}, text = {.account = r->account};
    difference_list s = {.list = &list};
    ott_status status = OTT_OK;
    for (int i = 0; i < KINDS && run->settings && first->settings; i++)
        compare_settings(&s, run, first, kinds[i].means);
    compare_counts(&s, run, first);
    if (s.count == 0) goto out;
    append_kinds(&s, &text);
    str_append(&text, " than ");
    str_append(&text, first->summary.label);
    TRY_OUT(str_finish(&list));
    str_printf(&text, " (%s", list.text);
    if (s.count > MOST_NAMED) str_printf(&text, "; %d more", s.count - MOST_NAMED);
    str_append(&text, ")");
    TRY_OUT(str_finish(&text));
    TRY_OUT(arena_strdup(r->texts, text.text, out));
out:
    str_free(&list);
    str_free(&text);
    return status;
}
