/*
 * checkpoint/writer: the checkpoints of a run. With checkpoint.async_mode = "disabled", or
 * checkpoint.interval = 0, each is written when it is saved. Otherwise saving copies the training state into
 * host memory, which is taken once, and a thread writes the copy while training goes on: the same files, byte
 * for byte. At most one is being written; the next save waits for it. All calls come from one thread, which
 * alone logs.
 */
#ifndef CHECKPOINT_WRITER_H
#define CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_history.h"

typedef struct checkpoint_writer checkpoint_writer;

/* For checkpoints of m with checkpoint.keep_last_n and checkpoint.async_mode of cfg, in `folder`, by `ranks` (NULL: one); all
   borrowed. OTT_ERR_MEMORY when the copy's memory (MEM_STAGING) cannot be had. */
ott_status checkpoint_writer_open(const model *m, const logger *log, const config *cfg, const char *folder,
                                  group *ranks, checkpoint_writer **out);
/* Every checkpoint from now on has this as its sources.json; borrowed. */
void checkpoint_writer_keep_sources(checkpoint_writer *w, const char *text);
/* How much that copy takes, at most; 0 when nothing is staged. Of a model on a dry run (tensor/dry_run.h) too. */
ott_status checkpoint_writer_staging(const model *m, const config *cfg, int64_t *bytes);
/* Saves step-N as checkpoint_save does, and the run's history (NULL: none) with it; where no thread can be started, before it returns, with a warning.
   The log says "Saved PATH" once it is complete and old ones are gone, and warns of one that cannot be
   removed. An error of the write before, if any, comes first, and nothing is saved then. */
ott_status checkpoint_writer_save(checkpoint_writer *w, const char *recipe_name, const run_state *run,
                                  const run_history *history);
/* The error of a write that has ended since; does not wait. Ranks come here at different moments: of several, each has the
   error at the next save or wait. */
ott_status checkpoint_writer_poll(checkpoint_writer *w);
/* The same, waiting for the end. */
ott_status checkpoint_writer_wait(checkpoint_writer *w);
/* Waits as well; leaves the error text alone, and logs an error of the write. NULL is allowed. */
void checkpoint_writer_close(checkpoint_writer *w);

#endif
