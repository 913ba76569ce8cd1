/*
 * checkpoint/run_history: the progress of a run since step 0, over all its processes: steps, tokens, time and
 * GEMMs of each recipe, and the latest losses. Checkpoints store it as
 *
 *     history.json  {"version": 1, "phases": [{"recipe": "bf16", "steps": 30, ...}], "losses": [...], ...}
 *
 * Training does not need it to resume, and it contains times. So it is separate from state.json.
 */
#ifndef CHECKPOINT_RUN_HISTORY_H
#define CHECKPOINT_RUN_HISTORY_H

#include "base/text/str.h"
#include "report/report.h"

#define RUN_HISTORY_NAME "history.json"

enum { RUN_LOSSES = 50 };

typedef struct run_history {
    int phase_count;
    report_phase phases[REPORT_MOST_PHASES];
    double losses[RUN_LOSSES]; /* ring of the last finite losses */
    int64_t loss_count;        /* number of all finite losses */
    double val_loss;           /* the latest validation loss; NaN if none */
    double last_good_loss;     /* the latest finite training loss; NaN if none */
    int64_t last_good_step;
    int64_t peak_memory_bytes; /* largest peak of any process of the run */
} run_history;

void run_history_begin(run_history *h); /* makes *h the history of a new run */
/* Returns the last phase, or a new one if the last phase has another recipe. If there are REPORT_MOST_PHASES
   phases, first merges phases with the same recipe. */
report_phase *run_history_phase(run_history *h, const char *recipe);
void run_history_add_loss(run_history *h, int64_t step, double loss); /* ignores a non-finite loss */
double run_history_loss(const run_history *h);                        /* mean of `losses`; NaN if none */
/* Returns the sum of all phases. */
report_phase run_history_sum(const run_history *h);
/* Tokens per second over the phases with a known time; 0 if none. */
double run_history_speed(const run_history *h);

/* Appends the text of history.json. */
ott_status run_history_text(const run_history *h, str *out);
/* Reads the history of a checkpoint. If an old checkpoint has no history, *known is false, and the history
   has one phase with the recipe "unknown" and the given steps and tokens. */
ott_status run_history_read(mem *account, const char *checkpoint, int64_t steps, int64_t tokens,
                            run_history *out, bool *known);

#endif
