/*
 * checkpoint/run_history: what a run has come to since step 0, over all processes it took: steps, tokens, time
 * and GEMMs of each recipe in turn, and the last losses. A checkpoint holds it beside what training needs:
 *
 *     history.json  {"version": 1, "phases": [{"recipe": "bf16", "steps": 30, ...}, ...], "losses": [...], ...}
 *
 * Nothing of it decides how a run goes on, and times are in it: so it is apart from state.json.
 */
#ifndef CHECKPOINT_RUN_HISTORY_H
#define CHECKPOINT_RUN_HISTORY_H

#include "base/str.h"
#include "report/report.h"

#define RUN_HISTORY_NAME "history.json"

enum { RUN_LOSSES = 50 };

typedef struct run_history {
    int phase_count;
    report_phase phases[REPORT_MOST_PHASES];
    double losses[RUN_LOSSES]; /* of the last finite steps: that of number i in [i % RUN_LOSSES] */
    int64_t loss_count;        /* of all finite steps */
    double val_loss;           /* the last, NaN: none */
    double last_good_loss;     /* NaN: none */
    int64_t last_good_step;
    int64_t peak_memory_bytes; /* the most of any process */
} run_history;

void run_history_begin(run_history *h); /* of a run that has done nothing */
/* The phase that goes on under this recipe: the last one, or a new one. More changes than there is room for
   join the phases of each recipe. */
report_phase *run_history_phase(run_history *h, const char *recipe);
void run_history_add_loss(run_history *h, int64_t step, double loss); /* not finite: left out */
double run_history_loss(const run_history *h);                        /* mean of the last; NaN: none */
/* All phases in one. */
report_phase run_history_sum(const run_history *h);
/* Tokens a second, over the phases whose time is known; 0: none. */
double run_history_speed(const run_history *h);

/* Appends the text of history.json. */
ott_status run_history_text(const run_history *h, str *out);
/* That of a checkpoint. *known is false, and the history one of `steps` and `tokens` of which nothing is known,
   where there is none: older checkpoints have none. */
ott_status run_history_read(mem *account, const char *checkpoint, int64_t steps, int64_t tokens,
                            run_history *out, bool *known);

#endif
