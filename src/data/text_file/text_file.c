/* data/text_file/text_file: decompresses gzip (RFC 1952) with zlib and Zstandard (RFC 8878) with libzstd. A
   file may have several gzip members or Zstandard frames. */
#include "data/text_file/text_file.h"
#include "base/file/file.h"
#include "base/text/str.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT_BYTES = 1 << 17, SKIP_BYTES = 1 << 16 };

typedef enum compression { COMPRESSION_NONE, COMPRESSION_GZIP, COMPRESSION_ZSTD, COMPRESSIONS } compression;
static const struct {
    const char *name, *suffix, *magic; /* magic: the first bytes of a file */
} kinds[] = {[COMPRESSION_GZIP] = {"gzip", ".gz", "\x1f\x8b"},
             [COMPRESSION_ZSTD] = {"Zstandard", ".zst", "\x28\xb5\x2f\xfd"}};

struct text_file {
    mem *account;
    file_reader reader;
    compression compression;
    z_stream gzip;
    ZSTD_DStream *zstd;
    bool inside;        /* true in a member or frame, which has not ended yet */
    int64_t at;         /* bytes of the file that are in `input` or were */
    int64_t begin, end; /* the bytes of `input` that are not used yet */
    char input[INPUT_BYTES];
};

static ott_status fail_data(const text_file *f, const char *reason) {
    return status_fail(OTT_ERR_FORMAT, "%s: the %s data is damaged at byte %" PRId64 ": %s", f->reader.path,
                       kinds[f->compression].name, text_file_used(f), reason);
}

/* ---- opening ---- */

static ott_status fill_input(text_file *f) {
    int64_t left = f->reader.bytes - f->at;
    f->begin = 0;
    f->end = left < INPUT_BYTES ? left : INPUT_BYTES;
    f->at += f->end;
    return file_reader_read(&f->reader, f->at - f->end, f->input, f->end);
}

static ott_status open_decompressor(text_file *f) {
    TRY(fill_input(f));
    for (compression p = COMPRESSION_GZIP; p < COMPRESSIONS; p++) {
        size_t bytes = strlen(kinds[p].magic);
        if (f->end >= (int64_t)bytes && memcmp(f->input, kinds[p].magic, bytes) == 0)
            f->compression = p;
        else if (f->end > 0 && str_ends_with(f->reader.path, kinds[p].suffix))
            return status_fail(OTT_ERR_FORMAT, "%s: is not %s data, as its name suggests: rename it",
                               f->reader.path, kinds[p].name);
    }
    bool opened = f->compression == COMPRESSION_NONE ||
                  (f->compression == COMPRESSION_GZIP ? inflateInit2(&f->gzip, 16 + MAX_WBITS) == Z_OK
                                                      : (f->zstd = ZSTD_createDStream()) != NULL);
    return opened ? OTT_OK : status_fail(OTT_ERR_MEMORY, "%s: no memory to decompress it", f->reader.path);
}

ott_status text_file_open(mem *account, const char *path, text_file **out) {
    text_file *f;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof *f, "the input of a text file", &f));
    f->account = account;
    ott_status status = file_reader_open(path, &f->reader);
    if (status != OTT_OK) return mem_free(account, f), status;
    status = open_decompressor(f);
    if (status != OTT_OK) return text_file_close(f), status;
    return *out = f, OTT_OK;
}

void text_file_close(text_file *f) {
    if (!f) return;
    if (f->compression == COMPRESSION_GZIP) inflateEnd(&f->gzip);
    ZSTD_freeDStream(f->zstd);
    file_reader_close(&f->reader);
    mem_free(f->account, f);
}

/* ---- reading ---- */

static ott_status decompress_gzip(text_file *f, char *data, int64_t bytes, int64_t *got) {
    z_stream *z = &f->gzip;
    uInt most = bytes < 1 << 30 ? (uInt)bytes : 1 << 30;
    if (!f->inside) inflateReset(z);
    f->inside = true;
    z->next_in = (Bytef *)f->input + f->begin;
    z->avail_in = (uInt)(f->end - f->begin);
    z->next_out = (Bytef *)data;
    z->avail_out = most;
    int result = inflate(z, Z_NO_FLUSH);
    f->begin = f->end - z->avail_in;
    *got = most - z->avail_out;
    if (result == Z_STREAM_END) f->inside = false;
    if (result == Z_STREAM_END || result == Z_OK || result == Z_BUF_ERROR) return OTT_OK;
    return fail_data(f, z->msg ? z->msg : "it is not gzip data");
}

static ott_status decompress_zstd(text_file *f, char *data, int64_t bytes, int64_t *got) {
    ZSTD_inBuffer in = {f->input, (size_t)f->end, (size_t)f->begin};
    ZSTD_outBuffer out = {data, (size_t)bytes, 0};
    size_t left = ZSTD_decompressStream(f->zstd, &out, &in);
    f->begin = (int64_t)in.pos;
    *got = (int64_t)out.pos;
    if (ZSTD_isError(left)) return fail_data(f, ZSTD_getErrorName(left));
    f->inside = left > 0;
    return OTT_OK;
}

/* Reads one part. *got = 0: the input is used up. */
static ott_status read_part(text_file *f, char *data, int64_t bytes, int64_t *got) {
    *got = 0;
    if (f->begin == f->end && !f->inside) return OTT_OK;
    if (f->compression == COMPRESSION_GZIP) return decompress_gzip(f, data, bytes, got);
    if (f->compression == COMPRESSION_ZSTD) return decompress_zstd(f, data, bytes, got);
    *got = f->end - f->begin < bytes ? f->end - f->begin : bytes;
    memcpy(data, f->input + f->begin, (size_t)*got);
    f->begin += *got;
    return OTT_OK;
}

ott_status text_file_read(text_file *f, void *data, int64_t bytes, int64_t *got) {
    int64_t part;
    for (*got = 0; *got < bytes; *got += part) {
        int64_t before = f->begin;
        TRY(read_part(f, (char *)data + *got, bytes - *got, &part));
        if (part > 0 || f->begin > before || f->begin < f->end) continue;
        if (f->at == f->reader.bytes && f->begin == f->end && !f->inside) break;
        if (f->at == f->reader.bytes) return fail_data(f, "the file is incomplete");
        TRY(fill_input(f));
    }
    return OTT_OK;
}

ott_status text_file_skip(text_file *f, const cancellation *w, int64_t bytes, int64_t *skipped) {
    char scratch[SKIP_BYTES];
    int64_t got = 1, left = f->reader.bytes - text_file_used(f);
    if (text_file_is_plain(f)) {
        *skipped = bytes < left ? bytes : left;
        f->at = text_file_used(f) + *skipped;
        f->begin = f->end = 0;
        return OTT_OK;
    }
    for (*skipped = 0; *skipped < bytes && got > 0; *skipped += got) {
        left = bytes - *skipped;
        TRY(cancellation_check(w));
        TRY(text_file_read(f, scratch, left < SKIP_BYTES ? left : SKIP_BYTES, &got));
    }
    return OTT_OK;
}

int64_t text_file_size(const text_file *f) {
    return f->reader.bytes;
}

int64_t text_file_used(const text_file *f) {
    return f->at - (f->end - f->begin);
}

bool text_file_is_plain(const text_file *f) {
    return f->compression == COMPRESSION_NONE;
}

ott_status text_file_bytes(mem *account, const char *path, const cancellation *w, int64_t *bytes) {
    text_file *f;
    TRY(text_file_open(account, path, &f));
    *bytes = f->reader.bytes;
    ott_status status = text_file_is_plain(f) ? OTT_OK : text_file_skip(f, w, INT64_MAX, bytes);
    text_file_close(f);
    return status;
}

const char *text_file_plain_name(const char *path, char out[PATH_MAX]) {
    snprintf(out, PATH_MAX, "%s", path);
    for (compression p = COMPRESSION_GZIP; p < COMPRESSIONS; p++)
        if (str_ends_with(path, kinds[p].suffix)) out[strlen(out) - strlen(kinds[p].suffix)] = '\0';
    return out;
}
