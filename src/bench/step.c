/* bench/step: full training steps of a model. The precisions to compare alternate. */
#include "base/clock.h"
#include "bench/model.h"
#include "data/data.h"
#include "model/init.h"
#include "monitor/op_kinds.h"
#include "run/run.h"
#include <stdio.h>

/* The parts of a step's time: kinds of operations, and the time between operations. */
enum { BETWEEN = OP_KINDS, SHARES };

static const char *share_name(int share) {
    return share == BETWEEN ? "between ops" : op_kind_name((op_kind)share);
}

typedef struct contestant {
    bench_model model;
    dataset *train_data, *validation_data;
    trainer *trainer;
    exec_times times;
    double step_seconds[OP_KINDS]; /* seconds of each kind in the current step */
    double shares[SHARES];         /* seconds of each part, in all steps but the first */
    int64_t tokens;                /* tokens per step */
} contestant;

typedef struct step_bench {
    contestant entrant[BENCH_PRECISIONS_MOST];
    int count;
} step_bench;

/* ---- running ---- */

static void note_step_op(void *user, enum op_index op, const void *args, double began, double seconds) {
    contestant *c = user;
    (void)began;
    c->step_seconds[op_kind_of_call(op, args)] += seconds;
}

static void note_step(contestant *c, double seconds) {
    if (c->trainer->run.step == 1 || !c->trainer->cx.times)
        return; /* not counted: the first step touches its memory for the first time */
    for (int k = 0; k < OP_KINDS; k++) {
        c->shares[k] += c->step_seconds[k];
        seconds -= c->step_seconds[k];
    }
    c->shares[BETWEEN] += seconds;
}

static ott_status run_contestant_step(contestant *c) {
    step_result result;
    memset(c->step_seconds, 0, sizeof c->step_seconds);
    double began = clock_seconds();
    TRY(trainer_step(c->trainer, 1e-4, &result));
    note_step(c, clock_seconds() - began);
    if (!result.skipped) return OTT_OK;
    return status_fail(OTT_ERR_DIVERGED, "step: the %s model's loss is %g after %lld steps", c->model.name,
                       result.loss, (long long)c->trainer->run.step);
}

/* Timing an operation waits for it, which slows a GPU down. So on a GPU only a warm-up step is timed. */
static ott_status run_contestant(bench *b, void *state) {
    contestant *c = state;
    bool first = c->trainer->run.step == 0, gpu = b->cx.device->threads == 0;
    TRY(run_contestant_step(c));
    if (!first || !gpu) return OTT_OK;
    TRY(run_contestant_step(c));
    c->trainer->cx.times = NULL;
    return OTT_OK;
}

/* ---- opening ---- */

/* Length of the sequences for a preset. Large models get longer sequences. */
static int64_t default_length(const char *preset) {
    return strcmp(preset, "124M") == 0 || strcmp(preset, "1B") == 0 || strcmp(preset, "8B") == 0 ? 512 : 256;
}

/* Opens the model of the configuration file, with its batch size and length, or the model of a preset. */
static ott_status open_bench_model(const bench_options *o, const char *precision, bench_model *m) {
    const char *preset = o->preset || o->path ? o->preset : "42M", *sizes[2];
    int64_t sequences = o->batch_size || o->path ? o->batch_size : 4;
    int64_t length = o->seq_len || o->path ? o->seq_len : default_length(preset);
    char text[2][48];
    int count = 0;
    snprintf(text[0], sizeof text[0], "--train.batch_size=%lld", (long long)sequences);
    snprintf(text[1], sizeof text[1], "--train.seq_len=%lld", (long long)length);
    if (sequences) sizes[count++] = text[0];
    if (length) sizes[count++] = text[1];
    return bench_model_open(o, precision, preset, sizes, count, m);
}

static ott_status open_contestant(bench *b, const char *precision, contestant *c) {
    trainer_options options;
    bench_model *m = &c->model;
    TRY(open_bench_model(b->options, precision, m));
    TRY(run_trainer_options(m->cfg, &m->precision, 0, &options));
    TRY(data_open(m->account, &(cancellation){.log = b->log}, m->cfg, &m->shape.vocab, &c->train_data,
                  &c->validation_data));
    TRY(trainer_open(m->account, b->log, m->device, &m->shape, &options, c->train_data, c->validation_data,
                     &c->trainer));
    TRY(model_initialize(c->trainer->m, 1, 0));
    c->times = (exec_times){.on_op = note_step_op, .user = c};
    TRY(exec_times_open(&c->times, m->device));
    c->trainer->cx.times = &c->times;
    c->tokens = options.batch_size * options.seq_len * options.grad_accum;
    return OTT_OK;
}

/* Returns the format of most products of a step; on a GPU always bf16, as is usual for MFU. */
static ott_dtype format_of_products(const bench *b, const char *precision) {
    if (b->cx.device->threads == 0 || strcmp(precision, "bf16") == 0) return OTT_BF16;
    return strcmp(precision, "fp8") == 0 ? OTT_E4M3 : OTT_F32;
}

/* Adds a precision to the comparison. FLOPs: six for each weight and token; attention is not counted. */
static ott_status add_contestant(bench *b, const char *precision, contestant *c) {
    TRY(open_contestant(b, precision, c));
    const model *m = c->trainer->m;
    bench_case step = {.what = "step, at 6 N FLOP per token",
                       .variant = precision,
                       .flops = 6.0 * (double)(model_matmul_weights(m) * c->tokens),
                       .format = format_of_products(b, precision),
                       .once = true,
                       .run = run_contestant,
                       .state = c};
    snprintf(step.shape, sizeof step.shape, "%s, %lld x %lld",
             b->options->path ? b->options->path : config_word(c->model.cfg, "model.preset"),
             (long long)c->trainer->options.batch_size, (long long)c->trainer->options.seq_len);
    return bench_add(b, &step);
}

static ott_status add_contestants(bench *b) {
    const char *precisions[BENCH_PRECISIONS_MOST];
    int count;
    TRY(bench_precisions(b->options, precisions, &count));
    TRY(bench_alloc(b, sizeof(step_bench), &b->state));
    step_bench *s = b->state;
    for (; s->count < count; s->count++) TRY(add_contestant(b, precisions[s->count], &s->entrant[s->count]));
    return OTT_OK;
}

static void close_contestant(contestant *c) {
    if (c->trainer) exec_times_close(&c->times, c->model.device);
    trainer_close(c->trainer);
    dataset_close(c->train_data);
    dataset_close(c->validation_data);
    bench_model_close(&c->model);
}

static void close_contestants(bench *b) {
    step_bench *s = b->state;
    for (int i = 0; s && i < BENCH_PRECISIONS_MOST; i++) close_contestant(&s->entrant[i]);
}

/* ---- results ---- */

static double tokens_per_second(const bench *b, int i) {
    const step_bench *s = b->state;
    return (double)s->entrant[i].tokens / bench_seconds(b, &b->cases[i]);
}

static double share_of_step(const contestant *c, int part) {
    double all = 0;
    for (int f = 0; f < SHARES; f++) all += c->shares[f];
    return c->shares[part] / all;
}

static const bench_case *baseline(const bench *b) {
    return bench_find(b, b->cases[0].what, b->cases[0].shape, "bf16");
}

static double ratio_to_bf16(const bench *b, int i) {
    return bench_seconds(b, baseline(b)) / bench_seconds(b, &b->cases[i]);
}

static void write_parts(bench *b, str *out) {
    const step_bench *s = b->state;
    double values[BENCH_PRECISIONS_MOST];
    for (int i = 0; i < s->count; i++) values[i] = tokens_per_second(b, i);
    bench_text_line(out, "tokens/s", values, s->count, 1, "");
    for (int i = 0; i < s->count && baseline(b); i++) values[i] = ratio_to_bf16(b, i);
    if (baseline(b)) bench_text_line(out, "times bf16's speed", values, s->count, 3, "");
    for (int i = 0; i < s->count; i++) values[i] = (double)s->entrant[i].trainer->planned_bytes / 1048576.0;
    bench_text_line(out, "memory in MiB", values, s->count, 1, "");
    for (int i = 0; i < s->count; i++)
        values[i] = (double)plan_live_peak(s->entrant[i].trainer->train_plan) / 1048576.0;
    bench_text_line(out, "activations and workspace, in MiB", values, s->count, 1, "");
    str_append(out, "share of the step's time\n");
    for (int f = 0; f < SHARES; f++) {
        char what[32];
        for (int i = 0; i < s->count; i++) values[i] = 100 * share_of_step(&s->entrant[i], f);
        snprintf(what, sizeof what, "  %s", share_name(f));
        bench_text_line(out, what, values, s->count, 1, "%");
    }
}

static void write_parts_json(bench *b, str *out) {
    const step_bench *s = b->state;
    str_append(out, ",\"steps\":{");
    for (int i = 0; i < s->count; i++) {
        const contestant *c = &s->entrant[i];
        str_printf(out, "%s\"%s\":{\"tokens_per_second\":%.2f", i ? "," : "", c->model.name,
                   tokens_per_second(b, i));
        if (baseline(b)) str_printf(out, ",\"ratio_to_bf16\":%.4f", ratio_to_bf16(b, i));
        str_printf(out, ",\"memory_bytes\":%lld,\"step_bytes\":%lld", (long long)c->trainer->planned_bytes,
                   (long long)plan_live_peak(c->trainer->train_plan));
        str_append(out, ",\"shares\":{");
        for (int f = 0; f < SHARES; f++)
            str_printf(out, "%s\"%s\":%.4f", f ? "," : "", share_name(f), share_of_step(c, f));
        str_append(out, "}}");
    }
    str_append(out, "}");
}

const bench_entry bench_step = {.name = "step",
                                .accepts = BENCH_ACCEPTS_MODEL | BENCH_ACCEPTS_BATCH | BENCH_ACCEPTS_PATH,
                                .add = add_contestants,
                                .text = write_parts,
                                .json = write_parts_json,
                                .close = close_contestants};
