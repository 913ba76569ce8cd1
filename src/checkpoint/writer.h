/*
 * checkpoint/writer: writes the checkpoints of a run. Saving copies the training state to a host buffer,
 * and a thread writes the copy while training continues. With checkpoint.async_mode =
 * "disabled" (the default) or checkpoint.interval = 0 saving waits for the write; the files do not differ.
 * At most one write is in flight; the next save waits for it. Call all functions from one thread; only that
 * thread logs.
 */
#ifndef CHECKPOINT_WRITER_H
#define CHECKPOINT_WRITER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_history.h"

typedef struct checkpoint_writer checkpoint_writer;

/* Opens a writer for checkpoints of m in `folder`, with checkpoint.keep_last_n and checkpoint.async_mode of
   cfg, written by `ranks` (NULL: one rank). All arguments are borrowed. OTT_ERR_MEMORY if the host copy
   (MEM_STAGING) cannot be allocated. */
ott_status checkpoint_writer_open(const model *m, const logger *log, const config *cfg, const char *folder,
                                  group *ranks, checkpoint_writer **out);
/* Sets the text of sources.json for all later checkpoints; the text is borrowed. */
void checkpoint_writer_keep_sources(checkpoint_writer *w, const char *text);
/* *bytes = the size of the host copy on this rank, if `ranks` write (NULL: one rank); 0 without a copy. */
ott_status checkpoint_writer_staging(const model *m, const config *cfg, group *ranks, int64_t *bytes);
/* Saves step-N as checkpoint_save does, with the run's history (NULL: none). If no thread can be started, it
   warns and waits for the write. After the write the log prints "Saved PATH", and a warning if an old
   checkpoint could not be removed. If the previous write failed, returns its error and saves nothing. */
ott_status checkpoint_writer_save(checkpoint_writer *w, const char *recipe_name, const run_state *run,
                                  const run_history *history);
/* Returns the error of a completed write, without waiting. With several ranks the error is reported by the
   next save or wait instead, because ranks poll at different times. */
ott_status checkpoint_writer_poll(checkpoint_writer *w);
/* Waits for the write in flight and returns its error. */
ott_status checkpoint_writer_wait(checkpoint_writer *w);
/* Waits for the write in flight and logs its error. Does not change status_text(). w may be NULL. */
void checkpoint_writer_close(checkpoint_writer *w);

#endif
