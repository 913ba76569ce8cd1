/*
 * checkpoint/folder: the folders of checkpoints: which there are, and whether one is complete.
 * Internal to this floor.
 */
#ifndef CHECKPOINT_FOLDER_H
#define CHECKPOINT_FOLDER_H

#include "checkpoint/ranks.h"
#include "checkpoint/state.h"
#include "formats/safetensors.h"

/* The numbers N of the folders `folder`/step-N, ascending; owned by the caller (mem_free). */
typedef struct step_list {
    int64_t *steps, count;
} step_list;

/* Those of the folder's run: checkpoints of another, and those that are being set aside, are not among them.
 */
ott_status checkpoint_list(mem *account, const char *folder, step_list *out);
/* The same when the folder's record is `r`. */
ott_status checkpoint_list_of(mem *account, const char *folder, const run_record *r, step_list *out);
/* Whose a checkpoint is; nobody's, of branch 1, when its state cannot be read. */
ott_status checkpoint_mark(mem *account, const char *path, run_mark *out);
/* Is it "step-N"? */
bool checkpoint_is_step(const char *name, int64_t *step);
/* Is it "abandoned-BRANCH-step-N"? */
bool checkpoint_is_abandoned(const char *name, int64_t *branch);

/* Size and CRC-32C of a file, read in pieces through `buffer`; `w`, which may be NULL, may end it. */
ott_status checkpoint_measure(const char *path, void *buffer, int64_t buffer_bytes, const cancellation *w,
                              checkpoint_file *out);
/* Reads state.json and compares every file's size, and its contents too when `contents`, with it. */
ott_status checkpoint_verify(mem *account, const char *path, bool contents, const cancellation *w,
                             checkpoint_state *s);
/* The same with the contents, by ranks that call it together: each reads its share of every file. */
ott_status checkpoint_verify_shared(const checkpoint_ranks *ranks, const char *path, const cancellation *w,
                                    checkpoint_state *s);
/* Opens a file of tensors. */
ott_status checkpoint_file_open(mem *account, const char *folder, enum checkpoint_file_id id,
                                safetensors **out);

#endif
