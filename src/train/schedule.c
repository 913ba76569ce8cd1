/* train/schedule: warmup and decay of the learning rate. */
#include "train/schedule.h"
#include "data/phases.h"
#include <math.h>

#define PI 3.14159265358979323846

static double progress(int64_t done, int64_t length) {
    if (length <= 0) return 1.0;
    double p = (double)done / (double)length;
    return p < 0 ? 0 : p > 1 ? 1 : p;
}

static double cosine(double r, double p) {
    return r + 0.5 * (1.0 - r) * (1.0 + cos(PI * p));
}
static double linear(double r, double p) {
    return 1.0 - (1.0 - r) * p;
}

/* Warmup, stable phase, decay. A phase that has no length set takes all steps that the others leave. */
static double wsd(const config *cfg, int64_t after_warmup, int64_t length) {
    int64_t stable = cfg->scheduler.stable_steps, decay = cfg->scheduler.decay_steps;
    if (stable < 0) stable = decay > 0 && decay < length ? length - decay : 0;
    if (decay == 0) decay = length - stable;
    double r = cfg->scheduler.min_lr_ratio, p = progress(after_warmup - stable, decay);
    if (after_warmup < stable) return 1.0;
    switch (cfg->scheduler.wsd_decay_type) {
    case WSD_DECAY_LINEAR: return linear(r, p);
    case WSD_DECAY_SQRT: return r + (1.0 - r) * sqrt(1.0 - p);
    default: return cosine(r, p);
    }
}

/* AutoModel's rule: sqrt(warmup / (step + 1)), at least r, the minimum ratio. After warmup it starts at 1. */
static double inverse_square_root(double r, int64_t step, int64_t warmup) {
    double f = sqrt((double)(warmup > 0 ? warmup : 1) / (double)(step + 1));
    return f > r ? f : r;
}

static double rex(double r, double p, double alpha) {
    double f = pow(1.0 - p, alpha);
    return f > r ? f : r;
}

static double factor(const config *cfg, int64_t step, int64_t steps) {
    int64_t warmup = cfg->scheduler.warmup_steps;
    if (cfg->scheduler.name == SCHEDULER_NONE) return 1.0;
    if (step < warmup) return (double)(step + 1) / (double)warmup;
    int64_t length = steps - warmup;
    double r = cfg->scheduler.min_lr_ratio;
    double p = progress(step - warmup, cfg->scheduler.decay_steps > 0 ? cfg->scheduler.decay_steps : length);
    switch (cfg->scheduler.name) {
    case SCHEDULER_COSINE: return cosine(r, p);
    case SCHEDULER_LINEAR: return linear(r, p);
    case SCHEDULER_WSD: return wsd(cfg, step - warmup, length);
    case SCHEDULER_REX: return rex(r, p, cfg->scheduler.rex_alpha);
    case SCHEDULER_INVERSE_SQUARE_ROOT: return inverse_square_root(r, step, warmup);
    default: return 1.0;
    }
}

double schedule_learning_rate(const config *cfg, int64_t step, int64_t steps) {
    return cfg->optimizer.lr * factor(cfg, step, steps) * phases_lr_scale(cfg, step);
}

double schedule_rate(const config *cfg, int64_t step, int64_t start) {
    return cfg->optimizer.lr * factor(cfg, step - start, cfg->train.max_steps - start) *
           phases_lr_scale(cfg, step);
}

double schedule_balance(const config *cfg, int64_t step, int64_t steps) {
    switch (cfg->model.moe_bias_schedule) {
    case MOE_BIAS_COSINE_DECAY: return cosine(0, progress(step, steps));
    case MOE_BIAS_LINEAR_WARMUP: return progress(step + 1, cfg->scheduler.warmup_steps);
    default: return 1.0;
    }
}
