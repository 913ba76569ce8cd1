/* formats/tensorboard: writes scalars for TensorBoard. An event file is a sequence of TFRecords. A TFRecord
   holds a protocol buffer of type Event. It is encoded here, without a library, because it has only five
   fields. */
#ifndef FORMATS_TENSORBOARD_H
#define FORMATS_TENSORBOARD_H

#include "base/mem.h"

typedef struct tensorboard_writer tensorboard_writer;

/* Creates `folder` if needed, and in it a new file events.out.tfevents.TIME.HOST.PID. first_step is 0 for a
   new run. A resumed run passes its first step: TensorBoard then discards older points from that step on. */
ott_status tensorboard_open(mem *account, const char *folder, int64_t first_step, tensorboard_writer **out);
/* Queues one point with the current time. */
ott_status tensorboard_scalar(tensorboard_writer *w, int64_t step, const char *tag, float value);
/* Writes the collected scalars. Call it once per logged step. After a failure all later calls fail. */
ott_status tensorboard_flush(tensorboard_writer *w);
ott_status tensorboard_close(tensorboard_writer *w); /* writes the queue; NULL is allowed */

#endif
