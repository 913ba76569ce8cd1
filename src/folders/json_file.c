/* folders/json_file: JSON files with a checksum. */
#include "folders/json_file.h"
#include "base/file/file.h"
#include "base/json/json_text.h"
#include <stdlib.h>
#include <string.h>

static ott_status fail_json_memory(void) {
    return status_fail(OTT_ERR_MEMORY, "out of memory: a checkpoint's state");
}

/* Computes the CRC-32C of the canonical text of an object. */
static ott_status object_crc(const json_t *object, uint32_t *crc) {
    char *text = json_dumps(object, JSON_SORT_KEYS | JSON_REAL_PRECISION(17) | JSON_COMPACT);
    if (!text) return fail_json_memory();
    *crc = file_crc32c(0, text, (int64_t)strlen(text));
    free(text);
    return OTT_OK;
}

ott_status json_file_print(json_t *root, str *out) {
    uint32_t crc = 0;
    if (!root) return fail_json_memory();
    TRY(object_crc(root, &crc));
    if (json_object_set_new(root, "crc32c", json_integer(crc)) != 0) return fail_json_memory();
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text) return fail_json_memory();
    str_printf(out, "%s\n", text);
    free(text);
    return str_finish(out);
}

ott_status json_file_load(mem *account, const char *path, int64_t limit, json_t **root) {
    char *text;
    int64_t bytes;
    json_error_t error;
    *root = NULL;
    TRY(file_read(account, path, limit, &text, &bytes));
    ott_status status = json_text_parse(text, bytes, JSON_REJECT_DUPLICATES, root, &error);
    mem_free(account, text);
    if (status != OTT_OK || *root) return status_context(status, "%s", path);
    return status_fail(OTT_ERR_FORMAT, "%s: line %d: is not JSON: %s", path, error.line, error.text);
}

ott_status json_file_check(const char *path, json_t *root) {
    const json_t *stored = json_object_get(root, "crc32c");
    if (!json_is_integer(stored)) return status_fail(OTT_ERR_FORMAT, "%s: 'crc32c' is missing", path);
    int64_t expected = json_integer_value(stored);
    uint32_t crc = 0;
    json_object_del(root, "crc32c");
    TRY(object_crc(root, &crc));
    if (crc == expected) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "%s: is damaged: its checksum does not match", path);
}

ott_status json_file_read(mem *account, const char *path, int64_t limit, json_t **root) {
    TRY(json_file_load(account, path, limit, root));
    ott_status status = json_file_check(path, *root);
    if (status == OTT_OK) return OTT_OK;
    json_decref(*root);
    *root = NULL;
    return status;
}
