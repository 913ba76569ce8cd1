/* api/eval: evaluates a model. */
#include "backend/backend.h"
#include "eval/eval.h"
#include "api/handle.h"
#include "base/pool.h"

void(ott_eval_options_init)(ott_eval_options *options, size_t size) {
    API_INIT(options, size, .text_field = "text",
             .hellaswag_forms = OTT_HELLASWAG_LM_EVAL | OTT_HELLASWAG_LLMC, .kl_max = 1e-2, .kl_mean = 3e-3,
             .cosine = 0.999);
}

void(ott_eval_result_init)(ott_eval_result *result, size_t size) {
    API_INIT(result, size, 0);
}

static ott_status check_numbers(const ott_eval_options *o) {
    TRY(pool_check_threads(o->threads));
    if (o->limit < 0)
        return status_fail(OTT_ERR_ARGUMENT, "limit = %lld: give 0 (all) or more", (long long)o->limit);
    if (o->seq_len < 0)
        return status_fail(OTT_ERR_ARGUMENT, "seq_len = %lld: give 0 (the model's own) or more",
                           (long long)o->seq_len);
    if (!(o->kl_max >= 0) || !(o->kl_mean >= 0) || !(o->cosine <= 1))
        return status_fail(OTT_ERR_ARGUMENT,
                           "kl_max = %g, kl_mean = %g, cosine = %g: give 0 or more, 0 or more, "
                           "at most 1",
                           o->kl_max, o->kl_mean, o->cosine);
    return OTT_OK;
}

static ott_status check_task(const ott_eval_options *o) {
    int all = OTT_HELLASWAG_LM_EVAL | OTT_HELLASWAG_LLMC;
    if (o->task != OTT_EVAL_PERPLEXITY && o->task != OTT_EVAL_HELLASWAG && o->task != OTT_EVAL_COMPARE)
        return status_fail(OTT_ERR_ARGUMENT,
                           "task = %d: give OTT_EVAL_HELLASWAG, OTT_EVAL_PERPLEXITY or OTT_EVAL_COMPARE",
                           (int)o->task);
    if (o->task == OTT_EVAL_COMPARE && (!o->against || !*o->against))
        return status_fail(OTT_ERR_ARGUMENT, "against is missing: name the model to compare with");
    if (o->task != OTT_EVAL_COMPARE && (o->against || o->against_precision))
        return status_fail(OTT_ERR_ARGUMENT, "against is only for the task OTT_EVAL_COMPARE");
    if (o->hellaswag_forms < 1 || (o->hellaswag_forms & ~all))
        return status_fail(OTT_ERR_ARGUMENT,
                           "hellaswag_forms = %d: give OTT_HELLASWAG_LM_EVAL, "
                           "OTT_HELLASWAG_LLMC, or both",
                           o->hellaswag_forms);
    return OTT_OK;
}

static ott_status check_logits(const ott_eval_options *o) {
    if (!o->logits) return OTT_OK;
    if (!*o->logits) return status_fail(OTT_ERR_ARGUMENT, "logits is empty: name a file");
    if (o->task == OTT_EVAL_PERPLEXITY) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "only the task perplexity writes logits: leave out --logits (logits "
                                         "in ott_eval_options), or choose that task");
}

static ott_status run_evaluation(ott_context *context, const char *path, const ott_eval_options *o,
                                 ott_eval_result *result) {
    const eval_hooks hooks = {.stop = api_must_stop, .user = context};
    ott_eval_result own;
    ott_status status = eval_run(context->account, &context->log, path, o, &hooks, &own);
    atomic_store(&context->stop, false); /* ott_stop affects only one call */
    return status == OTT_OK ? api_write_struct(result, &own, sizeof own, "ott_eval_result") : status;
}

ott_status ott_eval(ott_context *context, const char *path, const ott_eval_options *options,
                    ott_eval_result *result) {
    ott_eval_options o;
    API_REQUIRE_BOTH(context, path);
    API_REQUIRE_BOTH(options, result);
    ott_eval_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_eval_options"));
    TRY(check_task(&o));
    TRY(check_numbers(&o));
    if (o.filter_count < 0 || (o.filter_count > 0 && !o.filter))
        return status_fail(OTT_ERR_ARGUMENT, "filter_count = %d: give the number of names in filter",
                           o.filter_count);
    for (int i = 0; i < o.filter_count; i++)
        if (!o.filter[i] || !*o.filter[i])
            return status_fail(OTT_ERR_ARGUMENT, "filter[%d] is empty: give a part of a layer's name", i);
    TRY(api_check_settings(o.settings, o.setting_count));
    TRY(check_logits(&o));
    TRY(backend_check_name(o.device));
    if (!o.data || !*o.data) return status_fail(OTT_ERR_ARGUMENT, "data is missing: name a file");
    if (!o.text_field || !*o.text_field)
        return status_fail(OTT_ERR_ARGUMENT, "text_field is empty: name a field of the rows");
    TRY(api_check_struct(result, "ott_eval_result"));
    return API_INSIDE(context, run_evaluation(context, path, &o, result));
}
