/* formats/safetensors/safetensors: the reader. Opening a file checks the header length, the JSON, each
   tensor, and finally that the tensors, sorted by offset, cover the data without gaps or overlaps. */
#include "formats/safetensors/safetensors.h"
#include "base/arena.h"
#include "base/file/file.h"
#include "base/json/json_text.h"
#include "base/little.h"
#include "formats/gguf/gguf_read.h"
#include "formats/safetensors/format.h"
#include "formats/safetensors/show.h"
#include "fp8/dtype.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct safetensors {
    mem *account;
    arena *texts; /* owns path, names and metadata */
    file_reader file;
    int64_t data_begin;  /* offset of the data section in the file */
    uint32_t header_crc; /* CRC of the header, checked by safetensors_reopen */
    bool is_gguf;
    int64_t count, metadata_count;
    safetensors_entry *entries;        /* [count], sorted by offset */
    const safetensors_entry **by_name; /* [count], sorted by name */
    safetensors_pair *metadata;        /* [metadata_count] pairs of __metadata__ */
};

int safetensors_format_find(const char *name) {
    for (int i = 0; i < SAFETENSORS_FORMATS; i++)
        if (strcmp(safetensors_formats[i].name, name) == 0) return i;
    return -1;
}

#define FAIL(f, ...) status_context(status_fail(OTT_ERR_FORMAT, __VA_ARGS__), "%s", (f)->file.path)
#define FAIL_TENSOR(f, name, ...)                                                                            \
    status_context(status_fail(OTT_ERR_FORMAT, __VA_ARGS__), "%s: tensor '%s'", (f)->file.path,              \
                   str_show(name).text)

/* ---- the header ---- */

static ott_status read_header_length(safetensors *f, int64_t *length) {
    unsigned char bytes[8];
    if (f->file.bytes < 8)
        return FAIL(f, "%" PRId64 " bytes are too few for a safetensors file", f->file.bytes);
    TRY(file_reader_read(&f->file, 0, bytes, 8));
    uint64_t n = little_load(bytes, 8);
    if (n > SAFETENSORS_MAX_HEADER)
        return FAIL(f, "a header of %" PRIu64 " bytes, at most %d are allowed: not a safetensors file?", n,
                    SAFETENSORS_MAX_HEADER);
    if ((int64_t)n > f->file.bytes - 8)
        return FAIL(f,
                    "a header of %" PRIu64 " bytes does not fit into a file of %" PRId64 " bytes: truncated?",
                    n, f->file.bytes);
    *length = (int64_t)n;
    return OTT_OK;
}

static ott_status parse_header(safetensors *f, const char *text, int64_t length, json_t **root) {
    json_error_t error;
    int64_t bad = str_utf8_error(text, length);
    if (bad >= 0) return FAIL(f, "the header is not UTF-8 at byte %" PRId64 " of the file", bad + 8);
    TRY(status_context(json_text_parse(text, length, JSON_REJECT_DUPLICATES, root, &error), "%s",
                       f->file.path));
    if (!*root)
        return FAIL(f, "the header is not valid JSON: %s (byte %d of the file)", str_show(error.text).text,
                    error.position + 8);
    if (!json_is_object(*root)) return FAIL(f, "the header is not a JSON object");
    return OTT_OK;
}

static ott_status read_metadata(safetensors *f, json_t *object) {
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return FAIL(f, "__metadata__ is not a JSON object");
    TRY(mem_alloc_array(f->account, MEM_OTHER, (int64_t)json_object_size(object), sizeof *f->metadata,
                        "safetensors metadata", &f->metadata));
    json_object_foreach(object, key, value) {
        safetensors_pair *pair = &f->metadata[f->metadata_count++];
        if (!json_is_string(value)) return FAIL(f, "__metadata__: '%s' is not a string", str_show(key).text);
        TRY(arena_strdup(f->texts, key, &pair->key));
        TRY(arena_strdup(f->texts, json_string_value(value), &pair->value));
    }
    return OTT_OK;
}

/* ---- one tensor ---- */

static ott_status read_format(safetensors *f, safetensors_entry *e, json_t *tensor, int *bits) {
    json_t *dtype = json_object_get(tensor, "dtype");
    if (!json_is_string(dtype)) return FAIL_TENSOR(f, e->name, "dtype is missing or not a string");
    int format = safetensors_format_find(json_string_value(dtype));
    if (format < 0)
        return FAIL_TENSOR(f, e->name, "unknown dtype '%s'", str_show(json_string_value(dtype)).text);
    e->format = safetensors_formats[format].name;
    *bits = safetensors_formats[format].bits;
    if (!dtype_from_safetensors_name(e->format, &e->dtype)) e->dtype = OTT_DTYPE_COUNT;
    return OTT_OK;
}

/* Accepts only integer literals: 1.0 and 1e0 are not sizes. */
static bool read_size(json_t *number, int64_t *out) {
    if (!json_is_integer(number) || json_integer_value(number) < 0) return false;
    *out = json_integer_value(number);
    return true;
}

static ott_status read_shape(safetensors *f, safetensors_entry *e, json_t *tensor) {
    json_t *shape = json_object_get(tensor, "shape");
    if (!json_is_array(shape)) return FAIL_TENSOR(f, e->name, "shape is missing or not an array");
    size_t rank = json_array_size(shape);
    if (rank > SAFETENSORS_MAX_RANK)
        return FAIL_TENSOR(f, e->name, "%zu dimensions; at most %d are supported", rank,
                           SAFETENSORS_MAX_RANK);
    e->rank = (int)rank;
    for (int i = 0; i < e->rank; i++)
        if (!read_size(json_array_get(shape, (size_t)i), &e->shape[i]))
            return FAIL_TENSOR(f, e->name, "dimension %d of shape is not a non-negative integer", i);
    return OTT_OK;
}

static ott_status read_offsets(safetensors *f, safetensors_entry *e, json_t *tensor) {
    json_t *offsets = json_object_get(tensor, "data_offsets");
    int64_t end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_size(json_array_get(offsets, 0), &e->begin) || !read_size(json_array_get(offsets, 1), &end))
        return FAIL_TENSOR(f, e->name, "data_offsets is not a pair of non-negative integers");
    if (end < e->begin)
        return FAIL_TENSOR(f, e->name, "data_offsets end at %" PRId64 ", before they begin at %" PRId64, end,
                           e->begin);
    e->bytes = end - e->begin;
    return OTT_OK;
}

/* *bytes = size of a tensor with `bits` bits per element. False on overflow or an incomplete last byte. */
static bool shape_bytes(const int64_t *shape, int rank, int bits, int64_t *bytes) {
    int64_t product = 1;
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(product, shape[i], &product)) return false;
    if (__builtin_mul_overflow(product, bits, &product) || product % 8 != 0) return false;
    *bytes = product / 8;
    return true;
}

static ott_status parse_tensor(safetensors *f, const char *name, json_t *tensor) {
    safetensors_entry *e = &f->entries[f->count];
    int bits = 0;
    int64_t expected;
    TRY(arena_strdup(f->texts, name, &e->name));
    if (!json_is_object(tensor)) return FAIL_TENSOR(f, name, "its description is not a JSON object");
    TRY(read_format(f, e, tensor, &bits));
    TRY(read_shape(f, e, tensor));
    TRY(read_offsets(f, e, tensor));
    if (!shape_bytes(e->shape, e->rank, bits, &expected))
        return FAIL_TENSOR(f, name, "its shape is not a whole number of bytes below 2^63");
    if (expected != e->bytes)
        return FAIL_TENSOR(f, name, "its shape takes %" PRId64 " bytes, its data_offsets span %" PRId64,
                           expected, e->bytes);
    f->count++;
    return OTT_OK;
}

/* ---- all tensors ---- */

static int compare_offsets(const void *a, const void *b) {
    const safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_entry_names(const void *a, const void *b) {
    return strcmp((*(const safetensors_entry *const *)a)->name, (*(const safetensors_entry *const *)b)->name);
}

/* Fails if tensors overlap, or if there is data between them: a file could hide data in this way. */
static ott_status check_tiling(const safetensors *f) {
    int64_t end = 0, data = f->file.bytes - f->data_begin;
    for (int64_t i = 0; i < f->count; i++) {
        const safetensors_entry *e = &f->entries[i];
        if (e->begin != end)
            return FAIL_TENSOR(f, e->name,
                               "begins at byte %" PRId64 " of the data, but byte %" PRId64 " is next: %s",
                               e->begin, end, e->begin < end ? "tensors overlap" : "there is a gap");
        end += e->bytes; /* cannot overflow: begin + bytes is an int64_t in the file */
    }
    if (end != data)
        return FAIL(f, "the tensors take %" PRId64 " bytes, the file has %" PRId64 " bytes of data: %s", end,
                    data, end > data ? "truncated?" : "trailing bytes");
    return OTT_OK;
}

static ott_status sort_names(safetensors *f) {
    TRY(mem_alloc_array(f->account, MEM_OTHER, f->count, sizeof *f->by_name, "safetensors names",
                        &f->by_name));
    for (int64_t i = 0; i < f->count; i++) f->by_name[i] = &f->entries[i];
    qsort(f->by_name, (size_t)f->count, sizeof *f->by_name, compare_entry_names);
    return OTT_OK;
}

static ott_status parse_entries(safetensors *f, json_t *root) {
    const char *key;
    json_t *value;
    int64_t slots = (int64_t)json_object_size(root);
    TRY(mem_alloc_array(f->account, MEM_OTHER, slots, sizeof *f->entries, "safetensors header", &f->entries));
    json_object_foreach(root, key, value) {
        if (strcmp(key, "__metadata__") == 0)
            TRY(read_metadata(f, value));
        else
            TRY(parse_tensor(f, key, value));
    }
    qsort(f->entries, (size_t)f->count, sizeof *f->entries, compare_offsets);
    TRY(check_tiling(f));
    return sort_names(f);
}

/* CRC of the bytes from byte 8 to `end`, or to the end of the file. */
static ott_status header_checksum(const file_reader *file, int64_t end, uint32_t *crc) {
    unsigned char piece[4096];
    *crc = 0;
    if (end > file->bytes) end = file->bytes;
    for (int64_t at = 8, bytes; at < end; at += bytes) {
        bytes = end - at < (int64_t)sizeof piece ? end - at : (int64_t)sizeof piece;
        TRY(file_reader_read(file, at, piece, bytes));
        *crc = file_crc32c(*crc, piece, bytes);
    }
    return OTT_OK;
}

static ott_status read_file_header(safetensors *f) {
    int64_t length = 0;
    void *text = NULL;
    json_t *root = NULL;
    ott_status status;
    TRY(read_header_length(f, &length));
    f->data_begin = 8 + length;
    TRY(mem_alloc(f->account, MEM_OTHER, length, "safetensors header", &text));
    TRY_OUT(file_reader_read(&f->file, 8, text, length));
    f->header_crc = file_crc32c(0, text, length);
    TRY_OUT(parse_header(f, text, length, &root));
    TRY_OUT(parse_entries(f, root));
out:
    json_decref(root);
    mem_free(f->account, text);
    return status;
}

/* ---- GGUF files ---- */

/* Stores the keys general.* as texts. */
static ott_status copy_gguf_metadata(safetensors *f, json_t *metadata) {
    const char *key;
    json_t *value;
    TRY(mem_alloc_array(f->account, MEM_OTHER, (int64_t)json_object_size(metadata), sizeof *f->metadata,
                        "GGUF metadata", &f->metadata));
    json_object_foreach(metadata, key, value) {
        safetensors_pair *pair = &f->metadata[f->metadata_count];
        if (!str_starts_with(key, "general.") || json_is_array(value)) continue;
        char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
        ott_status status = arena_strdup(f->texts, key, &pair->key);
        if (status == OTT_OK)
            status = arena_strdup(f->texts, text ? text : json_string_value(value), &pair->value);
        free(text);
        TRY(status);
        f->metadata_count++;
    }
    return OTT_OK;
}

/* Moves the table of tensors from g to f. */
static ott_status take_gguf_header(safetensors *f, gguf_file *g) {
    f->data_begin = g->data_begin;
    f->entries = g->tensors;
    f->count = g->count;
    g->tensors = NULL;
    for (int64_t i = 0; i < f->count; i++)
        TRY(arena_strdup(f->texts, f->entries[i].name, &f->entries[i].name));
    TRY(copy_gguf_metadata(f, g->metadata));
    TRY(sort_names(f));
    return header_checksum(&f->file, f->data_begin, &f->header_crc);
}

static ott_status read_gguf(safetensors *f) {
    gguf_file g;
    f->is_gguf = true;
    ott_status status = gguf_open(f->account, f->file.path, &g);
    if (status == OTT_OK) status = take_gguf_header(f, &g);
    gguf_close(&g);
    return status;
}

/* ---- opening a file ---- */

static ott_status open_tensors(mem *account, const char *path, ott_status (*read)(safetensors *),
                               safetensors **out) {
    safetensors *f;
    const char *own_path = NULL;
    ott_status status;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(safetensors), "a safetensors file", &f));
    f->account = account;
    f->file.descriptor = -1;
    TRY_OUT(arena_open(account, MEM_OTHER, &f->texts));
    TRY_OUT(arena_strdup(f->texts, path, &own_path));
    TRY_OUT(file_reader_open(own_path, &f->file));
    TRY_OUT(read(f));
    *out = f;
out:
    if (status != OTT_OK) safetensors_close(f);
    return status;
}

ott_status safetensors_open(mem *account, const char *path, safetensors **out) {
    *out = NULL;
    TRY(file_refuse_gguf(path));
    return open_tensors(account, path, read_file_header, out);
}

ott_status safetensors_open_gguf(mem *account, const char *path, safetensors **out) {
    return open_tensors(account, path, read_gguf, out);
}

bool safetensors_is_gguf(const safetensors *f) {
    return f->is_gguf;
}

void safetensors_close(safetensors *f) {
    if (!f) return;
    file_reader_close(&f->file);
    arena_close(f->texts);
    mem_free(f->account, f->metadata);
    mem_free(f->account, (void *)f->by_name);
    mem_free(f->account, f->entries);
    mem_free(f->account, f);
}

/* ---- suspending ---- */

void safetensors_suspend(safetensors *f) {
    file_reader_close(&f->file);
}

/* Fails if the size or header of the file has changed since it was opened: the entries would be wrong. */
static ott_status check_unchanged(const safetensors *f, const file_reader *now) {
    uint32_t crc = 0;
    bool same = now->bytes == f->file.bytes;
    if (same) TRY(header_checksum(now, f->data_begin, &crc));
    if (same && crc == f->header_crc) return OTT_OK;
    return status_fail(OTT_ERR_IO, "%s: was replaced while it was in use", f->file.path);
}

ott_status safetensors_reopen(safetensors *f) {
    file_reader now;
    if (f->file.descriptor >= 0) return OTT_OK;
    TRY(file_reader_open(f->file.path, &now));
    ott_status status = check_unchanged(f, &now);
    if (status != OTT_OK) return file_reader_close(&now), status;
    return f->file = now, OTT_OK;
}

/* ---- lookup and reading ---- */

const char *safetensors_path(const safetensors *f) {
    return f->file.path;
}

int64_t safetensors_count(const safetensors *f) {
    return f->count;
}

const safetensors_entry *safetensors_at(const safetensors *f, int64_t index) {
    return index >= 0 && index < f->count ? &f->entries[index] : NULL;
}

const safetensors_entry *safetensors_find(const safetensors *f, const char *name) {
    const safetensors_entry key = {.name = name}, *wanted = &key;
    const safetensors_entry *const *found =
        bsearch(&wanted, f->by_name, (size_t)f->count, sizeof *f->by_name, compare_entry_names);
    return found ? *found : NULL;
}

int64_t safetensors_elements(const safetensors_entry *e) {
    int64_t elements = 1;
    for (int i = 0; i < e->rank; i++) elements *= e->shape[i]; /* cannot overflow: see shape_bytes */
    return elements;
}

const safetensors_pair *safetensors_metadata_pairs(const safetensors *f, int64_t *count) {
    *count = f->metadata_count;
    return f->metadata;
}

const char *safetensors_metadata(const safetensors *f, const char *key) {
    for (int64_t i = 0; i < f->metadata_count; i++)
        if (strcmp(f->metadata[i].key, key) == 0) return f->metadata[i].value;
    return NULL;
}

ott_status safetensors_check_shape(const safetensors *f, const safetensors_entry *e, int rank,
                                   const int64_t *shape) {
    if (e->rank == rank && (rank == 0 || memcmp(e->shape, shape, (size_t)rank * sizeof *shape) == 0))
        return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: tensor '%s' has shape %s; %s is expected", f->file.path,
                       str_show(e->name).text, safetensors_show_shape(e->shape, e->rank).text,
                       safetensors_show_shape(shape, rank).text);
}

ott_status safetensors_expect(const safetensors *f, const char *name, ott_dtype dtype, int rank,
                              const int64_t *shape, const safetensors_entry **out) {
    const safetensors_entry *e = *out = safetensors_find(f, name);
    if (!e) {
        safetensors_nearest nearest = safetensors_nearest_begin(name);
        for (int64_t i = 0; i < f->count; i++) safetensors_nearest_offer(&nearest, f->entries[i].name);
        return safetensors_nearest_fail(&nearest, f->file.path);
    }
    if (e->dtype != dtype)
        return status_fail(OTT_ERR_DTYPE, "%s: tensor '%s' is %s; %s is expected", f->file.path,
                           str_show(name).text, e->format, dtype_safetensors_name(dtype));
    return safetensors_check_shape(f, e, rank, shape);
}

ott_status safetensors_read(const safetensors *f, const safetensors_entry *e, int64_t offset, int64_t bytes,
                            void *out) {
    if (offset < 0 || bytes < 0 || offset > e->bytes || bytes > e->bytes - offset)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: tensor '%s': %" PRId64 " bytes were requested at byte %" PRId64
                           " of %" PRId64,
                           f->file.path, str_show(e->name).text, bytes, offset, e->bytes);
    return file_reader_read(&f->file, f->data_begin + e->begin + offset, out, bytes);
}
