/* hub/download: downloads a model into the cache. Everything is downloaded and checked before the first file
   appears in the snapshot. */
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "formats/hf/hub_name.h"
#include "formats/safetensors/shards.h"
#include "hub/client.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define COMMIT_DIGITS 40
#define ADAPTERS      "adapter_config.json"
enum { PIECE = 1 << 20 };

/* A file that is downloaded. */
typedef struct hub_file {
    const char *name, *etag; /* etag: name of the blob: SHA-256, or SHA-1 of a git blob; owned by the list */
    int64_t size;
} hub_file;

typedef struct repository {
    mem *account;
    const hub_caller *caller;
    hub_client *client;
    const char *name, *revision;
    char path[PATH_MAX], locks[PATH_MAX]; /* models--ORG--NAME in the cache, and in its folder .locks */
    const char *commit;                   /* owned by `list` */
    json_t *list;                         /* the hub's answer */
    hub_file *files;
    int64_t count, capacity;
    bool weights, has_config, has_weights; /* weights: they are downloaded, too */
} repository;

/* ---- the list of files ---- */

/* True if a path from the hub stays in its folder. */
static bool is_safe(const char *path) {
    for (const char *part = path;; part++) {
        size_t length = strcspn(part, "/");
        bool dots = strspn(part, ".") == length && length < 3; /* also an empty part */
        if (dots || length > 255) return false;
        part += length;
        if (!*part) return !str_has_control(path) && strlen(path) < 1024;
    }
}

static bool is_hexadecimal(const char *text, size_t length) {
    return text && strlen(text) == length && strspn(text, "0123456789abcdef") == length;
}

/* Ottava reads the files of the top folder only. consolidated*.safetensors are the weights a second time. */
static bool is_needed(const char *name, bool weights) {
    static const char *const ends[] = {".json",     ".jinja", "tokenizer.model", "merges.txt", "vocab.txt",
                                       "README.md", NULL};
    if (strchr(name, '/')) return false;
    if (str_ends_with(name, ".safetensors")) return weights && !str_starts_with(name, "consolidated");
    return str_ends_with_any(name, ends) || str_starts_with(name, "LICENSE");
}

static ott_status add_file(repository *r, const json_t *entry) {
    const json_t *lfs = json_object_get(entry, "lfs");
    bool is_lfs = json_is_object(lfs);
    hub_file f;
    TRY(json_member_text(entry, "rfilename", JSON_NEEDED, &f.name));
    if (!is_safe(f.name))
        return status_fail(OTT_ERR_FORMAT, "the file name \"%s\" is not allowed", str_show(f.name).text);
    if (!is_needed(f.name, r->weights)) return OTT_OK;
    TRY(json_member_text(is_lfs ? lfs : entry, is_lfs ? "sha256" : "blobId", JSON_NEEDED, &f.etag));
    TRY(json_member_integer(entry, "size", JSON_NEEDED, 0, INT64_C(1) << 48, &f.size));
    if (!is_hexadecimal(f.etag, is_lfs ? 64 : 40))
        return status_fail(OTT_ERR_FORMAT, "%s has the checksum \"%s\", which is none", f.name,
                           str_show(f.etag).text);
    TRY(mem_reserve(r->account, MEM_OTHER, r->count + 1, "the hub's files", &r->capacity, &r->files));
    r->files[r->count++] = f;
    r->has_config = r->has_config || strcmp(f.name, "config.json") == 0 || strcmp(f.name, ADAPTERS) == 0 ||
                    (!r->weights && strcmp(f.name, "tokenizer.json") == 0);
    r->has_weights = r->has_weights || str_ends_with(f.name, ".safetensors");
    return OTT_OK;
}

static ott_status read_list(repository *r) {
    const json_t *siblings, *entry;
    size_t i;
    TRY(json_member_text(r->list, "sha", JSON_NEEDED, &r->commit));
    if (!is_hexadecimal(r->commit, COMMIT_DIGITS))
        return status_fail(OTT_ERR_FORMAT, "\"%s\" is not a commit", str_show(r->commit).text);
    TRY(json_member(r->list, "siblings", JSON_KIND_LIST, JSON_NEEDED, &siblings));
    json_array_foreach(siblings, i, entry) TRY(add_file(r, entry));
    if (r->has_config && (r->has_weights || !r->weights)) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "no %s, and other formats cannot be read: choose another model",
                       r->has_config ? "*.safetensors" : "config.json");
}

static ott_status fetch_list(repository *r) {
    str url = {.account = r->account};
    str_printf(&url, "%s/api/models/%s/revision/", hub_client_endpoint(r->client), r->name);
    hub_client_escape(&url, r->revision, false);
    str_append(&url, "?blobs=true");
    ott_status status = str_finish(&url);
    if (status == OTT_OK) status = hub_client_json(r->client, url.text, &r->list);
    str_free(&url);
    if (status != OTT_OK || (status = read_list(r)) == OTT_OK) return status;
    return status_context(status, "%s: the hub's list of files", r->name);
}

/* ---- one file ---- */

/* Compares a file's checksum with its etag. */
static ott_status check_sum(const repository *r, const char *path, const hub_file *f, bool *right) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1] = "", head[48], *piece = NULL;
    unsigned int length = 0;
    bool is_git = strlen(f->etag) == 40;
    file_reader reader;
    ott_status status;
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    TRY_OUT(sum && EVP_DigestInit_ex(sum, is_git ? EVP_sha1() : EVP_sha256(), NULL)
                ? mem_alloc(r->account, MEM_OTHER, PIECE, "a piece of a file", &piece)
                : status_fail(OTT_ERR_INTERNAL, "OpenSSL has no %s", is_git ? "SHA-1" : "SHA-256"));
    int head_length = snprintf(head, sizeof head, "blob %lld", (long long)f->size);
    if (is_git) EVP_DigestUpdate(sum, head, (size_t)head_length + 1); /* with the NUL */
    TRY_OUT(file_reader_open(path, &reader));
    for (int64_t at = 0, bytes; at < reader.bytes && status == OTT_OK; at += bytes) {
        bytes = reader.bytes - at < PIECE ? reader.bytes - at : PIECE;
        status = file_reader_read(&reader, at, piece, bytes);
        if (status == OTT_OK) status = cancellation_check(&r->caller->cancellation);
        EVP_DigestUpdate(sum, piece, (size_t)bytes);
    }
    file_reader_close(&reader);
    EVP_DigestFinal_ex(sum, digest, &length);
    for (unsigned int i = 0; i < length; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    *right = strcmp(text, f->etag) == 0;
out:
    mem_free(r->account, piece);
    EVP_MD_CTX_free(sum);
    return status;
}

/* Downloads a file to `path` and checks it. A wrong file is removed and downloaded a second time. */
static ott_status download(const repository *r, const hub_file *f, const char *path) {
    str url = {.account = r->account};
    ott_status status = OTT_OK;
    bool right = false, fits = false;
    str_printf(&url, "%s/%s/resolve/%s/", hub_client_endpoint(r->client), r->name, r->commit);
    hub_client_escape(&url, f->name, true);
    TRY_OUT(str_finish(&url));
    for (int attempt = 0; attempt < 2 && !right; attempt++) {
        TRY_OUT(hub_client_file(r->client, url.text, path, f->name, f->size, &fits));
        if (fits) TRY_OUT(check_sum(r, path, f, &right));
        if (!right) unlink(path);
        if (!right && attempt == 0)
            log_warning(r->caller->cancellation.log, "%s: the %s is wrong; downloading it again", f->name,
                        fits ? "checksum" : "size");
    }
    if (!right)
        status = status_fail(OTT_ERR_IO,
                             "%s: %s was received twice with a wrong %s (expected %s, %lld bytes): check "
                             "HF_ENDPOINT and proxies",
                             r->name, f->name, fits ? "checksum" : "size", f->etag, (long long)f->size);
out:
    str_free(&url);
    return status;
}

/* Returns the size of the file blobs/ETAG, or blobs/ETAG.incomplete; -1 if there is none. */
static int64_t blob_bytes(const repository *r, const hub_file *f, const char *end) {
    char path[PATH_MAX];
    int64_t bytes;
    if (file_path(path, "%s/blobs/%s%s", r->path, f->etag, end) != OTT_OK || !file_exists(path)) return -1;
    return file_size(path, &bytes) == OTT_OK ? bytes : -1;
}

/* Locks a file as huggingface_hub does. Waits while another process has the lock. */
static ott_status take_lock(const repository *r, const char *path, const hub_file *f, int *lock) {
    const logger *log = r->caller->cancellation.log;
    TRY(file_open_own(path, O_RDWR, lock));
    for (int waits = 0; flock(*lock, LOCK_EX | LOCK_NB) != 0; waits++) {
        if (errno != EWOULDBLOCK) return OTT_OK; /* a file system without locks */
        if (waits == 0) log_info(log, "%s: waiting for another process that downloads it", f->name);
        TRY(hub_client_wait(r->client, 0.1));
    }
    return OTT_OK;
}

/* Downloads a file to its blob, unless the cache has the blob. */
static ott_status fetch_blob(const repository *r, const hub_file *f) {
    char blob[PATH_MAX], incomplete[PATH_MAX], lock_path[PATH_MAX];
    int lock = -1;
    TRY(file_path(blob, "%s/blobs/%s", r->path, f->etag));
    TRY(file_path(incomplete, "%s.incomplete", blob));
    TRY(file_path(lock_path, "%s/%s.lock", r->locks, f->etag));
    ott_status status = blob_bytes(r, f, "") == f->size ? OTT_OK : take_lock(r, lock_path, f, &lock);
    if (status == OTT_OK && blob_bytes(r, f, "") != f->size) {
        status = download(r, f, incomplete);
        if (status == OTT_OK) status = file_rename(incomplete, blob);
    }
    if (lock >= 0) close(lock);
    if (status == OTT_OK) hub_client_add(r->client, f->name, f->size);
    return status;
}

/* ---- the snapshot ---- */

/* Links a file of the snapshot to its blob. Another process may do the same. */
static ott_status link_file(const repository *r, const hub_file *f) {
    char path[PATH_MAX], target[96];
    TRY(file_path(path, "%s/snapshots/%s/%s", r->path, r->commit, f->name));
    snprintf(target, sizeof target, "../../blobs/%s", f->etag);
    if (file_exists(path)) return OTT_OK;
    unlink(path); /* a link to a blob that was removed */
    if (symlink(target, path) == 0 || errno == EEXIST) return OTT_OK;
    return status_fail(status_from_errno(errno), "%s: cannot create the link: %s", path, strerror(errno));
}

static ott_status write_reference(const repository *r) {
    char path[PATH_MAX], folder[PATH_MAX];
    if (strcmp(r->revision, r->commit) == 0) return OTT_OK;
    TRY(file_path(path, "%s/refs/%s", r->path, r->revision));
    TRY(file_path(folder, "%.*s", (int)(strrchr(path, '/') - path), path));
    TRY(file_make_folder(folder));
    return file_write_atomic(path, r->commit, COMMIT_DIGITS);
}

/* Checks that the missing bytes fit on the disk. */
static ott_status check_space(const repository *r) {
    struct statvfs disk;
    int64_t need = 0, total = 0;
    for (int64_t i = 0; i < r->count; i++) {
        const hub_file *f = &r->files[i];
        int64_t have = blob_bytes(r, f, "") == f->size ? f->size : blob_bytes(r, f, ".incomplete");
        total += f->size;
        need += have >= 0 && have <= f->size ? f->size - have : f->size;
    }
    hub_client_expect(r->client, total);
    if (statvfs(r->path, &disk) != 0) return OTT_OK;
    double left = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)need <= left) return OTT_OK;
    return status_fail(
        OTT_ERR_IO,
        "%s: %.2f GB must be downloaded, but the disk of %s has only %.2f GB left: free space, "
        "or set HF_HOME to a folder on a larger disk",
        r->name, (double)need / 1e9, r->path, left / 1e9);
}

static ott_status fetch_all(repository *r, char folder[PATH_MAX]) {
    char path[PATH_MAX];
    TRY(file_path(path, "%s/blobs", r->path));
    TRY(file_make_folder(path));
    TRY(file_make_folder(r->locks));
    TRY(check_space(r));
    for (int64_t i = 0; i < r->count; i++) TRY(fetch_blob(r, &r->files[i]));
    TRY(file_path(folder, "%s/snapshots/%s", r->path, r->commit));
    TRY(file_make_folder(folder));
    for (int64_t i = 0; i < r->count; i++) TRY(link_file(r, &r->files[i]));
    return write_reference(r);
}

/* True if the cache has the model, with all weights if they are needed. */
static bool find_complete(const repository *r, char folder[PATH_MAX]) {
    shards *s = NULL;
    if (!hub_name_find(r->name, r->revision, folder)) return false;
    bool complete = !r->weights || file_is_in(folder, "adapter_model.safetensors") ||
                    shards_open(r->account, folder, &s) == OTT_OK;
    shards_close(s);
    return complete;
}

static ott_status pull(repository *r, bool prefer_cache, char folder[PATH_MAX]) {
    char cache[PATH_MAX];
    if (!hub_name_is_valid(r->name))
        return status_fail(OTT_ERR_ARGUMENT, "\"%s\" is not a name of the hub: give ORGANIZATION/MODEL",
                           str_show(r->name).text);
    if (!is_safe(r->revision))
        return status_fail(OTT_ERR_ARGUMENT, "the revision \"%s\" is not a branch, a tag or a commit",
                           str_show(r->revision).text);
    TRY(hub_name_cache(cache));
    TRY(hub_name_repository(r->name, r->path));
    TRY(file_path(r->locks, "%s/.locks%s", cache, strrchr(r->path, '/')));
    if ((prefer_cache || hub_client_is_offline()) && find_complete(r, folder)) return OTT_OK;
    TRY(hub_client_open(r->account, r->caller, "model", r->name, &r->client));
    TRY(fetch_list(r));
    return fetch_all(r, folder);
}

ott_status hub_pull(const hub_caller *caller, const char *name, const char *revision, bool weights,
                    bool prefer_cache, char folder[PATH_MAX]) {
    repository r = {.caller = caller, .name = name, .revision = revision, .weights = weights};
    TRY(mem_open(&r.account));
    ott_status status = pull(&r, prefer_cache, folder);
    hub_client_close(r.client);
    json_decref(r.list);
    mem_free(r.account, r.files);
    mem_close(r.account);
    if (!prefer_cache || status == OTT_OK || status == OTT_ERR_STOPPED) return status;
    return status_context(status, "there is no folder %s, so the hub's model is needed", name);
}

bool hub_is_name(const char *path) {
    return hub_name_is(path);
}
