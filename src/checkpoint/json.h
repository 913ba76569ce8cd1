/*
 * checkpoint/json: the JSON files of a checkpoint. Their last member, "crc32c", is the CRC-32C of all
 * the others, written compact and with sorted keys. Internal to this floor.
 */
#ifndef CHECKPOINT_JSON_H
#define CHECKPOINT_JSON_H

#include "base/str.h"
#include <jansson.h>

/* Adds the checksum to `root` (NULL: memory ran out while it was made) and appends its text. */
ott_status checkpoint_json_print(json_t *root, str *out);
/* Reads a file that is JSON, whole. */
ott_status checkpoint_json_load(mem *account, const char *path, int64_t limit, json_t **root);
/* Takes the checksum off again. OTT_ERR_FORMAT when it is another. */
ott_status checkpoint_json_check(const char *path, json_t *root);
/* Both; the object is given back with json_decref. */
ott_status checkpoint_json_read(mem *account, const char *path, int64_t limit, json_t **root);

#endif
