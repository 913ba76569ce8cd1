/* run/save_hf: writes a Hugging Face folder inside a checkpoint's folder. */
#include "run/save_hf.h"
#include "base/file/file.h"
#include "folders/hf/save.h"
#include "folders/peft.h"
#include "folders/ranks.h"
#include "formats/hf/folder.h"
#include "run/export_tokenizer.h"
#include <inttypes.h>

bool save_hf_is_requested(const config *cfg, int64_t step) {
    bool last = step >= cfg->train.max_steps;
    return cfg->checkpoint.save_hf == SAVE_HF_EVERY || (cfg->checkpoint.save_hf == SAVE_HF_FINAL && last);
}

static const ott_dtype dtypes[] = {
    [EXPORT_FLOAT32] = OTT_F32, [EXPORT_BFLOAT16] = OTT_BF16, [EXPORT_FLOAT16] = OTT_F16};

/* Data that the ranks need to write the folder together. */
typedef struct writing {
    model *m;
    const logger *log;
    const config *cfg;
    checkpoint_ranks ranks;
    hf_save_summary sum;
} writing;

static ott_status write_folder(void *user, const char *folder) {
    writing *w = user;
    const char *original = w->cfg->model.hf_path;
    const hf_save_options options = {.original = hf_folder_is_model(original) ? original : NULL,
                                     .dtype = dtypes[w->cfg->checkpoint.export_dtype],
                                     .log = w->log,
                                     .ranks = w->ranks.group};
    int64_t copied;
    if (w->cfg->peft.enabled) return peft_save(w->m, w->cfg, w->ranks.group, folder);
    TRY(hf_model_save(w->m, &options, folder, &w->sum));
    if (ranks_own_rank(&w->ranks) > 0) return OTT_OK;
    return export_tokenizer(w->m->device->account, w->cfg, NULL, folder, &copied);
}

ott_status save_hf(model *m, const logger *log, const config *cfg, group *ranks, const char *checkpoints,
                   int64_t step) {
    writing w = {.m = m, .log = log, .cfg = cfg, .ranks = {ranks, m->device}};
    char goal[PATH_MAX];
    ott_status status = file_path(goal, "%s/step-%" PRId64 "/hf", checkpoints, step);
    /* Replaces hf/ if an earlier process wrote it at this step. */
    if (status == OTT_OK) status = ranks_write_folder(&w.ranks, OTT_OK, goal, write_folder, &w);
    if (status != OTT_OK) return status_context(status, "checkpoint.save_hf");
    if (cfg->peft.enabled)
        log_info(log, "Saved %s (adapters)", goal);
    else
        log_info(log, "Saved %s (%s, %s)", goal, w.sum.family,
                 dtype_name(dtypes[cfg->checkpoint.export_dtype]));
    return OTT_OK;
}
