/* formats/token_writer: the writer. The header is written last, because it has the number of tokens. */
#include "formats/token_writer.h"
#include "base/file/file.h"
#include "base/little.h"
#include "base/staging.h"
#include <inttypes.h>
#include <sys/stat.h>

enum { HEADER = 1024, MAGIC = 20240801, VERSION = 7 };

struct token_writer {
    mem *account;
    file_writer *file;
    int64_t count;
    char target[PATH_MAX]; /* path of the file, for messages */
};

static ott_status check_token_target(token_writer *w, const char *path) {
    struct stat info;
    TRY(file_path(w->target, "%s", path));
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: is %s, not a file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a device");
}

ott_status token_writer_open(mem *account, const char *path, token_writer **out) {
    static const char nothing[HEADER];
    token_writer *w;
    ott_status status;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(token_writer), "token file", &w));
    w->account = account;
    TRY_OUT(check_token_target(w, path));
    TRY_OUT(staging_remove_stale(account, path));
    TRY_OUT(file_writer_open_output(account, path, &w->file));
    TRY_OUT(file_writer_append(w->file, nothing, HEADER));
    *out = w;
out:
    if (status != OTT_OK) token_writer_abandon(w);
    return status;
}

ott_status token_writer_append(token_writer *w, const int32_t *tokens, int64_t count) {
    unsigned char bytes[16384];
    if (count > INT32_MAX - w->count)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s: more than 2^31 - 1 tokens, which its format cannot count: split the text",
                           w->target);
    for (int64_t done = 0, part; done < count; done += part) {
        part = count - done < (int64_t)sizeof bytes / 4 ? count - done : (int64_t)sizeof bytes / 4;
        for (int64_t i = 0; i < part; i++) {
            if (tokens[done + i] < 0)
                return status_fail(OTT_ERR_ARGUMENT, "%s: token %" PRId64 " is %d", w->target,
                                   w->count + done + i, tokens[done + i]);
            little_store(bytes + 4 * i, (uint32_t)tokens[done + i], 4);
        }
        TRY(file_writer_append(w->file, bytes, 4 * part));
    }
    w->count += count;
    return OTT_OK;
}

int64_t token_writer_count(const token_writer *w) {
    return w->count;
}

ott_status token_writer_commit(token_writer *w) {
    unsigned char words[12];
    little_store(words, MAGIC, 4);
    little_store(words + 4, VERSION, 4);
    little_store(words + 8, (uint64_t)w->count, 4);
    ott_status status = file_writer_patch(w->file, 0, words, sizeof words);
    if (status != OTT_OK) return token_writer_abandon(w), status;
    status = file_writer_commit(w->file);
    mem_free(w->account, w);
    return status;
}

void token_writer_abandon(token_writer *w) {
    if (!w) return;
    file_writer_abandon(w->file);
    mem_free(w->account, w);
}
