/* checkpoint/run_record: reads and writes run.json. */
#include "checkpoint/run_record.h"
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "base/json/json_text.h"
#include "base/json/json_write.h"
#include <jansson.h>
#include <string.h>

enum { RECORD_LIMIT = 3 * PATH_MAX }; /* largest accepted run.json, in bytes */

bool run_id_is_valid(const char *text) {
    return strlen(text) == RUN_ID_LENGTH && strspn(text, "0123456789abcdef") == RUN_ID_LENGTH;
}

static ott_status parse_path(json_t *root, const char *key, char out[PATH_MAX]) {
    const char *text = "";
    TRY(json_member_text(root, key, JSON_OPTIONAL, &text));
    if (strlen(text) >= PATH_MAX) return status_fail(OTT_ERR_FORMAT, "%s is too long for a path", key);
    strcpy(out, text);
    return OTT_OK;
}

static ott_status parse_members(json_t *root, run_record *out) {
    const char *id = json_string_value(json_object_get(root, "run"));
    if (!id || !run_id_is_valid(id)) return status_fail(OTT_ERR_FORMAT, "run is not the id of a run");
    strcpy(out->mark.run, id);
    TRY(json_member_integer(root, "branch", JSON_OPTIONAL, 1, INT64_MAX, &out->mark.branch));
    TRY(json_member_integer(root, "after", JSON_OPTIONAL, -1, INT64_MAX, &out->after));
    TRY(parse_path(root, "origin", out->origin));
    return parse_path(root, "folder", out->folder);
}

ott_status run_record_read(mem *account, const char *folder, run_record *out) {
    char path[PATH_MAX], *text = NULL;
    int64_t bytes;
    json_error_t error;
    json_t *root = NULL;
    ott_status status;
    *out = (run_record){.mark.branch = 1, .after = INT64_MAX};
    TRY(file_join(folder, RUN_RECORD_NAME, path));
    if (!file_exists(path)) return OTT_OK;
    TRY_OUT(file_read(account, path, RECORD_LIMIT, &text, &bytes));
    TRY_OUT(json_text_parse(text, bytes, JSON_REJECT_DUPLICATES, &root, &error));
    status = root ? parse_members(root, out) : status_fail(OTT_ERR_FORMAT, "is not JSON: %s", error.text);
    if (status == OTT_ERR_FORMAT)
        status = status_fail(status, "%s: %s; remove it; the next training run in %s creates it", path,
                             status_text(), folder);
out:
    json_decref(root);
    mem_free(account, text);
    return status;
}

ott_status run_record_write(mem *account, const char *folder, const run_record *r) {
    char path[PATH_MAX];
    str text = {.account = account};
    ott_status status;
    str_append(&text, "{");
    json_write_text(&text, "run", r->mark.run);
    if (r->mark.branch > 1) json_write_integer(&text, "branch", r->mark.branch);
    if (r->after != INT64_MAX) json_write_integer(&text, "after", r->after);
    if (*r->origin) json_write_text(&text, "origin", r->origin);
    if (*r->folder) json_write_text(&text, "folder", r->folder);
    str_append(&text, "}\n");
    TRY_OUT(str_finish(&text));
    TRY_OUT(file_join(folder, RUN_RECORD_NAME, path));
    TRY_OUT(file_write_atomic(path, text.text, text.length));
out:
    str_free(&text);
    return status;
}
