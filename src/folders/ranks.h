/* folders/ranks: small host-side collectives. All ranks make the same calls in the same order. */
#ifndef FOLDERS_RANKS_H
#define FOLDERS_RANKS_H

#include "base/text/str.h"
#include "tensor/exec.h"

typedef struct checkpoint_ranks {
    group *group; /* borrowed; NULL if there is only one rank */
    device *device;
} checkpoint_ranks;

int ranks_size(const checkpoint_ranks *r);
int ranks_own_rank(const checkpoint_ranks *r); /* number of this rank in the group */
/* All-gathers `bytes` bytes of each rank, in rank order: all[size][bytes]. */
ott_status ranks_gather(const checkpoint_ranks *r, const void *mine, int64_t bytes, void *all);
/* Returns OTT_OK if all ranks pass OTT_OK. Else all ranks return the error of the first failed rank, with its
   rank in the text. If every rank failed, each returns its own error. */
ott_status ranks_agree(const checkpoint_ranks *r, ott_status status);

/* All-reduce (max) of values[count]; the result is NaN where a rank has a NaN. */
ott_status ranks_max(const checkpoint_ranks *r, float *values, int64_t count);

/* Writes a folder that is complete or absent: rank 0 creates a staging folder, all ranks fill it, rank 0
   renames it to `goal`. If `ready` is an error on a rank, writes nothing. All ranks return the same error. */
typedef ott_status (*ranks_fill)(void *user, const char *folder);
ott_status ranks_write_folder(const checkpoint_ranks *r, ott_status ready, const char *goal, ranks_fill fill,
                              void *user);

#endif
