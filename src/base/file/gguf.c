/* base/file/gguf: detects GGUF files, so that all readers refuse them with the same message. */
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

ott_status file_refuse_gguf(const char *path) {
    bool named = str_ends_with(path, ".gguf") && file_exists(path) && !file_is_folder(path);
    if (!named && !has_gguf_magic(path)) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s: GGUF files cannot be read yet: give the Hugging Face folder that the file was made from", path);
}
