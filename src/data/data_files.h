/* data/data_files: which files a dataset's path means, and what they are. Internal to data/data. */
#ifndef DATA_DATA_FILES_H
#define DATA_DATA_FILES_H

#include "base/file.h"
#include "config/config.h"

/*
 * The files of a path: itself; of a folder, those that match `pattern` ("": the first that any file matches
 * of
 * *.npy, *.bin, *.jsonl, *.txt); of a pattern (shards/web_*.bin), those that match its last part; of
 * Megatron's prefix, PATH.bin. In the order of their names, freed with file_list_free. OTT_ERR_NOT_FOUND when
 * there is none.
 */
ott_status data_files_find(mem *account, const char *path, const char *pattern, file_list *out);

/* What DATA_AUTO stands for: decided by the name of the first file, and a JSONL's first row. */
ott_status data_files_format(mem *account, const file_list *files, const config *cfg, bool has_tokenizer,
                             config_data_format *out);

#endif
