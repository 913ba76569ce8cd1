/* eval/job: progress and cancellation of a task. */
#include "base/clock.h"
#include "eval/eval.h"

bool eval_advance(eval_job *j) {
    ott_eval_result *r = j->result;
    double seconds = clock_seconds() - j->started;
    ott_work work = {.done = ++r->items, .total = r->total};
    work.seconds_left = seconds * (double)(work.total - work.done) / (double)work.done;
    if (j->options->progress) j->options->progress(j->options->user, &work);
    return !(j->hooks && j->hooks->stop && j->hooks->stop(j->hooks->user));
}
