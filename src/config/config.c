/* config: creates a config from defaults, file and command line, and copies and closes it. */
#include "config/config.h"
#include "config/assign.h"
#include "config/command.h"
#include "config/parse/load.h"
#include "config/value.h"
#include <string.h>

static ott_status open_config_state(mem *account, const logger *lg, config *cfg) {
    int key_count;
    arena *memory;
    TRY(arena_open(account, MEM_OTHER, &memory));
    ott_status status = arena_alloc(memory, sizeof(config_state), &cfg->state);
    if (status != OTT_OK) return arena_close(memory), status;
    config_state *state = cfg->state;
    *state = (config_state){.account = account, .memory = memory, .lg = lg};
    foreign_open(&state->foreign);
    table_keys(&key_count);
    TRY(arena_alloc(memory, key_count * (int64_t)sizeof(key_note), &state->keys));
    for (int i = 0; i < key_count; i++) assign_default(cfg, &table_keys(&key_count)[i]);
    cfg->path = "";
    return OTT_OK;
}

void config_close(config *cfg) {
    if (!cfg) return;
    mem *account = cfg->state ? cfg->state->account : NULL;
    if (!account) return;
    arena_close(cfg->state->memory);
    mem_free(account, cfg);
}

static ott_status open_empty_config(mem *account, const logger *lg, config **out) {
    config *cfg;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(config), "a configuration", &cfg));
    ott_status status = open_config_state(account, lg, cfg);
    if (status != OTT_OK) {
        if (cfg->state) arena_close(cfg->state->memory);
        mem_free(account, cfg);
        return status;
    }
    return *out = cfg, OTT_OK;
}

/* Old versions wrote round_scales_to_power_of_2 = false to config.toml where "recipe" is written now. */
static void read_as_older(node *root) {
    node *section = tree_child(root, "float8");
    node *rounding = section ? tree_child(section, "round_scales_to_power_of_2") : NULL;
    bool on;
    if (rounding && value_bool(rounding, &on) && !on)
        *rounding = (node){.kind = NODE_PLAIN,
                           .line = rounding->line,
                           .name = rounding->name,
                           .text = "recipe",
                           .next = rounding->next};
}

static ott_status read_config_file(config *cfg, const char *path) {
    node *root;
    TRY(arena_strdup(cfg->state->memory, path, &cfg->path));
    tree_builder b = {.account = cfg->state->account, .memory = cfg->state->memory, .place = cfg->path};
    TRY(load_file(&b, &root));
    if (b.is_older) read_as_older(root);
    cfg->state->foreign.config_format = config_format_detect(root);
    TRY(assign_tree(cfg, cfg->path, root));
    return config_format_defaults(cfg);
}

/* True if the user gave a key that controls PyTorch only (INSTEAD in schema.def) a value that is not neutral.
   False for FP8 keys in a run without FP8: check.c warns about these. */
static bool is_worth_logging(const config *cfg, const config_key *key) {
    bool fp8 = cfg->train.mixed_precision == PRECISION_FP8 || strcmp(key->section, "float8") != 0;
    return key->state == STATE_INSTEAD && state_note(cfg, key->path)->set && fp8 &&
           !config_is_listed(cfg, key);
}

/* Logs a line for each key that controls PyTorch only, then the diagnostics. */
static void log_instead(const config *cfg) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++)
        if (is_worth_logging(cfg, &keys[i]))
            log_info(cfg->state->lg, "%s: controls PyTorch only; Ottava %s", cfg->state->keys[i].where,
                     keys[i].reason);
    diagnostic_log(cfg);
}

static ott_status parse_into(config *cfg, int argc, const char *const *argv) {
    const char *file;
    TRY(command_find_file(argc, argv, &file));
    if (file) TRY(read_config_file(cfg, file));
    TRY(command_apply(cfg, argc, argv));
    TRY(config_check(cfg));
    log_instead(cfg);
    return OTT_OK;
}

ott_status config_parse(mem *account, const logger *lg, int argc, const char *const *argv, config **out) {
    config *cfg;
    *out = NULL;
    TRY(open_empty_config(account, lg, &cfg));
    ott_status status = parse_into(cfg, argc, argv);
    if (status != OTT_OK) return config_close(cfg), status;
    return *out = cfg, OTT_OK;
}

/* ---- copying a config ---- */

static ott_status copy_list(arena *memory, str_list *list) {
    void *items;
    TRY(arena_alloc(memory, list->count * (int64_t)sizeof *list->items, &items));
    const char **texts = items;
    for (int64_t i = 0; i < list->count; i++) TRY(arena_strdup(memory, list->items[i], &texts[i]));
    list->items = texts;
    return OTT_OK;
}

static ott_status copy_key(const config *from, const config_key *key, config *to) {
    arena *memory = to->state->memory;
    config_value value = table_get(from, key);
    const key_note *note = state_note(from, key->path);
    key_note *copy = &to->state->keys[table_index(key)];
    if (key->type == KEY_TEXT) TRY(arena_strdup(memory, value.text, &value.text));
    if (key->type == KEY_LIST) TRY(copy_list(memory, &value.list));
    table_put(to, key, &value);
    *copy = (key_note){.set = note->set};
    return note->where ? arena_strdup(memory, note->where, &copy->where) : OTT_OK;
}

static ott_status copy_into(const config *from, config *to) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++) TRY(copy_key(from, &keys[i], to));
    return arena_strdup(to->state->memory, from->path, &to->path);
}

ott_status config_copy(const config *from, config **out) {
    config *cfg;
    TRY(open_empty_config(from->state->account, from->state->lg, &cfg));
    ott_status status = copy_into(from, cfg);
    if (status == OTT_OK)
        *out = cfg;
    else
        config_close(cfg);
    return status;
}

const char *config_dataset_class(const config *cfg) {
    return cfg->state->foreign.dataset_class;
}

ott_status config_set(config *cfg, const char *key, const char *value) {
    const char *shown, *name;
    TRY(arena_strdup(cfg->state->memory, key, &name));
    TRY(arena_printf(cfg->state->memory, &shown, "--%.200s=%.100s", key, value));
    return command_override(cfg, name, value, shown);
}

ott_status config_set_default(config *cfg, const char *key, const char *value) {
    return config_was_set(cfg, key) ? OTT_OK : config_set(cfg, key, value);
}

const char *config_head_name(const config *cfg) {
    static const char *const names[] = {[CONFIG_FORMAT_OWN] = "lm_head",
                                        [CONFIG_FORMAT_KEMPNER] = "output_head",
                                        [CONFIG_FORMAT_TITAN] = "output",
                                        [CONFIG_FORMAT_AUTOMODEL] = "lm_head"};
    return names[cfg->state->foreign.config_format];
}

const char *const *config_recipe_keys(int *count) {
    static const char *const keys[] = {"round_scales_to_power_of_2",
                                       "amax_history_len",
                                       "amax_compute_algo",
                                       "margin",
                                       "reduce_amax",
                                       "amax_epsilon",
                                       "use_f32_scales",
                                       "mx_scale",
                                       "fp8_format",
                                       "input",
                                       "input_for_grad_weight",
                                       "weight",
                                       "weight_for_grad_input",
                                       "grad_output",
                                       "grad_output_for_grad_weight",
                                       "fast_accum_output",
                                       "fast_accum_grad_input",
                                       "fast_accum_grad_weight",
                                       "accumulate",
                                       "accumulate_output",
                                       "accumulate_grad_input",
                                       "accumulate_grad_weight"};
    *count = sizeof keys / sizeof *keys;
    return keys;
}
