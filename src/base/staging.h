/* base/staging: writes a folder so that it is complete or absent. The folder is written under a temporary
   name next to its target, synced and renamed. A file_writer does this for a file. Temporary files of killed
   processes are removed by the next writer. */
#ifndef BASE_STAGING_H
#define BASE_STAGING_H

#include "base/text/str.h"

/* Remove temporary files of ended processes: staging_remove_stale_in all in `folder`, staging_remove_stale
   only those for `path`. Ignores files that cannot be read or removed. OTT_ERR_MEMORY is the only error. */
ott_status staging_remove_stale(mem *account, const char *path);
ott_status staging_remove_stale_in(mem *account, const char *folder);

/* A folder that is being written. */
typedef struct staging {
    str path, goal; /* temporary path; path of the finished folder */
} staging;

/* Removes stale temporary folders and creates the folder out->path. */
ott_status staging_open(mem *account, const char *goal, staging *out);
/* Ends writing and closes s. If status is OTT_OK, syncs every file and replaces the folder s->goal. If status
   is an error, or an error occurs here, removes the temporary folder and returns the error. */
ott_status staging_end(staging *s, ott_status status);

#endif
