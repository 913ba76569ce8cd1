/* monitor/progress: output of a run while it trains: step lines in the style of torchtitan, KempnerForge or
   AutoModel, metrics.jsonl, TensorBoard scalars, and the throughput figures in them. */
#ifndef MONITOR_PROGRESS_H
#define MONITOR_PROGRESS_H

#include "checkpoint/run_history.h"
#include "formats/metrics.h"
#include "formats/tensorboard.h"
#include "monitor/loss_monitor.h"
#include "train/trainer.h"

typedef struct progress {
    const logger *log;
    mem *account;
    config_log_style style;
    metrics_writer *metrics;
    tensorboard_writer *tensorboard; /* NULL: no TensorBoard files */
    int64_t interval, max_steps;
    double flops_per_token, peak_flops; /* peak_flops: FLOP/s of one rank, for MFU; 0: unknown */
    int ranks;                          /* ranks of the run; 0 means 1 */
    device *measured;                   /* the CPU if its peak is measured; else NULL */
    ott_dtype peak_format;              /* operand format of most GEMMs: selects the unit to measure */
    int peaks_to_measure; /* measurements left, one per step, as another program may disturb one */
    double step_started;  /* clock_seconds() at the start of the step */
    int64_t fp8_before, gemms_before;   /* GEMM counters when the step began */
    int64_t fp8_counted, gemms_counted; /* GEMM counters that the history includes */
    double window_seconds;              /* seconds of the steps since the last step line */
    int64_t window_tokens;
    double run_seconds; /* seconds of this process's training steps */
    int64_t run_tokens;
    double memory_total; /* bytes of device memory */
    run_history history; /* history of all processes of the run */
    loss_monitor loss;
} progress;

/* Starts a new TensorBoard file in `folder` (relative to run_folder) and closes the previous file. p->style
   selects the tags. Removes steps from first_step on from older files; first_step 0: no older files. */
ott_status progress_open_tensorboard(progress *p, const char *run_folder, const char *folder,
                                     int64_t first_step);
void progress_close(progress *p); /* closes the files; all lines are written already */

/* Sets peak_flops. For a GPU: the data-sheet peak of dense bf16. For a CPU: the highest measured rate of the
   instructions that multiply operands in `format`. It is measured here and before each of the first steps. If
   a training step is faster, peak_flops becomes the step's rate, so that MFU is at most 1. */
void progress_measure_peak(progress *p, device *d, ott_dtype format);
/* Peak resident memory of this process, in bytes. */
int64_t progress_peak_resident(void);
void progress_begin_step(progress *p, const trainer *t); /* starts the step's clock */
/* After a step: writes a row of metrics, and a step line if one is due. */
ott_status progress_end_step(progress *p, const trainer *t, const step_result *r, double learning_rate);
/* After an evaluation that took `seconds`: logs the evaluation's loss and writes it to the metrics. */
ott_status progress_validation(progress *p, const trainer *t, const evaluation *e, double seconds);
double progress_tokens_per_second(const progress *p); /* rate of this process; 0 before the first step */

#endif
