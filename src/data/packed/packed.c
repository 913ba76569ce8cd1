/* data/packed/packed: decompresses gzip (RFC 1952) with zlib and Zstandard (RFC 8878) with libzstd. A file
   may have several gzip members or Zstandard frames. */
#include "data/packed/packed.h"
#include "base/file/file.h"
#include "base/text/str.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { INPUT = 1 << 17, SKIPPED = 1 << 16 };

typedef enum packing { PACKING_NONE, PACKING_GZIP, PACKING_ZSTD, PACKINGS } packing;
static const struct {
    const char *name, *suffix, *magic; /* magic: the first bytes of a file */
} kinds[] = {
    [PACKING_GZIP] = {"gzip", ".gz", "\x1f\x8b"}, [PACKING_ZSTD] = {"Zstandard", ".zst", "\x28\xb5\x2f\xfd"}};

struct packed_file {
    mem *account;
    file_reader reader;
    packing packing;
    z_stream gzip;
    ZSTD_DStream *zstd;
    bool inside;        /* true in a member or frame, which has not ended yet */
    int64_t at;         /* bytes of the file that are in `input` or were */
    int64_t begin, end; /* the bytes of `input` that are not used yet */
    char input[INPUT];
};

static ott_status fail_data(const packed_file *f, const char *reason) {
    return status_fail(OTT_ERR_FORMAT, "%s: the %s data is damaged at byte %" PRId64 ": %s", f->reader.path,
                       kinds[f->packing].name, packed_used(f), reason);
}

/* ---- opening ---- */

static ott_status fill_input(packed_file *f) {
    int64_t left = f->reader.bytes - f->at;
    f->begin = 0;
    f->end = left < INPUT ? left : INPUT;
    f->at += f->end;
    return file_reader_read(&f->reader, f->at - f->end, f->input, f->end);
}

static ott_status begin_packed(packed_file *f) {
    TRY(fill_input(f));
    for (packing p = PACKING_GZIP; p < PACKINGS; p++) {
        size_t bytes = strlen(kinds[p].magic);
        if (f->end >= (int64_t)bytes && memcmp(f->input, kinds[p].magic, bytes) == 0)
            f->packing = p;
        else if (f->end > 0 && str_ends_with(f->reader.path, kinds[p].suffix))
            return status_fail(OTT_ERR_FORMAT, "%s: is not %s data, as its name suggests: rename it",
                               f->reader.path, kinds[p].name);
    }
    bool opened = f->packing == PACKING_NONE ||
                  (f->packing == PACKING_GZIP ? inflateInit2(&f->gzip, 16 + MAX_WBITS) == Z_OK
                                              : (f->zstd = ZSTD_createDStream()) != NULL);
    return opened ? OTT_OK : status_fail(OTT_ERR_MEMORY, "%s: no memory to decompress it", f->reader.path);
}

ott_status packed_open(mem *account, const char *path, packed_file **out) {
    packed_file *f;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof *f, "the input of a text file", &f));
    f->account = account;
    ott_status status = file_reader_open(path, &f->reader);
    if (status != OTT_OK) return mem_free(account, f), status;
    status = begin_packed(f);
    if (status != OTT_OK) return packed_close(f), status;
    return *out = f, OTT_OK;
}

void packed_close(packed_file *f) {
    if (!f) return;
    if (f->packing == PACKING_GZIP) inflateEnd(&f->gzip);
    ZSTD_freeDStream(f->zstd);
    file_reader_close(&f->reader);
    mem_free(f->account, f);
}

/* ---- reading ---- */

static ott_status unpack_gzip(packed_file *f, char *data, int64_t bytes, int64_t *got) {
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

static ott_status unpack_zstd(packed_file *f, char *data, int64_t bytes, int64_t *got) {
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
static ott_status read_part(packed_file *f, char *data, int64_t bytes, int64_t *got) {
    *got = 0;
    if (f->begin == f->end && !f->inside) return OTT_OK;
    if (f->packing == PACKING_GZIP) return unpack_gzip(f, data, bytes, got);
    if (f->packing == PACKING_ZSTD) return unpack_zstd(f, data, bytes, got);
    *got = f->end - f->begin < bytes ? f->end - f->begin : bytes;
    memcpy(data, f->input + f->begin, (size_t)*got);
    f->begin += *got;
    return OTT_OK;
}

ott_status packed_read(packed_file *f, void *data, int64_t bytes, int64_t *got) {
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

ott_status packed_skip(packed_file *f, const cancellation *w, int64_t bytes, int64_t *skipped) {
    char scratch[SKIPPED];
    int64_t got = 1, left = f->reader.bytes - packed_used(f);
    if (packed_is_plain(f)) {
        *skipped = bytes < left ? bytes : left;
        f->at = packed_used(f) + *skipped;
        f->begin = f->end = 0;
        return OTT_OK;
    }
    for (*skipped = 0; *skipped < bytes && got > 0; *skipped += got) {
        left = bytes - *skipped;
        TRY(cancellation_check(w));
        TRY(packed_read(f, scratch, left < SKIPPED ? left : SKIPPED, &got));
    }
    return OTT_OK;
}

int64_t packed_size(const packed_file *f) {
    return f->reader.bytes;
}

int64_t packed_used(const packed_file *f) {
    return f->at - (f->end - f->begin);
}

bool packed_is_plain(const packed_file *f) {
    return f->packing == PACKING_NONE;
}

ott_status packed_text_bytes(mem *account, const char *path, const cancellation *w, int64_t *bytes) {
    packed_file *f;
    TRY(packed_open(account, path, &f));
    *bytes = f->reader.bytes;
    ott_status status = packed_is_plain(f) ? OTT_OK : packed_skip(f, w, INT64_MAX, bytes);
    packed_close(f);
    return status;
}

const char *packed_text_name(const char *path, char out[PATH_MAX]) {
    snprintf(out, PATH_MAX, "%s", path);
    for (packing p = PACKING_GZIP; p < PACKINGS; p++)
        if (str_ends_with(path, kinds[p].suffix)) out[strlen(out) - strlen(kinds[p].suffix)] = '\0';
    return out;
}
