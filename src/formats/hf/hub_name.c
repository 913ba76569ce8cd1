/* formats/hf/hub_name: detects hub names and finds their folders in the cache. */
#include "formats/hf/hub_name.h"
#include "base/file/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the part of a hub name at `text`. The hub forbids "--" and "..", and a dash or dot at the ends,
   so that a name cannot leave the cache's folder. */
static size_t part_length(const char *text) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t length = strspn(text, letters);
    if (length == 0 || length > 96 || strchr("-.", text[0]) || strchr("-.", text[length - 1])) return 0;
    for (size_t i = 1; i < length; i++)
        if (strchr("-.", text[i]) && text[i] == text[i - 1]) return 0;
    return length;
}

bool hub_name_is_valid(const char *name) {
    size_t owner = part_length(name);
    if (owner == 0 || name[owner] != '/') return false;
    size_t model = part_length(name + owner + 1);
    return model > 0 && !name[owner + 1 + model];
}

bool hub_name_is(const char *path) {
    return hub_name_is_valid(path) && !file_exists(path);
}

/* Writes the folder that an environment variable names, and appends `rest`. ~ is the home folder. False if
   the variable is not set. */
static bool read_folder(const char *variable, const char *rest, char out[PATH_MAX], ott_status *status) {
    const char *value = getenv(variable), *home = getenv("HOME");
    if (!value || !*value) return false;
    bool is_home = value[0] == '~' && (value[1] == '/' || !value[1]) && home;
    *status = file_path(out, "%s%s%s", is_home ? home : "", value + is_home, rest);
    return true;
}

ott_status hub_name_home(char out[PATH_MAX]) {
    ott_status status;
    if (read_folder("HF_HOME", "", out, &status)) return status;
    if (read_folder("XDG_CACHE_HOME", "/huggingface", out, &status)) return status;
    if (read_folder("HOME", "/.cache/huggingface", out, &status)) return status;
    return status_fail(OTT_ERR_ARGUMENT, "HOME is not set: set HF_HOME to the folder of the hub's files");
}

ott_status hub_name_cache(char out[PATH_MAX]) {
    char home[PATH_MAX];
    ott_status status;
    if (read_folder("HF_HUB_CACHE", "", out, &status)) return status;
    if (read_folder("HUGGINGFACE_HUB_CACHE", "", out, &status)) return status;
    TRY(hub_name_home(home));
    return file_join(home, "hub", out);
}

ott_status hub_name_repository(const char *name, char out[PATH_MAX]) {
    char cache[PATH_MAX];
    TRY(hub_name_cache(cache));
    return file_path(out, "%s/models--%.*s--%s", cache, (int)strcspn(name, "/"), name, strchr(name, '/') + 1);
}

/* Writes the commit of a branch or tag; the revision itself if the cache has no such branch or tag. */
static bool read_commit(const char *repository, const char *revision, char out[65]) {
    char path[PATH_MAX];
    snprintf(out, 65, "%.64s", revision);
    if (file_path(path, "%s/refs/%s", repository, revision) != OTT_OK) return false;
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%64[0-9a-f]", out) != 1) out[0] = '\0';
    if (f) fclose(f);
    return out[0] && out[0] != '.' && !strchr(out, '/');
}

bool hub_name_find(const char *name, const char *revision, char out[PATH_MAX]) {
    char repository[PATH_MAX], commit[65];
    if (hub_name_repository(name, repository) != OTT_OK) return false;
    if (!read_commit(repository, revision, commit)) return false;
    return file_path(out, "%s/snapshots/%s", repository, commit) == OTT_OK &&
           (file_is_in(out, "config.json") || file_is_in(out, "adapter_config.json") ||
            file_is_in(out, "tokenizer.json"));
}

ott_status hub_name_resolve(const char *where, const char **path, char out[PATH_MAX]) {
    char cache[PATH_MAX];
    if (!hub_name_is(*path)) return OTT_OK;
    if (hub_name_find(*path, "main", out)) return *path = out, OTT_OK;
    TRY(hub_name_cache(cache));
    return status_fail(OTT_ERR_CONFIG,
                       "%s: there is no such folder, and the cache %s has no model of this name: ottava pull "
                       "%s downloads it from the Hugging Face hub",
                       where, cache, *path);
}

ott_status hub_name_resolve_key(config *cfg, const char *key, const char *value) {
    char folder[PATH_MAX];
    const char *path = value;
    TRY(hub_name_resolve(config_where(cfg, key), &path, folder));
    return path == value ? OTT_OK : config_set(cfg, key, path);
}

const char *hub_name_of(const char *folder, char out[PATH_MAX]) {
    const char *begin = strstr(folder, "models--"), *end = strstr(folder, "/snapshots/"), *next;
    while (begin && (next = strstr(begin + 1, "/models--")) && next < end) begin = next + 1;
    const char *model = begin ? strstr(begin + 8, "--") : NULL;
    if (!model || !end || model > end || memchr(begin, '/', (size_t)(end - begin))) return folder;
    snprintf(out, PATH_MAX, "%.*s/%.*s", (int)(model - begin - 8), begin + 8, (int)(end - model - 2),
             model + 2);
    return out;
}
