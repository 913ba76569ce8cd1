/* formats/hf/hub_name: detects hub names. */
#include "formats/hf/hub_name.h"
#include "base/file/file.h"
#include <stdio.h>
#include <string.h>

bool hub_name_is(const char *path) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t owner = strspn(path, letters);
    if (path[0] == '.' || path[0] == '-' || owner == 0 || path[owner] != '/') return false;
    const char *model = path + owner + 1;
    return *model && strspn(model, letters) == strlen(model) && !file_exists(path);
}

ott_status hub_name_fail(const char *where, const char *name, const char *option) {
    return status_fail(OTT_ERR_CONFIG,
                       "%s: there is no such folder; a model of the Hugging Face hub must be downloaded "
                       "first (hf download %s --local-dir FOLDER) and set with %sFOLDER",
                       where, name, option);
}

ott_status hub_name_check(const config *cfg, const char *key, const char *value) {
    char option[96];
    snprintf(option, sizeof option, "--%s=", key);
    return hub_name_is(value) ? hub_name_fail(config_where(cfg, key), value, option) : OTT_OK;
}
