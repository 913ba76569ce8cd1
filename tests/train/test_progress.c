/* TensorBoard output of a run: the tags depend on the log style, each process writes its own file, and errors
   are clear. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "monitor/progress.h"
#include "train/train_fixture.h"

enum { STEPS = 2 };

typedef struct style {
    const char *name, *argument;
    const char *tags[16]; /* the list ends with NULL */
} style;

static const style styles[] = {
    {"titan",
     "--metrics.log_style=titan",
     {"loss_metrics/global_avg_loss", "loss_metrics/global_max_loss", "grad_norm", "lr", "n_tokens_seen",
      "throughput(tps)", "tflops", "mfu(%)", "time_metrics/end_to_end(s)", "memory/max_reserved(GiB)",
      "memory/max_reserved(%)", "validation_metrics/loss", "validation_metrics/throughput(tps)"}},
    {"kempner",
     "--metrics.log_style=kempner",
     {"train/loss", "train/grad_norm", "train/lr", "train/tokens_per_sec", "train/mfu", "train/step_time_sec",
      "eval/loss", "eval/perplexity"}},
    {"automodel",
     "--metrics.log_style=automodel",
     {"loss", "grad_norm", "lr", "mem", "tps", "tps_per_gpu", "num_tokens_per_step", "num_label_tokens",
      "val_loss"}},
};

/* Counts how often a tag is in an event file. There a tag is a protocol buffer string: its length, then its
   bytes. */
static int count_tag(const char *data, int64_t bytes, const char *tag) {
    char field[80];
    int count = 0, length = snprintf(field, sizeof field, "\n%c%s", (char)strlen(tag), tag);
    for (int64_t i = 0; i + length <= bytes; i++) count += memcmp(data + i, field, (size_t)length) == 0;
    return count;
}

typedef struct events {
    int files, tags[16];
} events;

static events read_events(const fixture *f, const char *folder, const style *s) {
    mem *account;
    file_list files;
    events e = {0};
    char path[400];
    FIXTURE_OK(mem_open(&account));
    snprintf(path, sizeof path, "%s/%s", f->folder, folder);
    FIXTURE_OK(file_list_folder(account, path, &files));
    for (int64_t i = 0; i < files.count; i++) {
        int64_t bytes;
        snprintf(path, sizeof path, "%s/%s", folder, files.names[i]);
        assert_true(str_starts_with(files.names[i], "events.out.tfevents."));
        char *data = fixture_read(f, path, &bytes);
        for (int k = 0; s->tags[k]; k++) e.tags[k] += count_tag(data, bytes, s->tags[k]);
        free(data);
        e.files++;
    }
    file_list_free(&files);
    mem_close(account);
    return e;
}

static void drive(const fixture *f, const style *s, const char *name, int64_t step, ott_status expected,
                  const char *folder) {
    rig r;
    char run[160], path[220];
    progress p = {.style = s - styles == 0   ? LOG_STYLE_TITAN
                           : s - styles == 1 ? LOG_STYLE_KEMPNER
                                             : LOG_STYLE_AUTOMODEL,
                  .interval = 100,
                  .max_steps = 1000,
                  .memory_total = 1e9};
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[BF16]});
    logger log = {0};
    p.log = &log;
    p.account = r.account;
    snprintf(run, sizeof run, "%s/%s", f->folder, name);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    FIXTURE_OK(file_make_folder(run));
    FIXTURE_OK(metrics_open(r.account, NULL, path, step ? step : -1, &p.metrics));
    ott_status status = progress_open_tensorboard(&p, run, folder, step ? step + 1 : 0);
    assert_int_equal(status, expected);
    if (status == OTT_OK) {
        r.t->run.step = step;
        for (int i = 0; i < STEPS; i++) {
            progress_begin_step(&p, r.t);
            step_result result = rig_step(&r);
            FIXTURE_OK(progress_end_step(&p, r.t, &result, 1e-3));
        }
        FIXTURE_OK(
            progress_validation(&p, r.t, &(evaluation){.loss = 2.5, .tokens = 100, .labels = 100}, 0.5));
    }
    progress_close(&p);
    progress_close(&p);
    rig_close(&r);
}

static void tags(void **state) {
    const fixture *f = *state;
    for (size_t i = 0; i < 3; i++) {
        char folder[64];
        drive(f, &styles[i], styles[i].name, 0, OTT_OK, "tb_logs");
        snprintf(folder, sizeof folder, "%s/tb_logs", styles[i].name);
        events e = read_events(f, folder, &styles[i]);
        assert_int_equal(e.files, 1);
        for (int k = 0; styles[i].tags[k]; k++) {
            bool validation = strstr(styles[i].tags[k], "val") != NULL;
            if (e.tags[k] != (validation ? 1 : STEPS)) fail_msg("%s: %d", styles[i].tags[k], e.tags[k]);
        }
    }
}

/* Reads the mfu value of each line of a run's metrics. */
static int read_mfu(const fixture *f, const char *name, double mfu[STEPS]) {
    char path[64];
    int64_t bytes;
    int count = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    char *text = fixture_read(f, path, &bytes);
    for (const char *at = text; (at = strstr(at, "\"mfu\":")) && count < STEPS; at++)
        mfu[count++] = atof(at + strlen("\"mfu\":"));
    free(text);
    return count;
}

static void run_with_peak(const fixture *f, const char *name, bool given, const char *const *more) {
    rig r;
    char path[220];
    logger log = {0};
    progress p = {.log = &log, .interval = 100, .max_steps = 1000, .memory_total = 1e9};
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    p.account = r.account;
    p.flops_per_token = 1e30; /* with so large a value, the FLOP/s of a step exceed the peak of any device */
    p.peak_flops = 1e12;
    if (!given) progress_measure_peak(&p, r.device, OTT_BF16);
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FIXTURE_OK(file_make_folder(path));
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", f->folder, name);
    FIXTURE_OK(metrics_open(r.account, NULL, path, -1, &p.metrics));
    for (int i = 0; i < STEPS; i++) {
        progress_begin_step(&p, r.t);
        step_result result = rig_step(&r);
        FIXTURE_OK(progress_end_step(&p, r.t, &result, 1e-3));
    }
    progress_close(&p);
    rig_close(&r);
}

/* With a measured peak MFU is at most 1, because a faster step raises the peak. A configured peak is not
   changed, so MFU can exceed 1. */
static void mfu_has_a_bound(void **state) {
    const fixture *f = *state;
    double mfu[STEPS];
    run_with_peak(f, "measured", false, NULL);
    assert_int_equal(read_mfu(f, "measured", mfu), STEPS);
    for (int i = 0; i < STEPS; i++) assert_true(mfu[i] > 0 && mfu[i] <= 1);
    run_with_peak(f, "given", true, NULL);
    assert_int_equal(read_mfu(f, "given", mfu), STEPS);
    assert_true(mfu[0] > 1);
}

/* The first step's loss does not include the z-loss, which has its own key. */
static void the_z_loss_is_logged_separately(void **state) {
    const fixture *f = *state;
    const char *const names[] = {"without", "with_z"}, *const more[] = {"--train.z_loss_weight=0.01", NULL};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        char path[64];
        int64_t bytes;
        run_with_peak(f, names[i], true, i ? more : NULL);
        snprintf(path, sizeof path, "%s/metrics.jsonl", names[i]);
        char *text = fixture_read(f, path, &bytes);
        const char *z = strstr(text, "\"train/z_loss\":");
        loss[i] = atof(strstr(text, "\"loss\":") + strlen("\"loss\":"));
        assert_int_equal(z != NULL, i);
        if (z) assert_true(atof(z + strlen("\"train/z_loss\":")) > 0.01);
        free(text);
    }
    assert_true(loss[0] > 0 && loss[0] == loss[1]);
}

/* A resumed run writes a second file into the folder. */
static void continued(void **state) {
    const fixture *f = *state;
    drive(f, &styles[0], "continued", 0, OTT_OK, "deep/er");
    drive(f, &styles[0], "continued", STEPS, OTT_OK, "deep/er");
    events e = read_events(f, "continued/deep/er", &styles[0]);
    assert_int_equal(e.files, 2);
    assert_int_equal(e.tags[0], 2 * STEPS);
}

static void absolute_folder(void **state) {
    const fixture *f = *state;
    char folder[200];
    snprintf(folder, sizeof folder, "%s/elsewhere", f->folder);
    drive(f, &styles[1], "absolute", 0, OTT_OK, folder);
    assert_int_equal(read_events(f, "elsewhere", &styles[1]).files, 1);
}

static void no_folder(void **state) {
    const fixture *f = *state;
    drive(f, &styles[0], "refused", 0, OTT_ERR_ARGUMENT, f->text);
    assert_non_null(strstr(status_text(), "metrics.tensorboard_dir: "));
    assert_non_null(strstr(status_text(), f->text));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags),
        cmocka_unit_test(continued),
        cmocka_unit_test(absolute_folder),
        cmocka_unit_test(no_folder),
        cmocka_unit_test(mfu_has_a_bound),
        cmocka_unit_test(the_z_loss_is_logged_separately),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
