/*
 * checkpoint/snapshot: what a checkpoint will hold, apart from when and where it is written: sets of
 * named tensors and a few small texts. Taking one copies no tensor; staging one copies all of them, and from
 * then on the model is not needed, so that any thread may write it. Of several ranks each has what it will write; they
 * take and write a snapshot together. Internal to this floor.
 */
#ifndef CHECKPOINT_SNAPSHOT_H
#define CHECKPOINT_SNAPSHOT_H

#include "base/str.h"
#include "checkpoint/state.h"
#include "checkpoint/tensors.h"

typedef struct checkpoint_snapshot {
    mem *account;
    checkpoint_ranks ranks;             /* that write it */
    tensor_set sets[CHECKPOINT_CONFIG]; /* the files of tensors, which come before it */
    str config;                         /* text of config.toml */
    str history;                        /* text of history.json; empty: it has none */
    const char *sources;                /* text of sources.json, borrowed; NULL: it has none */
    bool excludes_base;                 /* frozen parameters are in the folder state.base, not here */
    checkpoint_state state;             /* but for the sizes and checksums of the files */
} checkpoint_snapshot;

/* Its tensors are the model's, valid until the next step. `ranks`: which write it together, NULL: this one alone what it
   has. Closed with checkpoint_snapshot_close, also when this fails. */
ott_status checkpoint_snapshot_take(const model *m, const config *cfg, const char *recipe_name,
                                    const run_state *run, group *ranks, checkpoint_snapshot *out);
/* Of host memory that staging needs. */
int64_t checkpoint_snapshot_bytes(const checkpoint_snapshot *s);
/* Copies every tensor to `memory`, which must outlive the snapshot. */
ott_status checkpoint_snapshot_stage(checkpoint_snapshot *s, void *memory);
void checkpoint_snapshot_close(checkpoint_snapshot *s); /* an all-zero one is allowed */

/* ---- writing it ---- */

/* Its files into a folder that is there, each rank its part of them; those of sets that were not opened, and of no
   configuration, are left out. All ranks return the same, but for what only rank 0 writes when the tensors are there. */
ott_status checkpoint_snapshot_fill(const checkpoint_snapshot *s, const run_mark *mark, const char *folder);
/* A checkpoint of no run, at `path`, complete or absent; one that is there is replaced. */
ott_status checkpoint_snapshot_put(const checkpoint_snapshot *s, const char *path);

/* A set alone, as a file in a folder that is staged; each rank writes its part of it. */
ott_status checkpoint_snapshot_put_set(mem *account, const checkpoint_ranks *ranks, const tensor_set *set,
                                       const char *path);

/* What a write has come to. */
typedef struct checkpoint_written {
    mem *account;
    char *path; /* of the checkpoint */
    char *left; /* why an older one that should be gone is still there, NULL: none is */
} checkpoint_written;

/* What checkpoint_save does with a snapshot. */
ott_status checkpoint_snapshot_write(const checkpoint_snapshot *s, const char *folder, int64_t keep,
                                     checkpoint_written *out);
void checkpoint_written_log(const checkpoint_written *w, const logger *log);
void checkpoint_written_free(checkpoint_written *w); /* an all-zero one is allowed */

#endif
