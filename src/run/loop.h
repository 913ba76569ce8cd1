/* run/loop: a training run, from the configuration to the summary. */
#ifndef RUN_LOOP_H
#define RUN_LOOP_H

#include "base/log.h"
#include "config/config.h"
#include "ottava/ottava.h"
#include "run/inference.h"

typedef struct train_hooks {
    ott_progress_fn progress; /* called after every step; NULL: none */
    ott_work_fn work;         /* called after every micro-batch if a step has several; NULL: none */
    void *user;               /* passed to progress and work */
    caller_loss loss;         /* function NULL: cross-entropy */
    const live_model **live;  /* set to the run's model while progress is called; NULL: not needed */
    bool (*stop)(void *user); /* polled often; true: save the last complete step and end; NULL: never */
    void *stop_user;
} train_hooks;

/* Sets the preset's values and all derived values in cfg, then trains. ott_train lists the statuses. */
ott_status run_loop(mem *account, const logger *log, config *cfg, const train_hooks *hooks);

#endif
