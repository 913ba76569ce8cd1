/* train/resume: finding a run's start, loading it, and comparing the configuration then and now. */
#include "train/resume.h"
#include <string.h>

ott_status resume_find(mem *account, const config *cfg, const char *folder, char **path, int64_t *step) {
    run_state state;
    *path = NULL;
    *step = 0;
    if (!cfg->checkpoint.load_path[0]) return OTT_OK;
    TRY(checkpoint_find(account, cfg->checkpoint.load_path, folder, path));
    TRY(checkpoint_peek(account, *path, &state));
    *step = state.step;
    return OTT_OK;
}

/* ---- what differs ---- */

/* The configuration before a stop and after it. */
typedef struct comparison {
    const logger *log;
    const config *before, *now;
} comparison;

/* FP8's keys say nothing of a run in another precision, and these two follow from the recipe. */
static bool is_float8_incidental(const comparison *c, const char *key) {
    if (c->now->train.mixed_precision != PRECISION_FP8 || c->before->train.mixed_precision != PRECISION_FP8)
        return true;
    return c->now->float8.recipe_name != c->before->float8.recipe_name &&
           (strcmp(key, "float8.enable_fsdp_float8_all_gather") == 0 ||
            strcmp(key, "float8.precompute_float8_dynamic_scale_for_fsdp") == 0);
}

static void say_what_differs(void *user, const char *key, const char *before, const char *now) {
    const comparison *c = user;
    static const char *const incidental[] = {"run.",       "checkpoint.",     "metrics.",
                                             "profiling.", "train.max_steps", "train.threads"};
    for (size_t i = 0; i < sizeof incidental / sizeof *incidental; i++)
        if (str_starts_with(key, incidental[i])) return;
    if (str_starts_with(key, "float8.") && is_float8_incidental(c, key)) return;
    log_info(c->log, "Changed on resume: %s = %s (was %s)", key, now, before);
}

static ott_status report_changes(const logger *log, mem *account, const config *now, const char *path) {
    config *before = NULL;
    ott_status status = checkpoint_config(account, path, &before);
    if (status == OTT_OK)
        status = config_differences(before, now, say_what_differs,
                                    &(comparison){.log = log, .before = before, .now = now});
    config_close(before);
    return status;
}

/* ---- loading ---- */

ott_status resume_load(trainer *t, const config *cfg, const char *path) {
    if (!path) return OTT_OK;
    TRY(trainer_load(t, path));
    TRY(report_changes(t->log, t->account, cfg, path));
    log_info(t->log, "Resumed from %s at step %lld", path, (long long)t->run.step);
    return OTT_OK;
}
