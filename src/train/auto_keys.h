/* train/auto_keys: gives a value to configuration keys that depend on the date or the machine: data.chat_date,
   and the keys accumulate with the value "auto". A resumed run keeps its values. */
#ifndef TRAIN_AUTO_KEYS_H
#define TRAIN_AUTO_KEYS_H

#include "train/process_group.h"

/* Rank 0 chooses for all ranks. Collective; all ranks have the same configuration. */
ott_status auto_keys_choose(mem *account, process_group *pg, const device *d, config *cfg);

#endif
