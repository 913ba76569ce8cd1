/* run/run_log: the log lines before the first step (precision, model, device, memory plan, requested
   options without effect) and after the last step (GEMMs in FP8, traffic between ranks, peak memory). */
#ifndef RUN_RUN_LOG_H
#define RUN_RUN_LOG_H

#include "run/parts.h"

void run_log_write_start(const run *r); /* call before the first step */
/* Logs how many layers the current recipe has converted; logs nothing under a high-precision recipe. */
void run_log_write_conversion(const logger *log, const trainer *t);
/* Writes the log lines at the end of a run that was not stopped early. */
void run_log_write_end(const run *r);

#endif
