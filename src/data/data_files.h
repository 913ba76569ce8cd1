/* data/data_files: finds the files of a dataset's path and their format. Internal to data/data. */
#ifndef DATA_DATA_FILES_H
#define DATA_DATA_FILES_H

#include "base/file/file.h"
#include "config/config.h"
#include <limits.h>

/*
 * Lists the files of a path, sorted by name; free with file_list_free. The path may be
 * - a file;
 * - a folder: its files that match `pattern`. If `pattern` is "", the first of these patterns that matches
 *   any file: *.npy, *.bin, *.jsonl, *.jsonl.gz, *.jsonl.zst, *.txt, *.txt.gz, *.txt.zst;
 * - a pattern (shards/web_*.bin): the files that match its last component;
 * - Megatron's prefix: PATH.bin.
 * OTT_ERR_NOT_FOUND if there is no such file.
 */
ott_status data_files_find(mem *account, const char *path, const char *pattern, file_list *out);

/* Finds the format that DATA_AUTO means: by the first file's name and, if it is JSONL, by its first row. */
ott_status data_files_format(mem *account, const file_list *files, const config *cfg, bool has_tokenizer,
                             config_data_format *out);

/* Splits "path=weight" or "path=weight name" of data.datasets. Without "=", the weight is 1. */
ott_status data_files_split_weight(const char *text, char path[PATH_MAX], double *weight);
/* Returns `pattern` if config key `key` was given; else "", which means a folder's default patterns. */
const char *data_files_pattern(const config *cfg, const char *key, const char *pattern);

#endif
