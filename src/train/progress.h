/*
 * train/progress: what a run says while it runs: step lines in the style of the framework its reader knows,
 * metrics.jsonl, TensorBoard's scalars, and the throughput behind them.
 */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include "checkpoint/run_history.h"
#include "formats/metrics.h"
#include "formats/tensorboard.h"
#include "train/loss_monitor.h"
#include "train/trainer.h"

typedef struct progress {
    const logger *log;
    mem *account;
    config_log_style style;
    metrics_writer *metrics;
    tensorboard_writer *tensorboard; /* NULL: none */
    int64_t interval, max_steps;
    double flops_per_token, peak_flops; /* the second of one rank */
    int ranks;                          /* 0 as 1 */
    device *measured;                   /* peak_flops is what was measured of it; NULL: the user gave it */
    ott_dtype peak_format;              /* of most products: selects the unit to measure */
    int peaks_to_measure;               /* before the next steps, one each: other programs come and go */
    double step_started;                /* clock */
    int64_t fp8_before, gemms_before;   /* counters when the step began */
    int64_t fp8_counted, gemms_counted; /* and up to where the history has them */
    double window_seconds;              /* since the last step line */
    int64_t window_tokens;
    double run_seconds; /* in training steps only, this process */
    int64_t run_tokens;
    double memory_total; /* bytes of the device, for "% of" */
    run_history history; /* of all processes */
    loss_monitor loss;
} progress;

/* Also writes each step's values, and validation losses, for TensorBoard, with the tags of the framework of
   p->style: into a new file in `folder` (relative to run_folder), instead of the one before. What earlier files
   there say of first_step and later ones is dropped; 0: there are none. */
ott_status progress_open_tensorboard(progress *p, const char *run_folder, const char *folder,
                                     int64_t first_step);
void progress_close(progress *p); /* the files; what was written to them is already with the system */

/* Fills peak_flops, the most that this device was ever seen to do: with a measurement here, one before each of
   the first steps, and the steps themselves, so that no run is said to do more. A CPU's peak is the peak of the unit that
   multiplies operands of this format, a GPU's that of dense bf16 products. */
void progress_measure_peak(progress *p, device *d, ott_dtype format);
/* Bytes this process has had resident at most. */
int64_t progress_peak_resident(void);
void progress_begin_step(progress *p, const trainer *t);
/* After a step: metrics line, and a step line when it is due. */
ott_status progress_end_step(progress *p, const trainer *t, const step_result *r, double learning_rate);
ott_status progress_validation(progress *p, const trainer *t, const evaluation *e, double seconds);
double progress_tokens_per_second(const progress *p); /* of this process; 0 before the first step */

#endif
