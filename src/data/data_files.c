/* data/data_files: finds the files of a dataset's path and their format. */
#include "data/data_files.h"
#include "config/parse/number.h"
#include "data/data.h"
#include "data/text_file/text_file.h"
#include <stdio.h>
#include <string.h>

static ott_status add_path(file_list *list, const char *folder, const char *name) {
    if (str_has_control(name))
        return status_fail(OTT_ERR_CONFIG,
                           "%s%s%s has a control character (shown as ?) in its name: rename it", folder,
                           *folder ? "/" : "", str_show(name).text);
    TRY(mem_grow(list->account, MEM_OTHER, (list->count + 1) * (int64_t)sizeof(char *), "paths",
                 &list->names));
    TRY(file_resolve(list->account, folder, name, &list->names[list->count]));
    list->count++;
    return OTT_OK;
}

static ott_status add_matches(file_list *out, const file_list *all, const char *folder, const char *pattern) {
    for (int64_t i = 0; i < all->count; i++)
        if (str_glob(pattern, all->names[i])) TRY(add_path(out, folder, all->names[i]));
    return OTT_OK;
}

static ott_status find_in_folder(const char *folder, const char *pattern, file_list *out) {
    static const char *const usual[] = {"*.npy",       "*.bin", "*.jsonl",  "*.jsonl.gz",
                                        "*.jsonl.zst", "*.txt", "*.txt.gz", "*.txt.zst"};
    file_list all;
    ott_status status = OTT_OK;
    TRY(file_list_folder(out->account, folder, &all));
    if (*pattern) TRY_OUT(add_matches(out, &all, folder, pattern));
    for (size_t i = 0; !*pattern && out->count == 0 && i < sizeof usual / sizeof *usual; i++)
        TRY_OUT(add_matches(out, &all, folder, usual[i]));
    if (out->count > 0) goto out;
    status = *pattern
                 ? status_fail(OTT_ERR_NOT_FOUND,
                               "%s: none of its %lld files matches \"%s\"; give another pattern with "
                               "file_pattern",
                               folder, (long long)all.count, pattern)
                 : status_fail(OTT_ERR_NOT_FOUND,
                               "%s: has no *.npy, *.bin, *.jsonl or *.txt (or .gz, .zst); set file_pattern",
                               folder);
out:
    file_list_free(&all);
    return status;
}

static ott_status find_files(const char *path, const char *pattern, file_list *out) {
    char prefixed[PATH_MAX + 8];
    if (file_is_folder(path)) return find_in_folder(path, pattern, out);
    if (file_exists(path)) return add_path(out, "", path);
    if (strpbrk(path, "*?")) {
        char folder[PATH_MAX] = ".";
        const char *slash = strrchr(path, '/');
        size_t length = slash ? (size_t)(slash - path) : 0;
        if (length >= PATH_MAX) return status_fail(OTT_ERR_ARGUMENT, "%.60s...: the path is too long", path);
        if (slash) snprintf(folder, sizeof folder, "%.*s", length ? (int)length : 1, path);
        return find_in_folder(folder, slash ? slash + 1 : path, out);
    }
    snprintf(prefixed, sizeof prefixed, "%s.bin", path);
    return add_path(out, "", file_exists(prefixed) ? prefixed : path); /* opening a missing file fails */
}

ott_status data_files_find(mem *account, const char *path, const char *pattern, file_list *out) {
    *out = (file_list){.account = account};
    ott_status status = find_files(path, pattern, out);
    for (int64_t i = 0; i < out->count && status == OTT_OK; i++) status = file_refuse_gguf(out->names[i]);
    if (status != OTT_OK) file_list_free(out);
    return status;
}

ott_status data_files_format(mem *account, const file_list *files, const config *cfg, bool has_tokenizer,
                             config_data_format *out) {
    static const char *const rows[] = {".jsonl", ".json", ".ndjson", NULL};
    static const char *const tokens[] = {".bin", ".npy", NULL};
    static const char *const columns[] = {".parquet", ".arrow", NULL};
    const char *path = files->names[0];
    dataset_row_kind kind;
    *out = cfg->data.format;
    if (str_ends_with_any(path, columns))
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: parquet and arrow files are not read; convert the file to JSONL: python3 -c \"import sys, "
            "pandas; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', "
            "lines=True)\" %s data.jsonl",
            path, path);
    if (*out != DATA_AUTO && *out != DATA_SYNTHETIC) return OTT_OK; /* synthetic data has no files */
    char text_name[PATH_MAX];
    if (str_ends_with_any(text_file_plain_name(path, text_name), tokens) && !str_ends_with_any(path, tokens))
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: compressed token files are not read: decompress it",
                           path);
    *out = str_ends_with_any(path, tokens) ? DATA_TOKENS : has_tokenizer ? DATA_TEXT : DATA_BYTES;
    if (!str_ends_with_any(text_name, rows)) return OTT_OK;
    TRY(dataset_first_row(account, path, &kind));
    *out = DATA_JSONL;
    if (*cfg->data.prompt_field || config_was_set(cfg, "data.text_field")) return OTT_OK;
    if (kind == ROWS_MESSAGES || kind == ROWS_ALPACA) *out = DATA_CHAT;
    if (kind == ROWS_HELLASWAG) *out = DATA_HELLASWAG;
    if (kind == ROWS_SQUAD) *out = DATA_SQUAD;
    return OTT_OK;
}

ott_status data_files_split_weight(const char *text, char path[PATH_MAX], double *weight) {
    const char *equals = strrchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    char number[40] = "1";
    if (equals) snprintf(number, sizeof number, "%.*s", (int)strcspn(equals + 1, " "), equals + 1);
    if (!number_parse_real(number, weight) || length == 0 || length >= PATH_MAX || !(*weight > 0))
        return status_fail(OTT_ERR_CONFIG,
                           "data.datasets: \"%s\" is not a path and a weight above 0, as path=0.7", text);
    memcpy(path, text, length);
    path[length] = 0;
    return OTT_OK;
}

const char *data_files_pattern(const config *cfg, const char *key, const char *pattern) {
    return config_was_set(cfg, key) ? pattern : "";
}

static ott_status visit_path(mem *account, const char *path, const char *pattern, bool validation,
                             data_file_fn visit, void *user) {
    file_list files;
    ott_status status = OTT_OK;
    TRY(data_files_find(account, path, pattern, &files));
    for (int64_t i = 0; status == OTT_OK && i < files.count; i++)
        status = visit(user, validation, files.names[i]);
    file_list_free(&files);
    return status;
}

ott_status data_visit_files(mem *account, const config *cfg, data_file_fn visit, void *user) {
    const char *pattern = data_files_pattern(cfg, "data.file_pattern", cfg->data.file_pattern);
    char path[PATH_MAX];
    double weight;
    for (int64_t i = 0; i < cfg->data.datasets.count; i++) {
        TRY(data_files_split_weight(cfg->data.datasets.items[i], path, &weight));
        TRY(visit_path(account, path, pattern, false, visit, user));
    }
    if (cfg->data.datasets.count == 0 && *cfg->data.dataset_path)
        TRY(visit_path(account, cfg->data.dataset_path, pattern, false, visit, user));
    if (!cfg->eval.enabled || !*cfg->eval.dataset_path) return OTT_OK;
    pattern = data_files_pattern(cfg, "eval.file_pattern", cfg->eval.file_pattern);
    return visit_path(account, cfg->eval.dataset_path, pattern, true, visit, user);
}
