/* base/file/gguf: detects GGUF files; readers of other files refuse them with the same message. */
#include "base/file/file.h"
#include "base/text/str.h"
#include <string.h>

/* Checks the magic and the version, a little-endian uint32. Text files have no zero bytes there. */
static bool has_gguf_magic(const char *path) {
    unsigned char head[8];
    file_reader r;
    if (file_reader_open(path, &r) != OTT_OK) return false;
    bool read = r.bytes >= (int64_t)sizeof head && file_reader_read(&r, 0, head, sizeof head) == OTT_OK;
    file_reader_close(&r);
    return read && memcmp(head, "GGUF", 4) == 0 && head[4] > 0 && !head[5] && !head[6] && !head[7];
}

bool file_is_gguf(const char *path) {
    bool is_named = str_ends_with(path, ".gguf") && file_exists(path) && !file_is_folder(path);
    return is_named || has_gguf_magic(path);
}

ott_status file_refuse_gguf(const char *path) {
    if (!file_is_gguf(path)) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s: is a GGUF file, which can only be a model or its tokenizer: --model.hf_path=FILE",
                       path);
}
