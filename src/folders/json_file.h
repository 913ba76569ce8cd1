/*
 * folders/json_file: JSON files with a checksum. The last member "crc32c" is the CRC-32C of all other
 * members, printed compactly with sorted keys. Internal to src/folders.
 */
#ifndef FOLDERS_JSON_FILE_H
#define FOLDERS_JSON_FILE_H

#include "base/text/str.h"
#include <jansson.h>

/* Adds the checksum to `root` and appends its text to out. root NULL: fails with OTT_ERR_MEMORY. */
ott_status json_file_print(json_t *root, str *out);
/* Reads and parses a JSON file of at most `limit` bytes. */
ott_status json_file_load(mem *account, const char *path, int64_t limit, json_t **root);
/* Verifies the checksum and removes it from `root`. OTT_ERR_FORMAT if it is missing or wrong. */
ott_status json_file_check(const char *path, json_t *root);
/* Reads a file and verifies it. The caller frees *root with json_decref. */
ott_status json_file_read(mem *account, const char *path, int64_t limit, json_t **root);

#endif
