/* run/auto_keys: sets keys that depend on date or machine: data.chat_date, float8.accumulate and
   train.bf16_accumulate. A resumed run keeps the values it began with. */
#ifndef RUN_AUTO_KEYS_H
#define RUN_AUTO_KEYS_H

#include "run/process_group.h"

/* Replaces the values "auto" of float8.accumulate and train.bf16_accumulate, and an empty data.chat_date.
   Rank 0 chooses for all ranks. Collective; all ranks have the same configuration. */
ott_status auto_keys_choose(mem *account, process_group *pg, const device *d, config *cfg);

#endif
