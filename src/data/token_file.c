/* data/token_file: reads headers of token files and checks them against the file size. */
#include "data/token_file.h"
#include "base/file/file.h"
#include "base/little.h"
#include "base/text/str.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FAIL(...) return status_fail(OTT_ERR_FORMAT, __VA_ARGS__)

/* ---- llm.c and modded-nanogpt ---- */

#define LLMC_HEADER 1024 /* bytes of the header: 256 int32 */

static const struct {
    uint32_t magic, version;
    int width; /* bytes per token; 0: the header gives the number */
    const char *kind;
} headers[] = {
    {20240520, 1, 2, "llm.c's 20240520"},
    {20240801, 7, 4, "llm.c's 20240801"},
    {278895051, 1, 0, "modded-nanogpt's 278895051"},
};

static ott_status read_bin_header(const file_reader *r, size_t which, token_file *out) {
    unsigned char header[LLMC_HEADER];
    TRY(file_reader_read(r, 0, header, sizeof header));
    uint64_t version = little_load(header + 4, 4), count = little_load(header + 8, 4),
             width = little_load(header + 12, 4);
    if (version != headers[which].version)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: %s in version %" PRIu64 "; version %u is supported",
                           r->path, headers[which].kind, version, headers[which].version);
    if (headers[which].width) width = (uint64_t)headers[which].width;
    if (width != 2 && width != 4)
        FAIL("%s: its header specifies %" PRIu64 " bytes per token; 2 and 4 are supported", r->path, width);
    if (count > INT32_MAX || r->bytes - LLMC_HEADER != (int64_t)(count * width))
        FAIL("%s: its header specifies %" PRIu64 " tokens of %" PRIu64 " bytes, and %" PRId64
             " bytes follow it: it is truncated or malformed",
             r->path, count, width, r->bytes - LLMC_HEADER);
    *out = (token_file){
        .kind = headers[which].kind, .offset = LLMC_HEADER, .count = (int64_t)count, .width = (int)width};
    return OTT_OK;
}

/* ---- without a header ---- */

static ott_status inspect_bin(const file_reader *r, token_file *out) {
    unsigned char magic[4] = {0};
    if (r->bytes >= 4) TRY(file_reader_read(r, 0, magic, 4));
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (little_load(magic, 4) == headers[i].magic) return read_bin_header(r, i, out);
    if (little_load(magic, 4) == 20240522)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s: is llm.c's file of an evaluation (20240522), not of tokens", r->path);
    /* guesses the bytes of a token as KempnerForge does: 4 if the file size is a multiple of 4, else 2 */
    int width = r->bytes % 4 == 0 ? 4 : 2;
    if (r->bytes % 2 != 0)
        FAIL("%s: has no known header, and %" PRId64 " bytes are not a number of 2- or 4-byte tokens",
             r->path, r->bytes);
    *out = (token_file){.kind = "no header", .count = r->bytes / width, .width = width};
    return OTT_OK;
}

/* ---- NumPy ---- */

#define NPY_HEADER_LIMIT 4096

/* Returns the value of 'name' in NumPy's header, a Python dict; NULL if absent. */
static const char *npy_value(const char *header, const char *name) {
    const char *at = strstr(header, name);
    if (!at) return NULL;
    at += strlen(name);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    return at + 1 + strspn(at + 1, " ");
}

/* Parses '<u2', '|u1', '<i4': little-endian integers. */
static ott_status npy_type(const file_reader *r, const char *header, token_file *out) {
    const char *type = npy_value(header, "'descr'");
    char order = 0, kind = 0;
    int width = 0;
    if (!type || sscanf(type, "'%c%c%d'", &order, &kind, &width) != 3)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: its NumPy type cannot hold token ids", r->path);
    bool number = (kind == 'u' || kind == 'i') && (width == 1 || width == 2 || width == 4 || width == 8);
    if (!number || (order != '<' && !(order == '|' && width == 1)))
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: its NumPy type is %c%c%d; token ids must be little-endian integers, such as <u2 or <i4",
            r->path, order, kind, width);
    out->width = width;
    out->is_signed = kind == 'i';
    return OTT_OK;
}

static ott_status npy_shape(const file_reader *r, const char *header, token_file *out) {
    const char *shape = npy_value(header, "'shape'");
    char end = 0;
    if (!shape || sscanf(shape, "(%" SCNd64 ",%c", &out->count, &end) != 2 || end != ')')
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: its NumPy array must have one dimension", r->path);
    int64_t bytes = r->bytes - out->offset;
    if (out->count < 0 || bytes % out->width != 0 || out->count != bytes / out->width)
        FAIL("%s: its header specifies %" PRId64 " tokens of %d bytes, and %" PRId64
             " bytes follow it: it is truncated or malformed",
             r->path, out->count, out->width, bytes);
    return OTT_OK;
}

static ott_status inspect_npy(const file_reader *r, token_file *out) {
    unsigned char start[12];
    char header[NPY_HEADER_LIMIT + 1] = "";
    TRY(file_reader_read(r, 0, start, 10));
    if (memcmp(start, "\x93NUMPY", 6) != 0) FAIL("%s: is not a NumPy file", r->path);
    int size = start[6] == 1 ? 2 : 4; /* bytes of the length field */
    if (start[6] < 1 || start[6] > 3)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: NumPy format %d; 1 to 3 are supported", r->path,
                           start[6]);
    TRY(file_reader_read(r, 0, start, 8 + size));
    int64_t length = (int64_t)little_load(start + 8, size);
    if (length > NPY_HEADER_LIMIT)
        FAIL("%s: its NumPy header of %" PRId64 " bytes is too long", r->path, length);
    TRY(file_reader_read(r, 8 + size, header, length));
    *out = (token_file){.kind = "NumPy", .offset = 8 + size + length};
    TRY(npy_type(r, header, out));
    return npy_shape(r, header, out);
}

/* ---- Megatron ---- */

#define INDEX_HEADER 34 /* magic[9], u64 version, u8 type, u64 sequences, u64 documents + 1 */

typedef struct megatron_index {
    const file_reader *file;
    int64_t sequences, marks; /* marks: first sequence of each document, and the end */
    token_file *out;
} megatron_index;

static ott_status read_index_header(megatron_index *x) {
    static const struct {
        int width;
        bool is_signed;
    } types[] = {{0, 0}, {1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {0, 0}, {0, 0}, {2, false}};
    unsigned char h[INDEX_HEADER];
    const file_reader *r = x->file;
    TRY(file_reader_read(r, 0, h, sizeof h));
    if (memcmp(h, "MMIDIDX\0\0", 9) != 0) FAIL("%s: is not an index of Megatron (MMIDIDX)", r->path);
    uint64_t version = little_load(h + 9, 8), sequences = little_load(h + 18, 8),
             marks = little_load(h + 26, 8);
    if (version != 1)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: version %" PRIu64 "; version 1 is supported", r->path,
                           version);
    if (h[17] >= sizeof types / sizeof *types || types[h[17]].width == 0)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: type %d cannot hold token ids", r->path, h[17]);
    /* A sequence takes 12 bytes, a document mark 8. The divisions are first, so that no product overflows. */
    uint64_t available = (uint64_t)r->bytes - INDEX_HEADER;
    if (sequences > available / 12 || marks > available / 8 || sequences * 12 + marks * 8 > available ||
        marks < 1)
        FAIL("%s: specifies %" PRIu64 " sequences and %" PRIu64 " document marks in %" PRId64
             " bytes: it is truncated or malformed",
             r->path, sequences, marks, r->bytes);
    x->sequences = (int64_t)sequences;
    x->marks = (int64_t)marks;
    x->out->width = types[h[17]].width;
    x->out->is_signed = types[h[17]].is_signed;
    return OTT_OK;
}

/* Converts sequence lengths to starts[sequences + 1]: starts[i] is the sum of the first i lengths. */
static ott_status add_lengths(const megatron_index *x, const unsigned char *lengths,
                              const unsigned char *pointers, int64_t *starts) {
    int64_t at = 0;
    for (int64_t i = 0; i < x->sequences; i++) {
        int64_t length = (int32_t)little_load(lengths + 4 * i, 4);
        int64_t pointer = (int64_t)little_load(pointers + 8 * i, 8);
        if (length < 0) FAIL("%s: sequence %" PRId64 " has %" PRId64 " tokens", x->file->path, i, length);
        if (pointer != at * x->out->width)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "%s: sequence %" PRId64 " is at byte %" PRId64
                               ", not directly after the previous sequence",
                               x->file->path, i, pointer);
        starts[i] = at;
        at += length;
    }
    starts[x->sequences] = at;
    return OTT_OK;
}

static ott_status read_marks(const megatron_index *x, const unsigned char *marks, const int64_t *starts) {
    token_file *out = x->out;
    int64_t before = 0;
    for (int64_t i = 0; i < x->marks; i++) {
        int64_t mark = (int64_t)little_load(marks + 8 * i, 8);
        if (mark < before || mark > x->sequences)
            FAIL("%s: document %" PRId64 " begins with sequence %" PRId64 " of %" PRId64, x->file->path, i,
                 mark, x->sequences);
        out->begin[i] = starts[mark];
        before = mark;
    }
    if (out->begin[0] != 0 || before != x->sequences)
        FAIL("%s: its documents do not contain all of its sequences", x->file->path);
    out->documents = x->marks - 1;
    out->count = starts[x->sequences];
    return OTT_OK;
}

static ott_status read_tables(mem *account, megatron_index *x) {
    void *table = NULL, *starts = NULL, *begin = NULL;
    int64_t bytes = x->sequences * 12 + x->marks * 8;
    ott_status status;
    TRY(mem_alloc(account, MEM_DATA, bytes, "Megatron's index", &table));
    TRY_OUT(mem_alloc_array(account, MEM_DATA, x->sequences + 1, 8, "Megatron's sequences", &starts));
    TRY_OUT(mem_alloc_array(account, MEM_DATA, x->marks, 8, "Megatron's documents", &begin));
    x->out->begin = begin;
    TRY_OUT(file_reader_read(x->file, INDEX_HEADER, table, bytes));
    const unsigned char *lengths = table, *pointers = lengths + 4 * x->sequences;
    TRY_OUT(add_lengths(x, lengths, pointers, starts));
    TRY_OUT(read_marks(x, pointers + 8 * x->sequences, starts));
out:
    mem_free(account, table);
    mem_free(account, starts);
    return status;
}

static ott_status inspect_megatron(mem *account, const file_reader *tokens, const char *index_path,
                                   token_file *out) {
    file_reader index;
    megatron_index x = {.file = &index, .out = out};
    ott_status status;
    *out = (token_file){.kind = "Megatron"};
    TRY(file_reader_open(index_path, &index));
    TRY_OUT(read_index_header(&x));
    TRY_OUT(read_tables(account, &x));
    if (tokens->bytes / out->width != out->count || tokens->bytes % out->width != 0)
        TRY_OUT(status_fail(OTT_ERR_FORMAT,
                            "%s: has %" PRId64 " bytes, but %s specifies %" PRId64
                            " tokens of %d: one file is truncated or malformed",
                            tokens->path, tokens->bytes, index_path, out->count, out->width));
out:
    file_reader_close(&index);
    if (status != OTT_OK) mem_free(account, out->begin);
    if (status != OTT_OK) out->begin = NULL;
    return status;
}

/* ---- all formats ---- */

static ott_status detect_format(mem *account, const file_reader *r, token_file *out) {
    char index[PATH_MAX + 8];
    size_t length = strlen(r->path);
    if (str_ends_with(r->path, ".npy")) return inspect_npy(r, out);
    if (!str_ends_with(r->path, ".bin") || length >= PATH_MAX) return inspect_bin(r, out);
    snprintf(index, sizeof index, "%.*s.idx", (int)length - 4, r->path);
    return file_exists(index) ? inspect_megatron(account, r, index, out) : inspect_bin(r, out);
}

ott_status token_file_inspect(mem *account, const char *path, token_file *out) {
    file_reader r;
    *out = (token_file){0};
    TRY(file_reader_open(path, &r));
    ott_status status =
        r.bytes == 0 ? status_fail(OTT_ERR_FORMAT, "%s: is empty", path) : detect_format(account, &r, out);
    file_reader_close(&r);
    return status;
}
