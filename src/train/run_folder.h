/*
 * train/run_folder: the folder of a run, while a process trains in it. The file `lock` in it is locked
 * (flock) until the end, and names the process; readers of the folder need no lock.
 */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include "checkpoint/run.h"
#include "config/config.h"

typedef struct run_folder {
    mem *account;
    char *path, *checkpoints; /* the second: where this run's checkpoints are (checkpoint_run_home) */
    run_record record;        /* of the run */
    bool attempted;           /* a process trained here before */
    int lock;                 /* descriptor, -1: none */
} run_folder;

/* The folder is run.dir, made if it is not there. Left empty it is runs/ and the configuration file's name,
   with a number when that is taken and nothing is to be continued; the choice is written back into cfg. A
   folder that holds a run is refused unless checkpoint.load_path is given; one in which a process trains now
   always is. Closed with run_folder_close, also when this fails. */
ott_status run_folder_open(mem *account, const logger *log, config *cfg, run_folder *out);
/* Makes again what went away with the folder. */
ott_status run_folder_restore(run_folder *f, const logger *log, const config *cfg);
void run_folder_close(run_folder *f); /* an all-zero one is allowed */

#endif
