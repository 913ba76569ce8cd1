/*
 * checkpoint/run_record: what a folder's run.json says of the run that it is of. There are two of them:
 *
 *     RUN/run.json          {"run": "9f2c6a3be1d40587", "origin": "/elsewhere/step-30"}
 *     CHECKPOINTS/run.json  {"run": "9f2c6a3be1d40587", "branch": 2, "folder": "/the/RUN"}
 *
 * origin: the checkpoint of another run that this one began with. folder: the run's, when the checkpoints lie
 * outside of it. While checkpoints are being set aside the second file says "after": those of later steps
 * count as set aside whatever they are called, so that the change is made by one write, and the renaming that
 * a killed process left undone is done by the next.
 */
#ifndef CHECKPOINT_RUN_RECORD_H
#define CHECKPOINT_RUN_RECORD_H

#include "base/mem.h"
#include <limits.h>
#include <stdbool.h>

#define RUN_RECORD_NAME "run.json"

enum { RUN_ID_LENGTH = 16 }; /* hexadecimal digits */

/* What is known of a checkpoint's run; run "": nothing. */
typedef struct run_mark {
    char run[RUN_ID_LENGTH + 1];
    int64_t branch; /* 1 is the first */
} run_mark;

/* A run.json; what it does not say is "", and `after` INT64_MAX. */
typedef struct run_record {
    run_mark mark;
    int64_t after; /* checkpoints of later steps are being set aside; -1: all */
    char origin[PATH_MAX], folder[PATH_MAX];
} run_record;

/* Is `text` what run_mark.run may be, "" apart? */
bool run_id_is_valid(const char *text);
/* An absent file is an empty record. */
ott_status run_record_read(mem *account, const char *folder, run_record *out);
ott_status run_record_write(mem *account, const char *folder, const run_record *r);

#endif
