/* run/folder/run_folder: the folder of a run while a process trains in it. The process holds a flock on the
   file `lock`, which contains its process id and host. Readers need no lock. */
#ifndef RUN_FOLDER_RUN_FOLDER_H
#define RUN_FOLDER_RUN_FOLDER_H

#include "checkpoint/run.h"
#include "config/config.h"

typedef struct run_folder {
    mem *account;
    char *path, *checkpoints; /* checkpoints: folder of this run's checkpoints (checkpoint_run_home) */
    run_record record;
    bool attempted; /* an earlier process wrote metrics.jsonl in the folder */
    int lock;       /* descriptor of the lock file; -1: none */
} run_folder;

/* Creates and locks the folder run.dir. If run.dir is empty, sets it to runs/NAME, where NAME is the name of
   the configuration file. A new run uses runs/NAME-2 and so on if runs/NAME is taken. OTT_ERR_CONFIG if
   run.dir has a run and checkpoint.load_path is empty. OTT_ERR_IO if another process trains in it. Call
   run_folder_close even on failure. */
ott_status run_folder_open(mem *account, const logger *log, config *cfg, run_folder *out);
/* Recreates and locks the folder after it was removed or renamed while the run was running. */
ott_status run_folder_restore(run_folder *f, const logger *log, const config *cfg);
void run_folder_close(run_folder *f); /* a zeroed *f can be closed */

#endif
