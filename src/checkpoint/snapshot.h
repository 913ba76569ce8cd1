/*
 * checkpoint/snapshot: the contents of a checkpoint, independent of when and where it is written: sets of
 * named tensors and a few texts. Taking a snapshot copies no tensor. Staging copies all tensors to the host;
 * then any thread may write them while training continues. Each rank's snapshot has the slices that the rank
 * writes; taking and writing are collective. Internal to src/checkpoint.
 */
#ifndef CHECKPOINT_SNAPSHOT_H
#define CHECKPOINT_SNAPSHOT_H

#include "base/text/str.h"
#include "checkpoint/state.h"
#include "folders/tensors.h"

typedef struct checkpoint_snapshot {
    mem *account;
    checkpoint_ranks ranks;             /* the ranks that write the snapshot */
    tensor_set sets[CHECKPOINT_CONFIG]; /* one set per safetensors file, in file order */
    str config;                         /* text of config.toml */
    str history;                        /* text of history.json; empty: no file */
    const char *sources;                /* text of sources.json, borrowed; NULL: no file */
    /* the frozen base weights are not in the snapshot, but in the folder state.base */
    bool excludes_base;
    checkpoint_state state; /* complete except for file sizes and checksums */
} checkpoint_snapshot;

/* Takes a snapshot of m, valid until the next step: its tensors are in the model's memory. ranks: the group
   that writes it (NULL: one rank). Close with checkpoint_snapshot_close, even after an error. */
ott_status checkpoint_snapshot_take(const model *m, const config *cfg, const char *recipe_name,
                                    const run_state *run, group *ranks, checkpoint_snapshot *out);
/* Returns the bytes of host memory that staging needs. */
int64_t checkpoint_snapshot_bytes(const checkpoint_snapshot *s);
/* Copies all device tensors to `memory`, which must outlive the snapshot. */
ott_status checkpoint_snapshot_stage(checkpoint_snapshot *s, void *memory);
void checkpoint_snapshot_close(checkpoint_snapshot *s); /* an all-zero *s is allowed */

/* ---- writing ---- */

/* Writes the files into an existing folder; each rank writes its slices. Writes no file for a tensor set that
   was not opened, and no config.toml if its text is empty. All ranks return the same error, except for errors
   in config.toml and the JSON files, which only rank 0 writes. */
ott_status checkpoint_snapshot_fill(const checkpoint_snapshot *s, const run_mark *mark, const char *folder);
/* Writes a checkpoint that belongs to no run, to `path`, complete or absent. Replaces an old one. */
ott_status checkpoint_snapshot_put(const checkpoint_snapshot *s, const char *path);

/* Result of a write. */
typedef struct checkpoint_written {
    mem *account;
    char *path; /* path of the checkpoint */
    char *left; /* why an old checkpoint could not be removed; NULL if all removals worked */
} checkpoint_written;

/* Writes the snapshot as checkpoint_save does. */
ott_status checkpoint_snapshot_write(const checkpoint_snapshot *s, const char *folder, int64_t keep,
                                     checkpoint_written *out);
void checkpoint_written_log(const checkpoint_written *w, const logger *log);
void checkpoint_written_free(checkpoint_written *w); /* an all-zero *w is allowed */

#endif
