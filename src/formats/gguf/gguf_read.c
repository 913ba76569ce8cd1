/* formats/gguf/gguf_read: the reader. It converts metadata to JSON values. */
#include "formats/gguf/gguf_read.h"
#include "base/file/file.h"
#include "base/fmath.h"
#include "base/little.h"
#include "base/text/str.h"
#include "formats/gguf/gguf_constants.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 16, /* bytes per read */
    MOST_TEXT = 1 << 24,
    MOST_NAME = 127,
    MOST_ALIGNMENT = 1 << 20,
    LEAST_PAIR = 13,  /* bytes of the smallest metadata pair */
    LEAST_TENSOR = 32 /* bytes of the smallest tensor description */
};

/* Bytes of a value; for texts and lists, of the smallest one. */
static const int value_bytes[GGUF_VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

typedef struct gguf_header {
    gguf_file *f;
    file_reader file;
    int64_t at;                 /* offset of the next byte */
    int64_t piece_at, in_piece; /* offset and bytes of `piece` */
    char *piece;                /* [PIECE] */
    str text;                   /* the last text */
    int64_t alignment;
} gguf_header;

#define FAIL(c, ...) status_context(status_fail(OTT_ERR_FORMAT, __VA_ARGS__), "%s", (c)->f->path)

/* ---- numbers and texts ---- */

static int64_t bytes_left(const gguf_header *c) {
    return c->file.bytes - c->at;
}

static ott_status take(gguf_header *c, void *out, int64_t bytes) {
    if (bytes > bytes_left(c))
        return FAIL(c, "ends at byte %" PRId64 ", in the middle of its header: truncated?", c->file.bytes);
    for (int64_t done = 0, n; done < bytes; done += n) {
        int64_t within = c->at - c->piece_at;
        if (within >= c->in_piece) {
            c->piece_at = c->at;
            c->in_piece = bytes_left(c) < PIECE ? bytes_left(c) : PIECE;
            TRY(file_reader_read(&c->file, c->at, c->piece, c->in_piece));
            within = 0;
        }
        n = c->in_piece - within < bytes - done ? c->in_piece - within : bytes - done;
        memcpy((char *)out + done, c->piece + within, (size_t)n);
        c->at += n;
    }
    return OTT_OK;
}

static ott_status take_integer(gguf_header *c, int bytes, uint64_t *out) {
    unsigned char text[8];
    TRY(take(c, text, bytes));
    return *out = little_load(text, bytes), OTT_OK;
}

/* Reads a number of items with at least `least` bytes each. */
static ott_status take_count(gguf_header *c, const char *what, int least, int64_t *out) {
    uint64_t count;
    TRY(take_integer(c, 8, &count));
    if (count > (uint64_t)(bytes_left(c) / least))
        return FAIL(c, "%s: %" PRIu64 " do not fit into the %" PRId64 " bytes that follow: truncated?", what,
                    count, bytes_left(c));
    return *out = (int64_t)count, OTT_OK;
}

/* Reads a text into c->text. */
static ott_status take_text(gguf_header *c, const char *what) {
    char piece[256];
    int64_t bytes;
    TRY(take_count(c, what, 1, &bytes));
    if (bytes > MOST_TEXT)
        return FAIL(c, "%s: a text of %" PRId64 " bytes; at most %d are supported", what, bytes, MOST_TEXT);
    c->text.length = 0;
    str_append(&c->text, "");
    for (int64_t n; bytes > 0; bytes -= n) {
        n = bytes < (int64_t)sizeof piece ? bytes : (int64_t)sizeof piece;
        TRY(take(c, piece, n));
        str_append_bytes(&c->text, piece, n);
    }
    TRY(str_finish(&c->text));
    if (str_utf8_error(c->text.text, c->text.length) >= 0) return FAIL(c, "%s: is not UTF-8", what);
    return OTT_OK;
}

/* ---- metadata ---- */

static ott_status fail_metadata_memory(const json_t *value) {
    return value ? OTT_OK : status_fail(OTT_ERR_MEMORY, "out of memory: metadata");
}

static ott_status read_number(gguf_header *c, const char *key, uint64_t type, json_t **out) {
    int bytes = value_bytes[type], unused = 64 - 8 * bytes;
    bool is_signed =
        type == GGUF_VALUE_I8 || type == GGUF_VALUE_I16 || type == GGUF_VALUE_I32 || type == GGUF_VALUE_I64;
    uint64_t bits;
    TRY(take_integer(c, bytes, &bits));
    double real = type == GGUF_VALUE_F32 ? (double)fmath_from_bits((uint32_t)bits) : 0;
    if (type == GGUF_VALUE_F64) memcpy(&real, &bits, sizeof real);
    if (!isfinite(real)) return FAIL(c, "%s: is not a finite number", key);
    if (type == GGUF_VALUE_U64 && bits > INT64_MAX) return FAIL(c, "%s: %" PRIu64 " is too large", key, bits);
    if (type == GGUF_VALUE_F32 || type == GGUF_VALUE_F64)
        *out = json_real(real);
    else if (type == GGUF_VALUE_BOOL)
        *out = json_boolean(bits != 0);
    else
        *out = json_integer(is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits);
    return fail_metadata_memory(*out);
}

static ott_status read_value(gguf_header *c, const char *key, uint64_t type, json_t **out) {
    if (type != GGUF_VALUE_TEXT) return read_number(c, key, type, out);
    TRY(take_text(c, key));
    *out = json_stringn(c->text.text, (size_t)c->text.length);
    return fail_metadata_memory(*out);
}

static ott_status read_list(gguf_header *c, const char *key, json_t **out) {
    uint64_t type;
    int64_t count;
    json_t *value;
    TRY(take_integer(c, 4, &type));
    if (type >= GGUF_VALUE_TYPES || type == GGUF_VALUE_LIST)
        return FAIL(c, "%s: a list of values of type %" PRIu64 " is not supported", key, type);
    TRY(take_count(c, key, value_bytes[type], &count));
    TRY(fail_metadata_memory(*out = json_array()));
    for (int64_t i = 0; i < count; i++) {
        TRY(read_value(c, key, type, &value));
        if (json_array_append_new(*out, value) != 0) return fail_metadata_memory(NULL);
    }
    return OTT_OK;
}

static ott_status read_pair(gguf_header *c) {
    const char *key;
    uint64_t type;
    json_t *value = NULL;
    TRY(take_text(c, "a metadata key"));
    TRY(arena_strdup(c->f->texts, c->text.text, &key));
    str_shown shown = str_show(key);
    TRY(take_integer(c, 4, &type));
    if (type >= GGUF_VALUE_TYPES) return FAIL(c, "%s: unknown value type %" PRIu64, shown.text, type);
    if (json_object_get(c->f->metadata, key)) return FAIL(c, "has the key %s twice", shown.text);
    ott_status status =
        type == GGUF_VALUE_LIST ? read_list(c, shown.text, &value) : read_value(c, shown.text, type, &value);
    if (status != OTT_OK) return json_decref(value), status;
    return json_object_set_new(c->f->metadata, key, value) == 0 ? OTT_OK : fail_metadata_memory(NULL);
}

/* ---- tensors ---- */

#define FAIL_TENSOR(c, e, ...)                                                                               \
    status_context(status_fail(OTT_ERR_FORMAT, __VA_ARGS__), "%s: tensor '%s'", (c)->f->path,                \
                   str_show((e)->name).text)

static ott_status read_entry_shape(gguf_header *c, safetensors_entry *e) {
    uint64_t rank, size;
    int64_t elements = 1;
    TRY(take_integer(c, 4, &rank));
    if (rank < 1 || rank > GGUF_MAX_RANK)
        return FAIL_TENSOR(c, e, "%" PRIu64 " dimensions; 1 to %d are supported", rank, GGUF_MAX_RANK);
    e->rank = (int)rank;
    for (int i = e->rank; i-- > 0;) { /* the file has the row length first */
        TRY(take_integer(c, 8, &size));
        if (size < 1 || size > INT64_MAX / 4 || __builtin_mul_overflow(elements, (int64_t)size, &elements) ||
            elements > INT64_MAX / 4)
            return FAIL_TENSOR(c, e, "a dimension of %" PRIu64 " is out of range", size);
        e->shape[i] = (int64_t)size;
    }
    return e->bytes = elements, OTT_OK;
}

static ott_status read_entry(gguf_header *c, safetensors_entry *e) {
    uint64_t type, offset;
    TRY(take_text(c, "a tensor name"));
    TRY(arena_strdup(c->f->texts, c->text.text, &e->name));
    if (c->text.length < 1 || c->text.length > MOST_NAME)
        return FAIL_TENSOR(c, e, "its name has %" PRId64 " bytes; 1 to %d are allowed", c->text.length,
                           MOST_NAME);
    TRY(read_entry_shape(c, e));
    TRY(take_integer(c, 4, &type));
    TRY(take_integer(c, 8, &offset));
    const gguf_format *f = gguf_format_find((uint32_t)type);
    if (!f)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s: tensor '%s' has ggml's element type %" PRIu64
                           ", which is not supported: use a file with " GGUF_FORMATS,
                           c->f->path, str_show(e->name).text, type);
    e->format = f->name;
    e->dtype = f->dtype;
    e->packed = f->decode ? f : NULL;
    if (e->shape[e->rank - 1] % f->elements != 0)
        return FAIL_TENSOR(c, e, "its rows of %" PRId64 " elements are no multiple of %d, as %s requires",
                           e->shape[e->rank - 1], f->elements, f->name);
    e->bytes = e->bytes / f->elements * f->bytes;
    if (offset > INT64_MAX / 4 || (int64_t)offset % c->alignment != 0)
        return FAIL_TENSOR(c, e, "its offset %" PRIu64 " is no multiple of %" PRId64, offset, c->alignment);
    return e->begin = (int64_t)offset, OTT_OK;
}

static int by_begin(const void *a, const void *b) {
    const safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const safetensors_entry *)a)->name, ((const safetensors_entry *)b)->name);
}

static ott_status check_entries(gguf_header *c) {
    gguf_file *f = c->f;
    int64_t end = 0, data = c->file.bytes - f->data_begin;
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_name);
    for (int64_t i = 1; i < f->count; i++)
        if (by_name(&f->tensors[i - 1], &f->tensors[i]) == 0)
            return FAIL_TENSOR(c, &f->tensors[i], "is listed twice");
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_begin);
    for (int64_t i = 0; i < f->count; i++) {
        safetensors_entry *e = &f->tensors[i];
        if (e->begin < end) return FAIL_TENSOR(c, e, "overlaps tensor '%s'", str_show(e[-1].name).text);
        if (e->bytes > data - e->begin)
            return FAIL_TENSOR(c, e,
                               "%" PRId64 " bytes at byte %" PRId64 " do not fit into the file of %" PRId64
                               " bytes: truncated?",
                               e->bytes, f->data_begin + e->begin, c->file.bytes);
        end = e->begin + e->bytes;
    }
    return OTT_OK;
}

/* ---- the file ---- */

static ott_status read_version(gguf_header *c) {
    char magic[4];
    uint64_t version;
    TRY(take(c, magic, 4));
    TRY(take_integer(c, 4, &version));
    if (memcmp(magic, "GGUF", 4) != 0) return FAIL(c, "is not a GGUF file");
    if (version == 2 || version == 3) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: GGUF version %" PRIu64 "%s is not supported; 2 and 3 are",
                       c->f->path, version, version & 0xffff ? "" : " (a big-endian file)");
}

static ott_status check_split(gguf_header *c) {
    int64_t parts = json_integer_value(json_object_get(c->f->metadata, "split.count"));
    if (parts <= 1) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s: is one of %" PRId64 " parts of a model: join them with llama-gguf-split --merge",
                       c->f->path, parts);
}

static ott_status read_alignment(gguf_header *c) {
    const json_t *value = json_object_get(c->f->metadata, "general.alignment");
    c->alignment = value ? json_integer_value(value) : GGUF_ALIGNMENT;
    if (c->alignment >= 1 && c->alignment <= MOST_ALIGNMENT) return OTT_OK;
    return FAIL(c, "general.alignment: must be a number from 1 to %d", MOST_ALIGNMENT);
}

static ott_status read_gguf_header(gguf_header *c) {
    uint64_t tensors;
    int64_t pairs;
    gguf_file *f = c->f;
    TRY(read_version(c));
    TRY(take_integer(c, 8, &tensors));
    TRY(take_count(c, "metadata keys", LEAST_PAIR, &pairs));
    for (int64_t i = 0; i < pairs; i++) TRY(read_pair(c));
    TRY(check_split(c));
    TRY(read_alignment(c));
    if (tensors > (uint64_t)(bytes_left(c) / LEAST_TENSOR))
        return FAIL(c, "%" PRIu64 " tensors do not fit into the %" PRId64 " bytes that follow: truncated?",
                    tensors, bytes_left(c));
    TRY(mem_alloc_array(f->account, MEM_OTHER, (int64_t)tensors, sizeof *f->tensors, "a table of tensors",
                        &f->tensors));
    for (; f->count < (int64_t)tensors; f->count++) TRY(read_entry(c, &f->tensors[f->count]));
    f->data_begin = (c->at + c->alignment - 1) / c->alignment * c->alignment;
    return check_entries(c);
}

ott_status gguf_open(mem *account, const char *path, gguf_file *out) {
    gguf_header c = {.f = out, .file = {.descriptor = -1}, .text = {.account = account}};
    ott_status status;
    *out = (gguf_file){.account = account, .path = path};
    TRY_OUT(arena_open(account, MEM_OTHER, &out->texts));
    TRY_OUT(arena_strdup(out->texts, path, &out->path));
    TRY_OUT(fail_metadata_memory(out->metadata = json_object()));
    TRY_OUT(mem_alloc(account, MEM_OTHER, PIECE, "a GGUF header", &c.piece));
    TRY_OUT(file_reader_open(out->path, &c.file));
    TRY_OUT(read_gguf_header(&c));
out:
    file_reader_close(&c.file);
    str_free(&c.text);
    mem_free(account, c.piece);
    return status;
}

void gguf_close(gguf_file *f) {
    json_decref(f->metadata);
    mem_free(f->account, f->tensors);
    arena_close(f->texts);
    *f = (gguf_file){0};
}

const safetensors_entry *gguf_find(const gguf_file *f, const char *name) {
    for (int64_t i = 0; i < f->count; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
    return NULL;
}
