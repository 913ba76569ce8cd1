/* run/run_log: the log lines before the first step (precision, model, device, memory plan, requested
   options without effect) and after the last step (GEMMs in FP8, traffic between ranks, peak memory). */
#ifndef RUN_RUN_LOG_H
#define RUN_RUN_LOG_H

#include "folders/hf/model.h"
#include "checkpoint/run_history.h"
#include "parallel/mesh.h"
#include "run/memory/check.h"

/* Arguments of run_log_write_start; all pointers are borrowed. */
typedef struct run_log_start {
    const logger *log;
    const mesh *mesh;
    const config *cfg;
    const precision_plan *precision;
    const hf_model_notes *notes; /* notes about model.hf_path */
    const trainer *trainer;      /* trainer before the first step */
    const memory_need *need;     /* need, need_fp8: results of the memory check */
    const memory_check_fp8 *need_fp8;
    double peak_flops;     /* FLOP/s for MFU */
    const char *peak_unit; /* measured unit, as "bf16 dot product"; NULL: the peak is not measured */
} run_log_start;

/* Arguments of run_log_write_end; all pointers are borrowed. */
typedef struct run_log_end {
    const logger *log;
    const config *cfg;
    const trainer *trainer;
    const run_history *history; /* history of all processes of the run, also earlier ones */
    int64_t planned_bytes;      /* bytes of device memory by the memory check */
    int shard_ranks;            /* number of ranks that shard the parameters */
    bool has_saved;             /* this process saved a checkpoint */
} run_log_end;

void run_log_write_start(const run_log_start *s); /* call before the first step */
/* Logs how many layers the current recipe has converted; logs nothing under a high-precision recipe. */
void run_log_write_conversion(const logger *log, const trainer *t);
/* Writes the log lines at the end of a run that was not stopped early. */
void run_log_write_end(const run_log_end *e);

#endif
