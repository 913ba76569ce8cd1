/* config/check: is everything that was asked for built, and do the keys agree with each other? Needs no
 * model. */
#include "config/book.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

bool config_is_neutral(const config *cfg, const config_key *key) {
    config_value value = table_get(cfg, key);
    if (table_equal(key, &value, &key->fallback)) return true;
    str text = {.account = cfg->book->account};
    value_show(&text, key, &value);
    bool neutral = str_finish(&text) == OTT_OK && table_word_in(key->neutral, text.text ? text.text : "");
    str_free(&text);
    return neutral;
}

/* Some keys ask for nothing because of another one. */
static bool is_moot(const config *cfg, const config_key *key) {
    if (strcmp(key->section, "eval") == 0)
        return !cfg->eval.enabled || (*cfg->eval.dataset_path && strcmp(key->name, "dataset") == 0);
    if (strcmp(key->path, "data.dataset") == 0) return *cfg->data.dataset_path != '\0';
    return false;
}

/* The words of a choice that work, for the way out of one that does not. */
static ott_status fail_choice(const config_key *key, const char *where, const char *missing) {
    char list[512] = "";
    size_t length = 0;
    for (int i = 0; i < key->choice_count; i++)
        if (!*key->choices[i].missing)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s\"%s\"", length ? ", " : "",
                                       key->choices[i].text);
    return status_fail(OTT_ERR_CONFIG, "%s: %s; what works: %s", where, missing, list);
}

static ott_status fail_later(const config_key *key, const char *where) {
    char text[160];
    switch (key->type) {
    case KEY_BOOL:
        snprintf(text, sizeof text, "set it to %s", key->fallback.integer ? "true" : "false");
        break;
    case KEY_INT: snprintf(text, sizeof text, "set it to %lld", (long long)key->fallback.integer); break;
    default: snprintf(text, sizeof text, "leave it out"); break;
    }
    return status_fail(OTT_ERR_CONFIG, "%s: %s (%s to go on without)", where, key->reason, text);
}

/* Where a key was set; its name when it has only a default. */
static const char *where_of(const config *cfg, const config_key *key) {
    const char *where = cfg->book->keys[table_index(key)].where;
    return where ? where : key->path;
}

static ott_status check_key(const config *cfg, const config_key *key) {
    if (key->type == KEY_CHOICE && key->state == STATE_BUILT) {
        const key_choice *chosen = &key->choices[table_get(cfg, key).integer];
        return *chosen->missing ? fail_choice(key, where_of(cfg, key), chosen->missing) : OTT_OK;
    }
    if (key->state != STATE_LATER || config_is_neutral(cfg, key) || is_moot(cfg, key)) return OTT_OK;
    return fail_later(key, where_of(cfg, key));
}

static ott_status check_built(const config *cfg) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++) TRY(check_key(cfg, &keys[i]));
    const config_alias *aliases = alias_table(&count);
    for (int i = 0; i < count; i++)
        if (aliases[i].kind == ALIAS_REFUSED && cfg->book->aliases[i].where)
            return status_fail(OTT_ERR_CONFIG, "%s: %s", cfg->book->aliases[i].where, aliases[i].words);
    return OTT_OK;
}

#define FAIL(...) return status_fail(OTT_ERR_CONFIG, __VA_ARGS__)

static ott_status check_batches(config *cfg) {
    int64_t global = cfg->train.global_batch_size, local = cfg->train.batch_size;
    if (global == 0) return OTT_OK;
    if (global % local != 0)
        FAIL("global_batch_size (%lld) must be divisible by local_batch_size * dp_size (%lld * 1)",
             (long long)global, (long long)local);
    if (config_was_set(cfg, "train.grad_accum_steps") && cfg->train.grad_accum_steps != global / local)
        FAIL("train.global_batch_size (%lld) is not train.batch_size (%lld) times train.grad_accum_steps "
             "(%lld); give "
             "one of them only",
             (long long)global, (long long)local, (long long)cfg->train.grad_accum_steps);
    cfg->train.grad_accum_steps = global / local;
    return OTT_OK;
}

static ott_status check_model(const config *cfg) {
    bool dim = config_was_set(cfg, "model.dim"), heads = config_was_set(cfg, "model.n_heads");
    long long n_heads = cfg->model.n_heads, kv = cfg->model.n_kv_heads;
    if (dim && heads && cfg->model.head_dim == 0 && cfg->model.dim % n_heads != 0)
        FAIL("dim (%lld) must be divisible by n_heads (%lld)", (long long)cfg->model.dim, n_heads);
    if (heads && kv > 0 && config_was_set(cfg, "model.n_kv_heads") && n_heads % kv != 0)
        FAIL("n_heads (%lld) must be divisible by n_kv_heads (%lld)", n_heads, kv);
    if (config_was_set(cfg, "train.seq_len") && config_was_set(cfg, "model.max_seq_len") &&
        cfg->train.seq_len > cfg->model.max_seq_len)
        FAIL("train.seq_len (%lld) exceeds model.max_seq_len (%lld)", (long long)cfg->train.seq_len,
             (long long)cfg->model.max_seq_len);
    return OTT_OK;
}

static ott_status check_eval(const config *cfg) {
    if (!cfg->eval.enabled) return OTT_OK;
    bool source = *cfg->eval.dataset_path || (cfg->eval.holdout > 0.0 && *cfg->data.dataset_path);
    if (!source)
        FAIL("eval.enabled is True but no eval data source is configured. Set eval.dataset_path, or "
             "eval.holdout "
             "beside data.dataset_path.");
    return OTT_OK;
}

static ott_status check_schedule(const config *cfg) {
    long long warmup = cfg->scheduler.warmup_steps, steps = cfg->train.max_steps;
    long long decay = cfg->scheduler.decay_steps,
              stable = cfg->scheduler.stable_steps < 0 ? 0 : cfg->scheduler.stable_steps;
    if (cfg->scheduler.name == SCHEDULER_NONE) return OTT_OK;
    if (cfg->scheduler.name == SCHEDULER_WSD && warmup <= steps && warmup + stable + decay > steps)
        FAIL("scheduler.warmup_steps (%lld), stable_steps (%lld) and decay_steps (%lld) exceed "
             "train.max_steps (%lld)",
             warmup, stable, decay, steps);
    if (warmup > steps)
        log_warning(cfg->book->lg,
                    "scheduler.warmup_steps (%lld) is longer than train.max_steps (%lld): the learning "
                    "rate never reaches optimizer.lr",
                    warmup, steps);
    return OTT_OK;
}

static ott_status check_titan_filter(const config *cfg) {
    for (int64_t i = 0; i < cfg->float8.filter_fqns.count; i++)
        if (strcmp(cfg->float8.filter_fqns.items[i], "auto_filter_small_kn") == 0)
            FAIL("%s: choosing layers by their size is not built yet; name them",
                 book_note(cfg, "float8.filter_fqns")->where);
    return OTT_OK;
}

/* torchao's rule: only one scale per tensor can be gathered or computed ahead. */
static ott_status check_tensorwise(config *cfg, const char *path, bool *on) {
    if (!*on || cfg->float8.recipe_name == RECIPE_TENSORWISE) return OTT_OK;
    if (config_was_set(cfg, path))
        FAIL("%s: %s only supports tensorwise scaling granularity, got %s", book_note(cfg, path)->where,
             path + 7, config_word(cfg, "float8.recipe_name"));
    *on = false;
    return OTT_OK;
}

static ott_status check_float8(config *cfg) {
    if (cfg->train.mixed_precision != PRECISION_FP8) {
        if (config_was_set(cfg, "float8.recipe_name"))
            log_warning(cfg->book->lg, "%s has no effect: train.mixed_precision is %s, not fp8",
                        book_note(cfg, "float8.recipe_name")->where,
                        config_word(cfg, "train.mixed_precision"));
        return OTT_OK;
    }
    TRY(check_titan_filter(cfg));
    TRY(check_tensorwise(cfg, "float8.enable_fsdp_float8_all_gather",
                         &cfg->float8.enable_fsdp_float8_all_gather));
    return check_tensorwise(cfg, "float8.precompute_float8_dynamic_scale_for_fsdp",
                            &cfg->float8.precompute_float8_dynamic_scale_for_fsdp);
}

/* KempnerForge's documented message, word for word; it comes before "tensor parallelism is not built". */
static ott_status check_tensor_parallel(const config *cfg) {
    if (cfg->train.mixed_precision != PRECISION_FP8 || cfg->distributed.tp <= 1 ||
        cfg->float8.tensor_parallel)
        return OTT_OK;
    FAIL("FP8 + Tensor Parallelism is not yet supported (torchao Float8Linear does not compose with DTensor "
         "sharding). Use FP8 with FSDP only, or TP without FP8.");
}

ott_status config_check(config *cfg) {
    TRY(foreign_settle(cfg));
    if (!cfg->checkpoint.enabled) cfg->checkpoint.interval = 0;
    TRY(check_tensor_parallel(cfg));
    TRY(check_built(cfg));
    TRY(check_batches(cfg));
    TRY(check_model(cfg));
    TRY(check_eval(cfg));
    TRY(check_schedule(cfg));
    return check_float8(cfg);
}
