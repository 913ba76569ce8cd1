/*
 * formats/tensorboard: scalars as TensorBoard reads them: an event file is TFRecords (length, checksum, data,
 * checksum) around protocol buffers of type Event, written by hand here since only five fields are needed.
 */
#ifndef FORMATS_TENSORBOARD_H
#define FORMATS_TENSORBOARD_H

#include "base/mem.h"

typedef struct tensorboard_writer tensorboard_writer;

/*
 * Makes `folder` when it is missing, and in it a new file events.out.tfevents.TIME.HOST.PID. A run that
 * resumes gives the first step it will write: TensorBoard then drops what earlier files say of that step and
 * later ones. 0: a new run.
 */
ott_status tensorboard_open(mem *account, const char *folder, int64_t first_step, tensorboard_writer **out);
/* Queues one point, stamped with the present time. */
ott_status tensorboard_scalar(tensorboard_writer *w, int64_t step, const char *tag, float value);
/* Hands what is queued to the system: call it once a step that logs. After a failure every later call fails.
 */
ott_status tensorboard_flush(tensorboard_writer *w);
ott_status tensorboard_close(tensorboard_writer *w); /* flushes; NULL is allowed */

#endif
