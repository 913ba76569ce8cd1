/* train/save_hf: a Hugging Face folder inside a checkpoint's. */
#include "train/save_hf.h"
#include "base/file.h"
#include "base/staging.h"
#include "checkpoint/hf_save.h"
#include "train/export_tokenizer.h"
#include <inttypes.h>

bool save_hf_wanted(const config *cfg, int64_t step) {
    bool last = step >= cfg->train.max_steps;
    return cfg->checkpoint.save_hf == SAVE_HF_EVERY || (cfg->checkpoint.save_hf == SAVE_HF_FINAL && last);
}

static const ott_dtype dtypes[] = {
    [EXPORT_FLOAT32] = OTT_F32, [EXPORT_BFLOAT16] = OTT_BF16, [EXPORT_FLOAT16] = OTT_F16};

static ott_status write_folder(model *m, const logger *log, const config *cfg, const char *folder,
                               hf_save_summary *sum) {
    const char *original = cfg->model.hf_path;
    const hf_save_options options = {.original = file_is_folder(original) ? original : NULL,
                                     .dtype = dtypes[cfg->checkpoint.export_dtype],
                                     .log = log};
    int64_t copied;
    TRY(hf_model_save(m, &options, folder, sum));
    return export_tokenizer(m->device->account, cfg, folder, &copied);
}

/* In the place of one of a run that did these steps before. */
static ott_status write_staged(model *m, const logger *log, const config *cfg, const char *goal) {
    staging s;
    hf_save_summary sum;
    TRY(staging_open(m->device->account, goal, &s));
    TRY(staging_end(&s, write_folder(m, log, cfg, s.path.text, &sum)));
    log_info(log, "Saved %s (%s, %s)", goal, sum.family, dtype_name(dtypes[cfg->checkpoint.export_dtype]));
    return OTT_OK;
}

ott_status save_hf(model *m, const logger *log, const config *cfg, const char *checkpoints, int64_t step) {
    str goal = {.account = m->device->account};
    str_printf(&goal, "%s/step-%" PRId64 "/hf", checkpoints, step);
    ott_status status = str_finish(&goal);
    if (status == OTT_OK) status = write_staged(m, log, cfg, goal.text);
    str_free(&goal);
    return status_context(status, "checkpoint.save_hf");
}
