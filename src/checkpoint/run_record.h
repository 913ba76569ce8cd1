/*
 * checkpoint/run_record: run.json, the record of the run that a folder belongs to. A run folder and a folder
 * of checkpoints have one each:
 *
 *     RUN/run.json          {"run": "9f2c6a3be1d40587", "origin": "/elsewhere/step-30"}
 *     CHECKPOINTS/run.json  {"run": "9f2c6a3be1d40587", "branch": 2, "folder": "/the/RUN"}
 *
 * origin: the checkpoint of another run that this run started from. folder: the run folder, if the
 * checkpoints are outside of it. While a run is rewound, the second file also has "after": N. Then
 * checkpoints of steps after N do not count, whether they are renamed or not. If a process stops before
 * it has renamed all of them, the next process does it.
 */
#ifndef CHECKPOINT_RUN_RECORD_H
#define CHECKPOINT_RUN_RECORD_H

#include "base/mem.h"
#include <limits.h>
#include <stdbool.h>

#define RUN_RECORD_NAME "run.json"

enum { RUN_ID_LENGTH = 16 }; /* hexadecimal digits of a run id */

/* The run and branch of a checkpoint. run is "" if unknown. */
typedef struct run_mark {
    char run[RUN_ID_LENGTH + 1];
    int64_t branch; /* branches are numbered from 1 */
} run_mark;

/* The contents of run.json. Missing texts are "", a missing `after` is INT64_MAX. */
typedef struct run_record {
    run_mark mark;
    int64_t after; /* checkpoints of steps after this step are set aside; -1: all checkpoints */
    char origin[PATH_MAX], folder[PATH_MAX];
} run_record;

/* True if `text` is a valid run id. "" is not. */
bool run_id_is_valid(const char *text);
/* Reads run.json of `folder`. If there is none, *out is an empty record. */
ott_status run_record_read(mem *account, const char *folder, run_record *out);
ott_status run_record_write(mem *account, const char *folder, const run_record *r);

#endif
