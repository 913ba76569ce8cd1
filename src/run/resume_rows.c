/* run/resume_rows: keeps the global batch of a resumed run and counts the steps of its epochs. */
#include "run/resume.h"
#include "data/data.h"

/* True if the user has changed the global batch since the checkpoint was saved. */
static bool asks_otherwise(const config *before, const config *now) {
    return now->train.batch_size != before->train.batch_size ||
           now->train.global_batch_size != before->train.global_batch_size ||
           (config_was_set(now, "train.grad_accum_steps") &&
            now->train.grad_accum_steps != before->train.grad_accum_steps);
}

static void keep_batch(const logger *log, const config *before, config *cfg, int64_t rows) {
    int64_t now = config_step_rows(cfg), each = now / cfg->train.grad_accum_steps, pp = cfg->distributed.pp;
    bool interleaved = pp > 1 && cfg->distributed.pp_schedule == PP_INTERLEAVED_1F1B;
    if (rows == 0 || now == rows) return;
    if (asks_otherwise(before, cfg)) {
        log_info(log, "A step has %lld rows from now on, as configured; earlier steps had %lld",
                 (long long)now, (long long)rows);
        return;
    }
    if (rows % each != 0 || (interleaved && rows / each % pp != 0)) {
        log_warning(log,
                    "A step has %lld rows from now on; earlier steps had %lld: %lld data-parallel ranks with "
                    "train.batch_size = %lld do not divide %lld. Resume on a number of ranks that does, "
                    "or change train.batch_size",
                    (long long)now, (long long)rows, (long long)(each / cfg->train.batch_size),
                    (long long)cfg->train.batch_size, (long long)rows);
        return;
    }
    cfg->train.grad_accum_steps = rows / each;
    log_info(log, "A step has %lld rows as before, with train.grad_accum_steps = %lld", (long long)rows,
             (long long)cfg->train.grad_accum_steps);
}

/* True if train.max_steps is a limit that the user set, not a number computed from train.num_epochs. */
static bool is_limit(const config *before, const config *now, const resume_point *p, const dataset *train) {
    int64_t epochs = before->train.num_epochs, rows = dataset_rows(train);
    if (!config_was_set(now, "train.max_steps")) return false;
    if (now->train.max_steps != before->train.max_steps || p->step_rows == 0 || epochs == 0) return true;
    if (epochs > INT64_MAX / rows || p->rows > epochs * rows) return true;
    return before->train.max_steps != p->step + (epochs * rows - p->rows) / p->step_rows;
}

ott_status resume_fit_rows(const logger *log, mem *account, config *cfg, const resume_point *p,
                           const dataset *train) {
    config *before = NULL;
    bool limit = config_was_set(cfg, "train.max_steps");
    if (p->checkpoint) {
        TRY(checkpoint_config(account, p->checkpoint, &before));
        limit = is_limit(before, cfg, p, train);
        keep_batch(log, before, cfg, p->step_rows);
        config_close(before);
    }
    return data_count_epochs(log, cfg, train, p->step, p->rows, limit);
}
