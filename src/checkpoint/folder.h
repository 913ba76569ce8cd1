/* checkpoint/folder: lists the checkpoints in a folder and verifies them. Internal to src/checkpoint. */
#ifndef CHECKPOINT_FOLDER_H
#define CHECKPOINT_FOLDER_H

#include "folders/ranks.h"
#include "checkpoint/state.h"
#include "formats/safetensors/safetensors.h"

/* The step numbers N of the step-N folders, ascending. The caller frees `steps` with mem_free. */
typedef struct step_list {
    int64_t *steps, count;
} step_list;

/* Lists the checkpoints of the run that owns the folder, if their step is at most run_record.after. */
ott_status checkpoint_list(mem *account, const char *folder, step_list *out);
/* Like checkpoint_list, but with the folder's run.json r, which the caller has already read. */
ott_status checkpoint_list_of(mem *account, const char *folder, const run_record *r, step_list *out);
/* Reads the run and the branch of a checkpoint. If state.json cannot be read: run "", branch 1. */
ott_status checkpoint_mark(mem *account, const char *path, run_mark *out);
/* True if the name is "step-N". */
bool checkpoint_is_step(const char *name, int64_t *step);
/* True if the name is "abandoned-BRANCH-step-N". */
bool checkpoint_is_abandoned(const char *name, int64_t *branch);

/* *out = the size of a file, and the contribution of one range of its bytes to its CRC-32C. The file is
   divided into `shares` equal ranges; `share` is the index of the range. The CRC is the XOR of all
   contributions. buffer: memory for reading in pieces. w: cancellation, or NULL. */
ott_status checkpoint_measure(const char *path, int share, int shares, void *buffer, int64_t buffer_bytes,
                              const cancellation *w, checkpoint_file *out);
/* Reads state.json and compares the sizes of all files with it; if `contents`, also their checksums. */
ott_status checkpoint_verify(mem *account, const char *path, bool contents, const cancellation *w,
                             checkpoint_state *s);
/* Like checkpoint_verify with `contents`, but collective: each rank reads an equal share of every file. */
ott_status checkpoint_verify_shared(const checkpoint_ranks *ranks, const char *path, const cancellation *w,
                                    checkpoint_state *s);
/* Opens one of the safetensors files of a checkpoint. */
ott_status checkpoint_file_open(mem *account, const char *folder, enum checkpoint_file_id id,
                                safetensors **out);

/* Adds to the current error text which complete checkpoint next to `path` is the newest. Returns `code`. */
ott_status checkpoint_suggest_newest(mem *account, const char *path, ott_status code);

#endif
