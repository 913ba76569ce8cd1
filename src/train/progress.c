/* train/progress: step lines and metrics. */
#include "train/progress.h"
#include "base/clock.h"
#include "base/str.h"
#include <stdio.h>
#include <sys/resource.h>

#define GIB 1073741824.0

int64_t progress_peak_resident(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

void progress_begin_step(progress *p, const trainer *t) {
    trainer_gemms(t, &p->fp8_before, &p->gemms_before);
    p->step_started = clock_seconds();
}

double progress_final_loss(const progress *p) {
    int64_t kept = (int64_t)(sizeof p->recent / sizeof *p->recent);
    int64_t count = p->recent_count < kept ? p->recent_count : kept;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += p->recent[i];
    return count ? sum / (double)count : NAN;
}

double progress_tokens_per_second(const progress *p) {
    return p->run_seconds > 0 ? (double)p->run_tokens / p->run_seconds : 0;
}

/* Everything a line of any style may show. */
typedef struct reading {
    int64_t step, epoch;
    double loss, grad_norm, learning_rate, seconds, tokens_per_second, tflops, mfu, memory;
    int64_t tokens;
} reading;

static void line_titan(const progress *p, const reading *r) {
    char tps[32];
    log_info(p->log,
             "step: %2lld  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB(%.2f%%)  tps: %s  tflops: %.2f  "
             "mfu: %.2f%%",
             (long long)r->step, r->loss, r->grad_norm, r->memory / GIB, 100 * r->memory / p->memory_total,
             str_commas((int64_t)(r->tokens_per_second + 0.5), tps), r->tflops, 100 * r->mfu);
}

static void line_kempner(const progress *p, const reading *r) {
    char tps[32];
    log_info(p->log,
             "[step %lld] loss=%.4f | lr=%.2e | grad_norm=%.3f | tok/s=%s | mfu=%.1f%% | mem=%.1f/%.0fGB | "
             "step_time=%.2fs",
             (long long)r->step, r->loss, r->learning_rate, r->grad_norm,
             str_commas((int64_t)(r->tokens_per_second + 0.5), tps), 100 * r->mfu, r->memory / 1e9,
             p->memory_total / 1e9, r->seconds);
}

static void line_automodel(const progress *p, const reading *r) {
    log_info(p->log,
             "step %lld | epoch %lld | loss %.4f | grad_norm %.4f | lr %.2e | mem %.2f GiB | tps "
             "%.2f(%.2f/gpu) | num_label_tokens %lld",
             (long long)r->step, (long long)r->epoch, r->loss, r->grad_norm, r->learning_rate,
             r->memory / GIB, r->tokens_per_second, r->tokens_per_second, (long long)r->tokens);
}

static void step_line(progress *p, reading *r) {
    r->tokens_per_second = p->window_seconds > 0 ? (double)p->window_tokens / p->window_seconds : 0;
    r->tflops = r->tokens_per_second * p->flops_per_token / 1e12;
    r->mfu = p->peak_flops > 0 ? r->tflops * 1e12 / p->peak_flops : 0;
    p->window_seconds = 0;
    p->window_tokens = 0;
    switch (p->style) {
    case LOG_STYLE_TITAN: line_titan(p, r); break;
    case LOG_STYLE_KEMPNER: line_kempner(p, r); break;
    case LOG_STYLE_AUTOMODEL: line_automodel(p, r); break;
    }
}

static ott_status write_metrics(const progress *p, const trainer *t, const reading *r) {
    int64_t fp8, all;
    trainer_gemms(t, &fp8, &all);
    double tps = r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
    double flops = tps * p->flops_per_token;
    metrics_value values[24] = {
        metrics_int("epoch", r->epoch),
        metrics_real("timestamp", clock_wall()),
        metrics_real("loss", r->loss),
        metrics_real("grad_norm", r->grad_norm),
        metrics_real("lr", r->learning_rate),
        metrics_real("mem", r->memory / GIB),
        metrics_real("tps", tps),
        metrics_real("tps_per_gpu", tps),
        metrics_real("tflops", flops / 1e12),
        metrics_real("mfu", p->peak_flops > 0 ? flops / p->peak_flops : 0),
        metrics_int("num_tokens_per_step", r->tokens),
        metrics_int("num_label_tokens", r->tokens),
        metrics_int("fp8_gemms", fp8 - p->fp8_before),
        metrics_int("gemms", all - p->gemms_before),
    };
    int count = 14;
    if (p->style == LOG_STYLE_KEMPNER) {
        values[count++] = metrics_real("train/loss", r->loss);
        values[count++] = metrics_real("train/grad_norm", r->grad_norm);
        values[count++] = metrics_real("train/lr", r->learning_rate);
        values[count++] = metrics_real("train/tokens_per_sec", tps);
        values[count++] = metrics_real("train/mfu", p->peak_flops > 0 ? flops / p->peak_flops : 0);
        values[count++] = metrics_real("train/step_time_sec", r->seconds);
    }
    return metrics_write(p->metrics, r->step, values, count);
}

static void remember(progress *p, const reading *r, double seconds) {
    p->window_seconds += seconds;
    p->window_tokens += r->tokens;
    p->run_seconds += seconds;
    p->run_tokens += r->tokens;
    if (!isfinite(r->loss)) return;
    p->recent[p->recent_count++ % (int64_t)(sizeof p->recent / sizeof *p->recent)] = r->loss;
    p->last_good_loss = r->loss;
    p->last_good_step = r->step;
}

ott_status progress_end_step(progress *p, const trainer *t, const step_result *s, double learning_rate) {
    double seconds = clock_seconds() - p->step_started;
    reading r = {.step = t->run.step,
                 .epoch = loader_epoch(t->train_data, t->options.seq_len, t->run.samples - 1),
                 .loss = s->loss,
                 .grad_norm = s->grad_norm,
                 .learning_rate = learning_rate,
                 .seconds = seconds,
                 .memory = (double)mem_read(p->account).peak,
                 .tokens = s->tokens};
    remember(p, &r, seconds);
    TRY(write_metrics(p, t, &r));
    if (r.step == 1 || r.step % p->interval == 0 || r.step == p->max_steps) step_line(p, &r);
    return OTT_OK;
}

ott_status progress_validation(progress *p, const trainer *t, double loss, double seconds, int64_t tokens) {
    char tps[32];
    double memory = (double)mem_read(p->account).peak, perplexity = exp(loss < 20 ? loss : 20);
    long long step = (long long)t->run.step;
    int64_t rate = seconds > 0 ? (int64_t)((double)tokens / seconds + 0.5) : 0;
    p->validation_loss = loss;
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
                 (long long)loader_epoch(t->train_data, t->options.seq_len, t->run.samples - 1), loss,
                 (long long)tokens);
        break;
    }
    metrics_value values[] = {metrics_real("val_loss", loss), metrics_real("val_perplexity", perplexity)};
    return metrics_write(p->metrics, t->run.step, values, 2);
}
