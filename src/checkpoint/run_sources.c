/* checkpoint/run_sources: computes fingerprints of files, stores them, and finds changed files. */
#include "checkpoint/run_sources.h"
#include "folders/json_file.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES_VERSION = 1, MOST_LOGGED = 4 };
#define SOURCES_LIMIT (INT64_C(16) << 20) /* largest accepted sources.json, in bytes */

static const char *const role_words[SOURCE_ROLES] = {"data", "eval", "tokenizer"};

static ott_status append_source(run_sources *s, run_source_role role, const char *path, file_mark mark) {
    if (s->count == RUN_SOURCES_MOST) return OTT_OK;
    if (s->count == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 8;
        TRY(mem_grow(s->account, MEM_OTHER, capacity * (int64_t)sizeof *s->files, "files of a run",
                     &s->files));
        s->capacity = capacity;
    }
    run_source *next = &s->files[s->count];
    *next = (run_source){.role = role, .mark = mark};
    TRY(mem_strdup(s->account, path, &next->path));
    s->count++;
    return OTT_OK;
}

ott_status run_sources_add(run_sources *s, run_source_role role, const char *path) {
    file_mark mark;
    if (s->count == RUN_SOURCES_MOST) return OTT_OK;
    TRY(file_mark_of(path, &mark));
    return append_source(s, role, path, mark);
}

ott_status run_sources_add_tokenizer(run_sources *s, const char *path) {
    char inside[PATH_MAX];
    if (!file_is_folder(path)) return file_exists(path) ? run_sources_add(s, SOURCE_TOKENIZER, path) : OTT_OK;
    int length = snprintf(inside, sizeof inside, "%s/tokenizer.json", path);
    if (length >= PATH_MAX || !file_exists(inside)) return OTT_OK;
    return run_sources_add(s, SOURCE_TOKENIZER, inside);
}

void run_sources_free(run_sources *s) {
    for (int64_t i = 0; i < s->count; i++) mem_free(s->account, s->files[i].path);
    if (s->account) mem_free(s->account, s->files);
    *s = (run_sources){.account = s->account};
}

static json_t *files_json(const run_sources *s) {
    json_t *list = json_array();
    char hash[24];
    for (int64_t i = 0; i < s->count; i++) {
        const run_source *f = &s->files[i];
        snprintf(hash, sizeof hash, "%016" PRIx64, f->mark.hash);
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:s}", "role", role_words[f->role], "path",
                                              f->path, "bytes", (json_int_t)f->mark.bytes, "hash", hash));
    }
    if ((int64_t)json_array_size(list) == s->count) return list;
    json_decref(list);
    return NULL;
}

ott_status run_sources_text(const run_sources *s, str *out) {
    json_t *root = json_pack("{s:i, s:o}", "version", SOURCES_VERSION, "files", files_json(s));
    ott_status status = json_file_print(root, out);
    json_decref(root);
    return status;
}

/* Appends the file that one entry of sources.json describes. Skips an incomplete entry. */
static ott_status parse_file(run_sources *s, const json_t *object) {
    const char *word = json_string_value(json_object_get(object, "role"));
    const char *path = json_string_value(json_object_get(object, "path"));
    const char *hash = json_string_value(json_object_get(object, "hash"));
    const json_t *bytes = json_object_get(object, "bytes");
    int role = 0;
    while (word && role < SOURCE_ROLES && strcmp(word, role_words[role]) != 0) role++;
    if (!word || role == SOURCE_ROLES || !path || !hash || !json_is_integer(bytes)) return OTT_OK;
    file_mark mark = {.bytes = json_integer_value(bytes), .hash = strtoull(hash, NULL, 16)};
    return append_source(s, (run_source_role)role, path, mark);
}

ott_status run_sources_read(run_sources *s, const char *checkpoint) {
    json_t *root = NULL;
    char path[PATH_MAX];
    TRY(file_join(checkpoint, RUN_SOURCES_NAME, path));
    if (!file_exists(path)) return OTT_OK;
    TRY(json_file_read(s->account, path, SOURCES_LIMIT, &root));
    const json_t *list = json_object_get(root, "files");
    ott_status status = OTT_OK;
    for (size_t i = 0; status == OTT_OK && i < json_array_size(list); i++)
        status = parse_file(s, json_array_get(list, i));
    json_decref(root);
    return status;
}

static bool has_same_contents(const run_source *a, const run_source *b) {
    return a->mark.bytes == b->mark.bytes && a->mark.hash == b->mark.hash;
}

/* Returns the file of the same role with the same path or, if by_mark, the same contents; NULL if none. */
static const run_source *find_source(const run_sources *s, const run_source *like, bool by_mark) {
    for (int64_t i = 0; i < s->count; i++) {
        const run_source *f = &s->files[i];
        bool same = by_mark ? has_same_contents(f, like) : strcmp(f->path, like->path) == 0;
        if (f->role == like->role && same) return f;
    }
    return NULL;
}

static void log_source_change(const logger *log, const run_source *before, const run_source *now) {
    const run_source *any = before ? before : now;
    const char *word = role_words[any->role];
    if (before && now && before->mark.bytes == now->mark.bytes)
        log_warning(log, "%s: this %s file has changed since the checkpoint was written", any->path, word);
    else if (before && now)
        log_warning(log,
                    "%s: this %s file has changed since the checkpoint was written: %" PRId64
                    " bytes then, %" PRId64 " now",
                    any->path, word, before->mark.bytes, now->mark.bytes);
    else
        log_warning(log, "%s: this %s file %s", any->path, word,
                    before ? "was read by the checkpoint's run and is not read now"
                           : "was not read by the checkpoint's run");
}

void run_sources_compare(const run_sources *before, const run_sources *now, run_source_role role,
                         const logger *log) {
    int64_t changes = 0;
    if (before->count == 0) return; /* the checkpoint lists no files */
    for (int64_t i = 0; i < before->count; i++) {
        const run_source *b = &before->files[i], *n = find_source(now, b, false);
        if (role != SOURCE_ROLES && b->role != role) continue;
        if (n ? has_same_contents(b, n) : find_source(now, b, true) != NULL) continue;
        if (changes++ < MOST_LOGGED) log_source_change(log, b, n);
    }
    for (int64_t i = 0; i < now->count; i++) {
        const run_source *n = &now->files[i];
        if (role != SOURCE_ROLES && n->role != role) continue;
        if (find_source(before, n, false) || find_source(before, n, true)) continue;
        if (changes++ < MOST_LOGGED) log_source_change(log, NULL, n);
    }
    if (changes > MOST_LOGGED)
        log_warning(log, "%" PRId64 " more files have changed since the checkpoint was written",
                    changes - MOST_LOGGED);
}
