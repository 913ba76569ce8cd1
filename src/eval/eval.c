/* eval/eval: opens the models and the device, and runs a task. */
#include "eval/eval.h"
#include "backend/backend.h"
#include "base/clock.h"

static ott_eval_result empty_result(void) {
    return (ott_eval_result){.struct_size = sizeof(ott_eval_result),
                             .loss = NAN,
                             .perplexity = NAN,
                             .bits_per_byte = NAN,
                             .acc = NAN,
                             .acc_stderr = NAN,
                             .acc_norm = NAN,
                             .acc_norm_stderr = NAN,
                             .acc_llmc = NAN,
                             .acc_llmc_stderr = NAN,
                             .kl_max = NAN,
                             .kl_mean = NAN,
                             .cosine = NAN,
                             .agreement = NAN,
                             .passed = 1};
}

static ott_status run_task(eval_job *j) {
    ott_status status = OTT_OK;
    j->started = clock_seconds();
    switch (j->options->task) {
    case OTT_EVAL_HELLASWAG: status = eval_hellaswag(j); break;
    case OTT_EVAL_PERPLEXITY: status = eval_perplexity(j); break;
    case OTT_EVAL_COMPARE: status = eval_compare(j); break;
    }
    const int64_t *gemms = j->model->cx.gemms[GEMM_OUTPUT];
    j->result->gemms = gemms[0] + gemms[1];
    j->result->fp8_gemms = gemms[1];
    j->result->seconds = clock_seconds() - j->started;
    return status;
}

/* Reads both models. `against` gets the model's context length, so that both have the same windows. */
static ott_status read_models(eval_job *j, const char *path) {
    const ott_eval_options *o = j->options;
    TRY(eval_model_read(j->account, j->log,
                        &(eval_source){.path = path,
                                       .base = o->base,
                                       .precision = o->precision,
                                       .filter = o->filter,
                                       .filter_count = o->filter_count,
                                       .tokenizer = o->tokenizer,
                                       .seq_len = o->seq_len,
                                       .settings = o->settings,
                                       .setting_count = o->setting_count},
                        j->model));
    if (o->task != OTT_EVAL_COMPARE) return OTT_OK;
    return eval_model_read(j->account, j->log,
                           &(eval_source){.path = o->against,
                                          .precision = o->against_precision,
                                          .tokenizer = o->tokenizer,
                                          .seq_len = j->model->window},
                           j->against);
}

static bool emulates(const eval_model *e) {
    return e->cfg && e->cfg->float8.emulate;
}

static ott_status open_models(eval_job *j, device **d) {
    const backend_choice choice = {.name = j->options->device,
                                   .threads = j->options->threads,
                                   .recipe = j->model->inference.convert.recipe,
                                   .second_recipe = j->against->inference.convert.recipe,
                                   .emulates = emulates(j->model) || emulates(j->against),
                                   .log = j->log};
    TRY(backend_open(&choice, j->account, d));
    TRY(eval_model_open(*d, j->model));
    return j->against->cfg ? eval_model_open(*d, j->against) : OTT_OK;
}

ott_status eval_run(mem *account, const logger *log, const char *path, const ott_eval_options *o,
                    const eval_hooks *hooks, ott_eval_result *out) {
    eval_model own = {0}, other = {0};
    ott_eval_result result = empty_result();
    eval_job j = {.account = account,
                  .log = log,
                  .options = o,
                  .hooks = hooks,
                  .model = &own,
                  .against = &other,
                  .result = &result};
    device *d = NULL;
    ott_status status;
    TRY_OUT(read_models(&j, path));
    TRY_OUT(open_models(&j, &d));
    TRY_OUT(run_task(&j));
    *out = result;
out:
    eval_model_close(&other);
    eval_model_close(&own);
    device_close(d);
    return status;
}
