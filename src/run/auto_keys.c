/* run/auto_keys: chooses the values of keys that depend on the date or the machine. */
#include "run/auto_keys.h"
#include "backend/backend.h"
#include "data/data.h"
#include "tokenizer/chat.h"
#include "run/resume.h"
#include <limits.h>
#include <stdio.h>

enum { CHAT_DATE, FP8_SUM, BF16_SUM, KEYS, VALUE_BYTES = 16 };

static const char *const keys[KEYS] = {"data.chat_date", "float8.accumulate", "train.bf16_accumulate"};

/* The value chosen for each key; "": the key is not changed. */
typedef struct choice {
    char value[KEYS][VALUE_BYTES];
} choice;

/* True if data.chat_date is not set and a chat template may read it. */
static bool needs_date(const config *cfg) {
    char path[PATH_MAX];
    bool may_chat = cfg->data.format == DATA_CHAT || cfg->data.format == DATA_AUTO;
    data_tokenizer_path(cfg, path);
    return may_chat && *path && !*cfg->data.chat_date;
}

static bool is_key_auto(const config *cfg, const char *key) {
    return strcmp(config_word(cfg, key), "auto") == 0;
}

static ott_status choose_values(mem *account, const device *d, const config *cfg, choice *out) {
    config *before = NULL;
    bool chooses[KEYS] = {needs_date(cfg), is_key_auto(cfg, keys[FP8_SUM]), is_key_auto(cfg, keys[BF16_SUM])};
    if (chooses[CHAT_DATE] || chooses[FP8_SUM] || chooses[BF16_SUM])
        TRY(resume_config(account, cfg, &before));
    /* Runs of old versions lack data.chat_date. */
    if (chooses[CHAT_DATE] && before)
        snprintf(out->value[CHAT_DATE], VALUE_BYTES, "%s",
                 config_was_set(before, keys[CHAT_DATE]) ? before->data.chat_date : "undefined");
    else if (chooses[CHAT_DATE])
        chat_today(out->value[CHAT_DATE]);
    for (int i = FP8_SUM; i <= BF16_SUM; i++)
        if (chooses[i])
            snprintf(out->value[i], VALUE_BYTES, "%s",
                     before && !is_key_auto(before, keys[i]) ? config_word(before, keys[i])
                     : backend_has_tiles(d)                  ? "tile32"
                                                             : "fp32");
    config_close(before);
    return OTT_OK;
}

ott_status auto_keys_choose(mem *account, process_group *pg, const device *d, config *cfg) {
    choice c = {.value = {""}};
    if (process_group_is_leader(pg)) TRY(choose_values(account, d, cfg, &c));
    if (pg->size > 1) TRY(process_group_broadcast(pg, &c, sizeof c));
    for (int i = 0; i < KEYS; i++)
        if (*c.value[i]) TRY(config_set(cfg, keys[i], c.value[i]));
    return OTT_OK;
}
