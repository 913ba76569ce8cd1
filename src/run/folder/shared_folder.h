/* run/folder/shared_folder: checks that all ranks see the same folder. */
#ifndef RUN_FOLDER_SHARED_FOLDER_H
#define RUN_FOLDER_SHARED_FOLDER_H

#include "run/process_group.h"

/* Rank 0 creates the folder, if needed, and a file with a random name in it. Every rank looks for that file,
   then rank 0 removes it. OTT_ERR_RANK on all ranks if one rank does not see the file. The message has that
   rank, the folder and `key`, the configuration key of the folder. Collective. */
ott_status shared_folder_check(process_group *pg, const char *folder, const char *key);

#endif
