/* train/auto_keys: chooses the values of keys that depend on the date or the machine. */
#include "train/auto_keys.h"
#include "backend/backend.h"
#include "data/data.h"
#include "tokenizer/chat.h"
#include "train/resume.h"
#include <limits.h>
#include <stdio.h>

typedef struct choice {
    char chat_date[16]; /* chosen date; "": data.chat_date stays as it is */
    char fp8_sum[16], bf16_sum[16];
} choice;

/* True if data.chat_date is not set and a chat template may read it. */
static bool needs_date(const config *cfg) {
    char path[PATH_MAX];
    bool may_chat = cfg->data.format == DATA_CHAT || cfg->data.format == DATA_AUTO;
    data_tokenizer_path(cfg, path);
    return may_chat && *path && !*cfg->data.chat_date;
}

/* Chooses the date. before: configuration of the resumed run, or NULL. Older runs have no data.chat_date. */
static void choose_date(const config *before, char out[16]) {
    if (!before)
        chat_today(out);
    else
        snprintf(out, 16, "%s",
                 config_was_set(before, "data.chat_date") ? before->data.chat_date : "undefined");
}

static void choose_sum(const config *before, const config *cfg, const device *d, const char *key,
                       char out[16]) {
    const char *word = config_word(cfg, key);
    if (strcmp(word, "auto") == 0 && before) word = config_word(before, key);
    if (strcmp(word, "auto") == 0) word = backend_has_tiles(d) ? "tile32" : "fp32";
    snprintf(out, 16, "%s", word);
}

static ott_status choose_all(mem *account, const device *d, const config *cfg, choice *out) {
    config *before = NULL;
    bool has_auto = cfg->float8.accumulate == SUM_AUTO || cfg->train.bf16_accumulate == BF16_SUM_AUTO;
    if (has_auto || needs_date(cfg)) TRY(resume_config(account, cfg, &before));
    if (needs_date(cfg)) choose_date(before, out->chat_date);
    choose_sum(before, cfg, d, "float8.accumulate", out->fp8_sum);
    choose_sum(before, cfg, d, "train.bf16_accumulate", out->bf16_sum);
    config_close(before);
    return OTT_OK;
}

ott_status auto_keys_choose(mem *account, process_group *pg, const device *d, config *cfg) {
    choice c = {.chat_date = ""};
    if (process_group_is_leader(pg)) TRY(choose_all(account, d, cfg, &c));
    if (pg->size > 1) TRY(process_group_broadcast(pg, &c, sizeof c));
    if (*c.chat_date) TRY(config_set(cfg, "data.chat_date", c.chat_date));
    if (cfg->float8.accumulate == SUM_AUTO) TRY(config_set(cfg, "float8.accumulate", c.fp8_sum));
    if (cfg->train.bf16_accumulate != BF16_SUM_AUTO) return OTT_OK;
    return config_set(cfg, "train.bf16_accumulate", c.bf16_sum);
}
