/* monitor/progress: writes step lines, metrics and TensorBoard scalars. */
#include "monitor/progress.h"
#include "base/clock.h"
#include "base/file/file.h"
#include "base/text/str.h"
#include <sys/resource.h>

#define GIB 1073741824.0

int64_t progress_peak_resident(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static void raise_peak(progress *p, double flops) {
    if (p->measured && flops > p->peak_flops) p->peak_flops = flops;
}

void progress_measure_peak(progress *p, device *d, ott_dtype format) {
    enum { MEASUREMENTS = 8 };
    if (d->threads == 0) {
        p->peak_flops = device_peak(d, OTT_BF16);
        return;
    }
    p->measured = d;
    p->peak_format = format;
    p->peaks_to_measure = MEASUREMENTS - 1;
    raise_peak(p, device_peak(d, format));
}

void progress_begin_step(progress *p, const trainer *t) {
    if (p->peaks_to_measure > 0) {
        p->peaks_to_measure--;
        raise_peak(p, device_peak(p->measured, p->peak_format));
    }
    trainer_gemms(t, &p->fp8_before, &p->gemms_before);
    p->step_started = clock_seconds();
}

double progress_tokens_per_second(const progress *p) {
    return p->run_seconds > 0 ? (double)p->run_tokens / p->run_seconds : 0;
}

/* Values of a step that all outputs get. In step lines, rates are averages since the previous line. */
typedef struct reading {
    int64_t step, epoch;
    double loss, z_loss, grad_norm, learning_rate, seconds, memory;
    balance_figures balance;
    double tokens_per_second;            /* tokens per second, summed over all ranks */
    double per_rank, tflops, mfu;        /* values of one rank; per_rank is torchtitan's tps */
    int64_t tokens, labels, tokens_seen; /* tokens, labels: of this step; tokens_seen: since step 0 */
} reading;

static void set_rates(progress *p, reading *r, int64_t tokens, double seconds) {
    r->tokens_per_second = seconds > 0 ? (double)tokens / seconds : 0;
    r->per_rank = r->tokens_per_second / (double)(p->ranks > 0 ? p->ranks : 1);
    raise_peak(p, r->per_rank * p->flops_per_token);
    r->tflops = r->per_rank * p->flops_per_token / 1e12;
    r->mfu = p->peak_flops > 0 ? r->per_rank * p->flops_per_token / p->peak_flops : 0;
}

/* ---- step lines ---- */

static void step_line(progress *p, reading *r) {
    char tps[32];
    set_rates(p, r, p->window_tokens, p->window_seconds);
    p->window_seconds = 0;
    p->window_tokens = 0;
    switch (p->style) {
    case LOG_STYLE_TITAN:
        log_info(p->log,
                 "step: %2lld  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB(%.2f%%)  tps: %s  tflops: "
                 "%.2f  mfu: %.2f%%",
                 (long long)r->step, r->loss, r->grad_norm, r->memory / GIB,
                 100 * r->memory / p->memory_total, str_commas((int64_t)(r->per_rank + 0.5), tps), r->tflops,
                 100 * r->mfu);
        break;
    case LOG_STYLE_KEMPNER:
        log_info(p->log,
                 "[step %lld] loss=%.4f | lr=%.2e | grad_norm=%.3f | tok/s=%s | mfu=%.1f%% | mem=%.1f/%.0fGB "
                 "| step_time=%.2fs",
                 (long long)r->step, r->loss, r->learning_rate, r->grad_norm,
                 str_commas((int64_t)(r->tokens_per_second + 0.5), tps), 100 * r->mfu, r->memory / 1e9,
                 p->memory_total / 1e9, r->seconds);
        break;
    case LOG_STYLE_AUTOMODEL:
        log_info(p->log,
                 "step %lld | epoch %lld | loss %.4f | grad_norm %.4f | lr %.2e | mem %.2f GiB | tps "
                 "%.2f(%.2f/gpu) | num_label_tokens %lld",
                 (long long)r->step, (long long)r->epoch, r->loss, r->grad_norm, r->learning_rate,
                 r->memory / GIB, r->tokens_per_second, r->per_rank, (long long)r->labels);
        break;
    }
}

static ott_status write_metrics(const progress *p, const trainer *t, const reading *r) {
    int64_t fp8, all;
    trainer_gemms(t, &fp8, &all);
    metrics_value values[24] = {
        metrics_int("epoch", r->epoch),
        metrics_real("timestamp", clock_wall()),
        metrics_real("loss", r->loss),
        metrics_real("grad_norm", r->grad_norm),
        metrics_real("lr", r->learning_rate),
        metrics_real("mem", r->memory / GIB),
        metrics_real("tps", r->tokens_per_second),
        metrics_real("tps_per_gpu", r->per_rank),
        metrics_real("tflops", r->tflops),
        metrics_real("mfu", r->mfu),
        metrics_int("num_tokens_per_step", r->tokens),
        metrics_int("num_label_tokens", r->labels),
        metrics_int("fp8_gemms", fp8 - p->fp8_before),
        metrics_int("gemms", all - p->gemms_before),
    };
    int count = 14;
    if (p->style == LOG_STYLE_KEMPNER) {
        values[count++] = metrics_real("train/loss", r->loss);
        values[count++] = metrics_real("train/grad_norm", r->grad_norm);
        values[count++] = metrics_real("train/lr", r->learning_rate);
        values[count++] = metrics_real("train/tokens_per_sec", r->tokens_per_second);
        values[count++] = metrics_real("train/mfu", r->mfu);
        values[count++] = metrics_real("train/step_time_sec", r->seconds);
    }
    if (t->options.z_weight > 0) values[count++] = metrics_real("train/z_loss", r->z_loss);
    if (t->m->balance.layers > 0) {
        values[count++] = metrics_real("moe/aux_loss", r->balance.loss);
        values[count++] = metrics_real("moe/router_z_loss", r->balance.z_loss);
        values[count++] = metrics_real("moe/unevenness", r->balance.unevenness);
    }
    return metrics_write(p->metrics, r->step, values, count);
}

/* ---- TensorBoard ---- */

ott_status progress_open_tensorboard(progress *p, const char *run_folder, const char *folder,
                                     int64_t first_step) {
    char *path = NULL;
    tensorboard_close(p->tensorboard);
    p->tensorboard = NULL;
    ott_status status = file_resolve(p->account, run_folder, folder, &path);
    if (status == OTT_OK) status = tensorboard_open(p->account, path, first_step, &p->tensorboard);
    mem_free(p->account, path);
    return status_context(status, "metrics.tensorboard_dir");
}

typedef struct scalar {
    const char *tag;
    double value;
} scalar;

/* Writes the scalars of one step and flushes them. */
static ott_status write_scalars(const progress *p, int64_t step, const scalar *scalars, size_t count) {
    for (size_t i = 0; i < count; i++)
        TRY(tensorboard_scalar(p->tensorboard, step, scalars[i].tag, (float)scalars[i].value));
    return tensorboard_flush(p->tensorboard);
}

#define WRITE_SCALARS(p, step, scalars) write_scalars(p, step, scalars, sizeof(scalars) / sizeof *(scalars))

/* Writes the tags of the program that metrics.log_style names. The trainer has only the mean loss of all
   ranks, which is therefore also written as global_max_loss. AutoModel writes no TensorBoard files, so its
   tags are the keys of its metrics. */
static ott_status write_step_scalars(const progress *p, const reading *r) {
    if (!p->tensorboard) return OTT_OK;
    const scalar titan[] = {
        {"loss_metrics/global_avg_loss", r->loss},
        {"loss_metrics/global_max_loss", r->loss},
        {"grad_norm", r->grad_norm},
        {"lr", r->learning_rate},
        {"n_tokens_seen", (double)r->tokens_seen},
        {"throughput(tps)", r->per_rank},
        {"tflops", r->tflops},
        {"mfu(%)", 100 * r->mfu},
        {"time_metrics/end_to_end(s)", r->seconds},
        {"memory/max_reserved(GiB)", r->memory / GIB},
        {"memory/max_reserved(%)", 100 * r->memory / p->memory_total},
    };
    const scalar kempner[] = {
        {"train/loss", r->loss},        {"train/grad_norm", r->grad_norm},
        {"train/lr", r->learning_rate}, {"train/tokens_per_sec", r->tokens_per_second},
        {"train/mfu", r->mfu},          {"train/step_time_sec", r->seconds},
    };
    const scalar automodel[] = {
        {"loss", r->loss},
        {"grad_norm", r->grad_norm},
        {"lr", r->learning_rate},
        {"mem", r->memory / GIB},
        {"tps", r->tokens_per_second},
        {"tps_per_gpu", r->per_rank},
        {"num_tokens_per_step", (double)r->tokens},
        {"num_label_tokens", (double)r->labels},
    };
    switch (p->style) {
    case LOG_STYLE_KEMPNER: return WRITE_SCALARS(p, r->step, kempner);
    case LOG_STYLE_AUTOMODEL: return WRITE_SCALARS(p, r->step, automodel);
    default: return WRITE_SCALARS(p, r->step, titan);
    }
}

static ott_status write_validation_scalars(const progress *p, int64_t step, double loss, double perplexity,
                                           double tokens_per_second) {
    const scalar titan[] = {{"validation_metrics/loss", loss},
                            {"validation_metrics/throughput(tps)", tokens_per_second}};
    const scalar kempner[] = {{"eval/loss", loss}, {"eval/perplexity", perplexity}};
    const scalar automodel[] = {{"val_loss", loss}};
    if (!p->tensorboard) return OTT_OK;
    switch (p->style) {
    case LOG_STYLE_KEMPNER: return WRITE_SCALARS(p, step, kempner);
    case LOG_STYLE_AUTOMODEL: return WRITE_SCALARS(p, step, automodel);
    default: return WRITE_SCALARS(p, step, titan);
    }
}

void progress_close(progress *p) {
    tensorboard_close(p->tensorboard);
    metrics_close(p->metrics);
    p->tensorboard = NULL;
    p->metrics = NULL;
}

/* ---- steps ---- */

/* Counts new GEMMs in the run history, in the phase of the current recipe; returns this phase. */
static report_phase *count_gemms(progress *p, const trainer *t) {
    int64_t fp8, all;
    report_phase *part = run_history_phase(&p->history, t->recipe->name);
    trainer_gemms(t, &fp8, &all);
    part->gemms += all - p->gemms_counted;
    part->fp8_gemms += fp8 - p->fp8_counted;
    p->gemms_counted = all;
    p->fp8_counted = fp8;
    return part;
}

static void add_to_history(progress *p, const trainer *t, const reading *r) {
    report_phase *part = count_gemms(p, t);
    part->steps++;
    part->tokens += r->tokens;
    part->seconds += r->seconds;
    p->window_seconds += r->seconds;
    p->window_tokens += r->tokens;
    p->run_seconds += r->seconds;
    p->run_tokens += r->tokens;
    run_history_add_loss(&p->history, r->step, r->loss);
}

ott_status progress_end_step(progress *p, const trainer *t, const step_result *s, double learning_rate) {
    double seconds = clock_seconds() - p->step_started;
    reading r = {.step = t->run.step,
                 .epoch = dataset_epoch(t->train_data, t->run.samples - 1),
                 .loss = s->loss,
                 .z_loss = s->z_loss,
                 .grad_norm = s->grad_norm,
                 .balance = s->balance,
                 .learning_rate = learning_rate,
                 .seconds = seconds,
                 .memory = (double)device_taken(t->device).peak,
                 .tokens = s->tokens,
                 .labels = s->labels,
                 .tokens_seen = t->run.tokens};
    set_rates(p, &r, r.tokens, seconds);
    add_to_history(p, t, &r);
    TRY(write_metrics(p, t, &r));
    TRY(write_step_scalars(p, &r));
    if (r.step == 1 || r.step % p->interval == 0 || r.step == p->max_steps) step_line(p, &r);
    double mean;
    if (loss_monitor_add(&p->loss, r.loss, &mean))
        log_warning(
            p->log,
            "The loss stays above its start: %.4f on average over the last %d steps, %.4f at the start. "
            "If the run diverges: lower optimizer.lr, lengthen scheduler.warmup_steps, or resume from an "
            "earlier checkpoint",
            mean, LOSS_MONITOR_STEPS, p->loss.start);
    return OTT_OK;
}

ott_status progress_validation(progress *p, const trainer *t, const evaluation *e, double seconds) {
    char tps[32];
    double loss = e->loss, perplexity = exp(loss < 20 ? loss : 20);
    double memory = (double)device_taken(t->device).peak;
    long long step = (long long)t->run.step;
    double tokens_per_second = seconds > 0 ? (double)e->tokens / seconds : 0;
    int64_t rate = (int64_t)(tokens_per_second + 0.5);
    p->history.val_loss = loss;
    count_gemms(p, t);
    switch (p->style) {
    case LOG_STYLE_TITAN:
        log_info(p->log, "validate step: %2lld  loss: %7.4f  memory: %5.2fGiB(%.2f%%)  tps: %s", step, loss,
                 memory / GIB, 100 * memory / p->memory_total, str_commas(rate, tps));
        break;
    case LOG_STYLE_KEMPNER:
        log_info(p->log, "[step %lld] eval/loss=%.4f | eval/perplexity=%.4f", step, loss, perplexity);
        break;
    case LOG_STYLE_AUTOMODEL:
        log_info(p->log,
                 "[val] name \"default\" | step %lld | epoch %lld | loss %.4f | num_label_tokens %lld", step,
                 (long long)dataset_epoch(t->train_data, t->run.samples - 1), loss, (long long)e->labels);
        break;
    }
    metrics_value values[] = {metrics_real("val_loss", loss), metrics_real("val_perplexity", perplexity)};
    TRY(metrics_write(p->metrics, t->run.step, values, 2));
    return write_validation_scalars(p, t->run.step, loss, perplexity, tokens_per_second);
}
