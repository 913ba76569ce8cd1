/* train/loop: a training run from configuration to summary: what happens when. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include "base/log.h"
#include "config/config.h"
#include "ottava/ottava.h"

typedef struct train_hooks {
    ott_progress_fn progress; /* after every step; NULL: none */
    ott_work_fn work;         /* after every micro-batch of a step that has several; NULL: none */
    void *user;
    bool (*stop)(void *user); /* asked all the time: end here, saving the last whole step; NULL: never */
    void *stop_user;
} train_hooks;

/* Resolves cfg (which it completes with the preset's and the derived values) and trains. */
ott_status train_run(mem *account, const logger *log, config *cfg, const train_hooks *hooks);

#endif
