/* train/shared_folder: whether all ranks of a run see the same folder, before they need it. */
#ifndef TRAIN_SHARED_FOLDER_H
#define TRAIN_SHARED_FOLDER_H

#include "train/process_group.h"

/* Rank 0 makes the folder if it is not there and puts a file with a random name into it; every rank looks for the file, and
   rank 0 removes it. OTT_ERR_RANK on all ranks if one does not see it: the message names that rank, the folder and `key`,
   which decides where the folder is. Every rank calls it. */
ott_status shared_folder_check(process_group *pg, const char *folder, const char *key);

#endif
