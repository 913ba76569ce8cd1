/*
 * checkpoint/json: JSON files with a checksum. The last member "crc32c" is the CRC-32C of all other members,
 * printed compactly with sorted keys. Internal to src/checkpoint.
 */
#ifndef CHECKPOINT_JSON_H
#define CHECKPOINT_JSON_H

#include "base/str.h"
#include <jansson.h>

/* Adds the checksum to `root` and appends its text to out. root NULL: fails with OTT_ERR_MEMORY. */
ott_status checkpoint_json_print(json_t *root, str *out);
/* Reads and parses a JSON file of at most `limit` bytes. */
ott_status checkpoint_json_load(mem *account, const char *path, int64_t limit, json_t **root);
/* Verifies the checksum and removes it from `root`. OTT_ERR_FORMAT if it is missing or wrong. */
ott_status checkpoint_json_check(const char *path, json_t *root);
/* Reads a file and verifies it. The caller frees *root with json_decref. */
ott_status checkpoint_json_read(mem *account, const char *path, int64_t limit, json_t **root);

#endif
