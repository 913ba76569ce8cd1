/* base/file/mark: file_mark, the size and a hash of a file. Of a large file, evenly spaced pieces are
   hashed. */
#include "base/file/file.h"
#include <string.h>

enum { PIECE_BYTES = 1 << 16, PIECES = 64 };
#define FULL_BYTES (INT64_C(16) << 20)

/* Hashes eight bytes at a time: xors them, multiplies by 2^64 / golden ratio, and folds. The last bytes are
   padded with zeros. The size is hashed first, so files of different sizes differ. */
static uint64_t hash_bytes(uint64_t hash, const void *data, int64_t bytes) {
    const char *at = data;
    for (uint64_t word; bytes > 0; at += 8, bytes -= 8) {
        word = 0;
        memcpy(&word, at, bytes < 8 ? (size_t)bytes : 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

static ott_status hash_piece(const file_reader *r, int64_t at, int64_t bytes, file_mark *out) {
    char buffer[PIECE_BYTES];
    TRY(file_reader_read(r, at, buffer, bytes));
    out->hash = hash_bytes(out->hash, buffer, bytes);
    return OTT_OK;
}

static ott_status hash_file(const file_reader *r, file_mark *out) {
    *out = (file_mark){.bytes = r->bytes};
    out->hash = hash_bytes(0, &r->bytes, sizeof r->bytes);
    if (r->bytes > FULL_BYTES) {
        int64_t stride = (r->bytes - PIECE_BYTES) / (PIECES - 1);
        for (int64_t i = 0; i < PIECES - 1; i++) TRY(hash_piece(r, i * stride, PIECE_BYTES, out));
        return hash_piece(r, r->bytes - PIECE_BYTES, PIECE_BYTES, out);
    }
    for (int64_t at = 0, piece; at < r->bytes; at += piece) {
        piece = r->bytes - at < PIECE_BYTES ? r->bytes - at : PIECE_BYTES;
        TRY(hash_piece(r, at, piece, out));
    }
    return OTT_OK;
}

ott_status file_mark_of(const char *path, file_mark *out) {
    file_reader r;
    TRY(file_reader_open(path, &r));
    ott_status status = hash_file(&r, out);
    file_reader_close(&r);
    return status;
}
