/*
 * config/compat/config_format: detects the tool that a file was written for, and applies that tool's
 * defaults. Otherwise a torchtitan file would train with KempnerForge's warmup and decay, without a message.
 */
#include "config/state.h"
#include "config/value.h"
#include <string.h>

static const struct {
    config_format config_format;
    const char *path, *word;
} defaults[] = {
    {CONFIG_FORMAT_KEMPNER, "metrics.log_style", "kempner"},
    {CONFIG_FORMAT_TITAN, "metrics.log_style", "titan"},
    {CONFIG_FORMAT_AUTOMODEL, "metrics.log_style", "automodel"},
    {CONFIG_FORMAT_TITAN, "model.preset", "debug"},
    {CONFIG_FORMAT_TITAN, "model.init_style", "titan"},
    {CONFIG_FORMAT_TITAN, "train.max_steps", "10000"},
    {CONFIG_FORMAT_TITAN, "train.compile_model", "false"},
    {CONFIG_FORMAT_TITAN, "train.activation_checkpointing", "every_n"},
    {CONFIG_FORMAT_TITAN, "optimizer.lr", "8e-4"},
    {CONFIG_FORMAT_TITAN, "scheduler.warmup_steps", "200"},
    {CONFIG_FORMAT_TITAN, "scheduler.min_lr_ratio", "0"},
    {CONFIG_FORMAT_TITAN, "checkpoint.enabled", "false"},
    {CONFIG_FORMAT_TITAN, "checkpoint.dir", "checkpoint"},
    {CONFIG_FORMAT_TITAN, "checkpoint.interval", "500"},
    {CONFIG_FORMAT_TITAN, "checkpoint.keep_last_n", "10"},
    {CONFIG_FORMAT_TITAN, "float8.enable_fsdp_float8_all_gather", "false"},
    {CONFIG_FORMAT_TITAN, "eval.interval", "10"},
    {CONFIG_FORMAT_TITAN, "profiling.frequency", "10"},
    {CONFIG_FORMAT_TITAN, "profiling.trace_dir", "profile_traces"},
    {CONFIG_FORMAT_AUTOMODEL, "model.init_style", "hf"},
    {CONFIG_FORMAT_AUTOMODEL, "train.compile_model", "false"},
    {CONFIG_FORMAT_AUTOMODEL, "train.batch_size", "1"},
    {CONFIG_FORMAT_AUTOMODEL, "optimizer.lr", "1e-3"},
    {CONFIG_FORMAT_AUTOMODEL, "optimizer.betas", "0.9,0.999"},
    {CONFIG_FORMAT_AUTOMODEL, "optimizer.weight_decay", "0.01"},
    {CONFIG_FORMAT_AUTOMODEL, "scheduler.name", "constant"},
    {CONFIG_FORMAT_AUTOMODEL, "scheduler.warmup_steps", "0"},
    {CONFIG_FORMAT_AUTOMODEL, "scheduler.min_lr_ratio", "0.01"},
    {CONFIG_FORMAT_AUTOMODEL, "checkpoint.keep_last_n", "0"},
    {CONFIG_FORMAT_AUTOMODEL, "float8.enable_fsdp_float8_all_gather", "false"},
    {CONFIG_FORMAT_AUTOMODEL, "metrics.log_interval", "1"},
    {CONFIG_FORMAT_AUTOMODEL, "eval.steps", "1000000000"}, /* all of the validation data */
};

/* True for a KempnerForge file. Its sections are also Ottava's. So it must have [distributed] or a data
   loading key, and none of the keys that only Ottava has. */
static bool is_kempner(const node *root) {
    static const char *const own[] = {"preset", "hf_path", "family", "reduce"};
    static const char *const loading[] = {"num_workers", "pin_memory", "prefetch_factor"};
    const node *model = tree_child(root, "model"), *data = tree_child(root, "data");
    if (tree_child(root, "run") || tree_child(root, "float8")) return false;
    for (size_t i = 0; model && i < sizeof own / sizeof own[0]; i++)
        if (tree_child(model, own[i])) return false;
    for (size_t i = 0; data && i < sizeof loading / sizeof loading[0]; i++)
        if (tree_child(data, loading[i])) return true;
    return tree_child(root, "distributed") != NULL;
}

/* The tool's name for messages: "torchtitan". */
static const char *name_of(config_format format) {
    static const char *const names[] = {"Ottava", "KempnerForge", "torchtitan", "AutoModel"};
    return names[format];
}

config_format config_format_detect(const node *root) {
    static const char *const titan[] = {"training", "job", "parallelism", "activation_checkpoint"};
    static const char *const automodel[] = {"step_scheduler",  "dist_env", "loss_fn",
                                            "packed_sequence", "rng",      "recipe"};
    if (tree_child(root, "train") || tree_child(root, "scheduler"))
        return is_kempner(root) ? CONFIG_FORMAT_KEMPNER : CONFIG_FORMAT_OWN;
    for (size_t i = 0; i < sizeof titan / sizeof titan[0]; i++)
        if (tree_child(root, titan[i])) return CONFIG_FORMAT_TITAN;
    for (size_t i = 0; i < sizeof automodel / sizeof automodel[0]; i++)
        if (tree_child(root, automodel[i])) return CONFIG_FORMAT_AUTOMODEL;
    return CONFIG_FORMAT_OWN;
}

static ott_status put_default(config *cfg, const config_key *key, const char *word) {
    node n = {.kind = NODE_PLAIN, .text = word};
    config_value value;
    TRY(value_read(cfg->state->memory, key, &n, key->path, &value));
    table_put(cfg, key, &value);
    return OTT_OK;
}

ott_status config_format_defaults(config *cfg) {
    foreign_state *f = &cfg->state->foreign;
    if (f->config_format == CONFIG_FORMAT_OWN) return OTT_OK;
    str used = {.account = cfg->state->account};
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        const config_key *key = table_find(defaults[i].path);
        if (defaults[i].config_format != f->config_format || cfg->state->keys[table_index(key)].set) continue;
        ott_status status = put_default(cfg, key, defaults[i].word);
        if (status != OTT_OK) return str_free(&used), status;
        str_printf(&used, "%s%s=%s", used.length ? ", " : "", key->path, defaults[i].word);
    }
    f->titan_schedule = f->titan_schedule || f->config_format == CONFIG_FORMAT_TITAN;
    /* The default weight decay of PyTorch's Adam is 0, unlike AdamW's. */
    if (f->adam && !state_note(cfg, "optimizer.weight_decay")->set)
        cfg->optimizer.weight_decay = f->config_format == CONFIG_FORMAT_TITAN ? 0.1 : 0.0;
    if (used.text)
        log_info(cfg->state->lg, "%s is written for %s; its missing keys have the defaults of that tool: %s",
                 cfg->path, name_of(f->config_format), used.text);
    str_free(&used);
    return OTT_OK;
}
