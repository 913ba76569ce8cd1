/* eval/eval: from a request to its result. */
#include "eval/eval.h"
#include "backend/backend.h"
#include "base/clock.h"
#include <math.h>

static ott_eval_result nothing(void) {
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

/* The other model looks back as far as the first: both see the same windows. */
static ott_status open_against(eval_job *j, device *d) {
    const ott_eval_options *o = j->options;
    eval_source s = {.path = o->against,
                     .precision = o->against_precision,
                     .tokenizer = o->tokenizer,
                     .seq_len = j->model->window};
    if (o->task != OTT_EVAL_COMPARE) return OTT_OK;
    return eval_model_open(j->account, j->log, d, &s, j->against);
}

ott_status eval_run(mem *account, const logger *log, const char *path, const ott_eval_options *o,
                    const eval_hooks *hooks, ott_eval_result *out) {
    eval_model own = {0}, other = {0};
    ott_eval_result result = nothing();
    eval_job j = {.account = account,
                  .log = log,
                  .options = o,
                  .hooks = hooks,
                  .model = &own,
                  .against = &other,
                  .result = &result};
    const eval_source s = {.path = path,
                           .precision = o->precision,
                           .filter = o->filter,
                           .filter_count = o->filter_count,
                           .tokenizer = o->tokenizer,
                           .seq_len = o->seq_len};
    device *d;
    ott_status status;
    TRY(backend_open(&(backend_choice){.name = o->device, .threads = o->threads, .log = log}, account, &d));
    TRY_OUT(eval_model_open(account, log, d, &s, &own));
    TRY_OUT(open_against(&j, d));
    TRY_OUT(run_task(&j));
    *out = result;
out:
    eval_model_close(&other);
    eval_model_close(&own);
    device_close(d);
    return status;
}
