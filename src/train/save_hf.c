/* train/save_hf: written aside in the checkpoint's folder, then renamed. */
#define _GNU_SOURCE /* getpid */
#include "train/save_hf.h"
#include "base/file.h"
#include "checkpoint/hf_save.h"
#include "train/export_tokenizer.h"
#include <inttypes.h>
#include <unistd.h>

bool save_hf_wanted(const config *cfg, int64_t step) {
    bool last = step >= cfg->train.max_steps;
    return cfg->checkpoint.save_hf == SAVE_HF_EVERY || (cfg->checkpoint.save_hf == SAVE_HF_FINAL && last);
}

static ott_status write_aside(model *m, const logger *log, const config *cfg, const char *aside,
                              const char *goal) {
    static const ott_dtype dtypes[] = {
        [EXPORT_FLOAT32] = OTT_F32, [EXPORT_BFLOAT16] = OTT_BF16, [EXPORT_FLOAT16] = OTT_F16};
    const char *original = cfg->model.hf_path;
    hf_save_summary sum;
    const hf_save_options options = {.original = file_is_folder(original) ? original : NULL,
                                     .dtype = dtypes[cfg->checkpoint.export_dtype],
                                     .log = log};
    int64_t copied;
    TRY(hf_model_save(m, &options, aside, &sum));
    TRY(export_tokenizer(m->device->account, cfg, aside, &copied));
    TRY(file_sync_folder(aside));
    TRY(file_remove_tree(goal)); /* of a run that did these steps before */
    TRY(file_rename(aside, goal));
    log_info(log, "Saved %s (%s, %s)", goal, sum.family, dtype_name(options.dtype));
    return OTT_OK;
}

ott_status save_hf(model *m, const logger *log, const config *cfg, const char *checkpoints, int64_t step) {
    str aside = {.account = m->device->account}, goal = {.account = m->device->account};
    str_printf(&goal, "%s/step-%" PRId64 "/hf", checkpoints, step);
    str_printf(&aside, "%s/step-%" PRId64 "/hf.tmp-%ld", checkpoints, step, (long)getpid());
    ott_status status = str_finish(aside.failed ? &aside : &goal);
    if (status == OTT_OK) status = file_remove_tree(aside.text);
    if (status == OTT_OK) status = write_aside(m, log, cfg, aside.text, goal.text);
    if (status != OTT_OK) status_context(status, "checkpoint.save_hf");
    if (status != OTT_OK && aside.text) {
        str reason = {.account = m->device->account};
        str_append(&reason, status_text()); /* removing may fail too */
        file_remove_tree(aside.text);
        if (!reason.failed) status_fail(status, "%s", reason.text);
        str_free(&reason);
    }
    str_free(&aside);
    str_free(&goal);
    return status;
}
