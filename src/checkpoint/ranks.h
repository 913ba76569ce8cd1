/*
 * checkpoint/ranks: what ranks that save or load together tell each other, in small pieces of host memory. Every
 * rank of the group makes the same calls in the same order. A group that is NULL is one rank alone.
 */
#ifndef CHECKPOINT_RANKS_H
#define CHECKPOINT_RANKS_H

#include "base/str.h"
#include "tensor/exec.h"

typedef struct checkpoint_ranks {
    group *group; /* borrowed; NULL: one rank */
    device *device;
} checkpoint_ranks;

int ranks_size(const checkpoint_ranks *r);
int ranks_own_rank(const checkpoint_ranks *r); /* this one's number */
/* What each rank has, in rank order: all[size][bytes]. */
ott_status ranks_gather(const checkpoint_ranks *r, const void *mine, int64_t bytes, void *all);
/* How it went with all: OTT_OK when it did with each. Else the error of the first that failed, told by every rank with its
   number; one that every rank has stays each one's own. */
ott_status ranks_agree(const checkpoint_ranks *r, ott_status status);

/* The largest of all ranks, one for each of values[count]; NaN where one is. */
ott_status ranks_max(const checkpoint_ranks *r, float *values, int64_t count);

/* Writes a folder together, complete or absent: rank 0 makes it aside, all fill it, and rank 0 lets it take the goal's place when
   all have. `ready`: how what comes before went. Every rank has the same error. */
typedef ott_status (*ranks_fill)(void *user, const char *folder);
ott_status ranks_write_folder(const checkpoint_ranks *r, ott_status ready, const char *goal, ranks_fill fill,
                              void *user);

#endif
