/* formats/hf/folder: copies the files that are neither weights nor config.json. */
#include "formats/hf/folder.h"
#include "base/file/file.h"
#include "formats/hf/config.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TEMPLATES "additional_chat_templates"

typedef struct copier {
    mem *account;
    const logger *lg;
    const char *from, *to;
    char root[PATH_MAX];      /* path of the source folder, with links resolved */
    char blobs[PATH_MAX + 8]; /* blobs folder of the HF cache that contains `root`; "" if there is none */
    int64_t copied;
} copier;

bool hf_folder_is_model(const char *path) {
    return file_is_folder(path) || file_is_gguf(path);
}

bool hf_folder_is_copied(const char *name) {
    static const char *const not_copied[] = {
        HF_CONFIG_NAME, "*.safetensors", "*.index.json", "*.bin",          "*.pt",        "*.pth", "*.ckpt",
        "*.gguf",       "*.h5",          "*.msgpack",    "*.onnx",         "*.onnx_data", "*.ot",  "*.npz",
        "*.pdparams",   "*.mlmodel",     "*.tmp-*",      "*.ottava-tmp-*", ".*"};
    for (size_t i = 0; i < sizeof not_copied / sizeof *not_copied; i++)
        if (str_glob(not_copied[i], name)) return false;
    return true;
}

/* Files of a Hugging Face cache, CACHE/models--NAME/snapshots/REVISION/FILE, are links to files in
   CACHE/models--NAME/blobs. Stores the path of the blobs folder in c->blobs. */
static void find_blobs(copier *c) {
    strcpy(c->blobs, c->root);
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(c->blobs, '/');
        bool is_snapshots = slash && strcmp(slash, "/snapshots") == 0;
        if (!slash || (up == 1 && !is_snapshots)) {
            c->blobs[0] = '\0';
            return;
        }
        *slash = '\0';
    }
    strcat(c->blobs, "/blobs");
}

static ott_status resolve_link(const copier *c, const char *path, char out[PATH_MAX]) {
    if (!realpath(path, out))
        return status_fail(status_from_errno(errno), "%s: cannot open: %s", path, strerror(errno));
    if (file_is_inside(out, c->root) || file_is_inside(out, c->blobs)) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s: is a link to %s, outside of the model folder, and is not followed: copy the file there", path,
        str_show(out).text);
}

/* Fails if the destination exists and is not a regular file: copying does not write through a link. */
static ott_status check_replaceable(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0 || S_ISREG(info.st_mode)) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: is not a regular file and is not replaced: remove it", path);
}

static ott_status copy_opened(copier *c, const file_reader *r, const char *goal) {
    if (r->bytes > HF_FOLDER_MOST_BYTES) {
        log_warning(c->lg, "%s: not copied: %" PRId64 " bytes is too large for anything but weights", r->path,
                    r->bytes);
        return OTT_OK;
    }
    TRY(check_replaceable(goal));
    TRY(file_copy(c->account, r, goal));
    c->copied++;
    return OTT_OK;
}

static ott_status copy_model_file(copier *c, const char *path, const char *goal) {
    char real[PATH_MAX];
    file_reader r;
    TRY(resolve_link(c, path, real));
    if (file_is_folder(real)) return OTT_OK;
    TRY(file_reader_open(real, &r));
    ott_status status = copy_opened(c, &r, goal);
    file_reader_close(&r);
    return status;
}

/* Copies the files of folder c->from if `folder` is "", or of its subfolder if `folder` is "/NAME". */
static ott_status copy_model_folder(copier *c, const char *folder) {
    str from = {.account = c->account}, to = {.account = c->account};
    file_list names = {0};
    ott_status status;
    str_printf(&from, "%s%s", c->from, folder);
    str_printf(&to, "%s%s", c->to, folder);
    int64_t from_length = from.length, to_length = to.length;
    TRY_OUT(str_finish(from.failed ? &from : &to));
    TRY_OUT(file_list_folder(c->account, from.text, &names));
    TRY_OUT(file_make_folder(to.text));
    for (int64_t i = 0; i < names.count; i++) {
        if (!hf_folder_is_copied(names.names[i])) continue;
        from.length = from_length;
        to.length = to_length;
        str_printf(&from, "/%s", names.names[i]);
        str_printf(&to, "/%s", names.names[i]);
        TRY_OUT(str_finish(from.failed ? &from : &to));
        TRY_OUT(copy_model_file(c, from.text, to.text));
    }
out:
    if (names.account) file_list_free(&names);
    str_free(&from);
    str_free(&to);
    return status;
}

static ott_status copy_all(copier *c) {
    char goal[PATH_MAX];
    if (!realpath(c->from, c->root))
        return status_fail(status_from_errno(errno), "%s: cannot open: %s", c->from, strerror(errno));
    if (realpath(c->to, goal) && strcmp(goal, c->root) == 0) return OTT_OK;
    find_blobs(c);
    TRY(copy_model_folder(c, ""));
    char path[PATH_MAX], real[PATH_MAX];
    TRY(file_join(c->from, TEMPLATES, path));
    if (!file_is_folder(path)) return OTT_OK;
    TRY(resolve_link(c, path, real));
    return copy_model_folder(c, "/" TEMPLATES);
}

ott_status hf_folder_copy_others(mem *account, const logger *lg, const char *from, const char *to,
                                 int64_t *copied) {
    copier c = {.account = account, .lg = lg, .from = from, .to = to};
    ott_status status = copy_all(&c);
    if (copied) *copied = c.copied;
    return status;
}
