/* base/staging: what is written is complete or absent. A folder is written under a name of its own beside its
   place, synced and renamed; a file_writer does the same with a file. What a killed process leaves is removed
   by the next one. */
#ifndef BASE_STAGING_H
#define BASE_STAGING_H

#include "base/str.h"

/* Removes what processes that are gone left of `path`, or, of a folder, of all that it holds. What cannot be looked at or
   removed is no reason not to write: OTT_ERR_MEMORY is the only error. */
ott_status staging_remove_stale(mem *account, const char *path);
ott_status staging_remove_stale_in(mem *account, const char *folder);

/* A folder that is being written. */
typedef struct staging {
    str path, goal; /* where it is written, where it will be */
} staging;

/* Removes what is stale and makes the folder `out->path`. */
ott_status staging_open(mem *account, const char *goal, staging *out);
/* status is that of writing. OTT_OK: syncs every file and takes the goal's place, where an older folder is replaced. Else, or
   when that fails, removes what was written and returns the error, which is the one told. Closes s. */
ott_status staging_end(staging *s, ott_status status);

#endif
