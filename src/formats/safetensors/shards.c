/* formats/safetensors/shards: the reader. The index and every shard's header must list the same tensors. */
#include "formats/safetensors/shards.h"
#include "base/arena.h"
#include "base/file/file.h"
#include "base/json/json_text.h"
#include "formats/safetensors/show.h"
#include "fp8/cast.h"
#include <inttypes.h>
#include <stdlib.h>

typedef struct shard_file {
    const char *name; /* file name without the folder */
    safetensors *header;
} shard_file;

struct shards {
    mem *account;
    arena *texts;
    const char *path;   /* the path that was passed to shards_open */
    const char *folder; /* folder of the shards; "" is the current folder, else ends with '/' */
    const char *index;  /* path of the index; NULL: single file */
    shard_file *files;  /* [file_count], sorted by name */
    int64_t file_count, count;
    shard_tensor *tensors;          /* [count], sorted by file, then by offset */
    const shard_tensor **by_name;   /* [count], sorted by name */
    int64_t open[SHARDS_OPEN_MOST]; /* open files, most recently used first */
    int open_count;
};

#define FAIL_INDEX(s, ...) status_context(status_fail(OTT_ERR_FORMAT, __VA_ARGS__), "%s", (s)->index)

/* ---- list of files ---- */

/* Shards must be next to their index: a name that points elsewhere is an attack. */
static bool is_plain_name(const char *name) {
    if (name[0] == '.' || strstr(name, "..") || !str_ends_with(name, ".safetensors")) return false;
    for (const char *c = name; *c; c++)
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 0x20 || *c == 0x7f) return false;
    return true;
}

static int by_file_name(const void *a, const void *b) {
    return strcmp(((const shard_file *)a)->name, ((const shard_file *)b)->name);
}

/* Collects the distinct file names of the index; `names` is used as a set. */
static ott_status collect_names(shards *s, json_t *weight_map, json_t *names) {
    const char *tensor;
    json_t *value;
    json_object_foreach(weight_map, tensor, value) {
        if (!json_is_string(value))
            return FAIL_INDEX(s, "weight_map: the file of tensor '%s' is not a string",
                              str_show(tensor).text);
        const char *name = json_string_value(value);
        if (!is_plain_name(name))
            return FAIL_INDEX(s, "weight_map: tensor '%s' is in '%s', which is not a file name *.safetensors",
                              str_show(tensor).text, str_show(name).text);
        if (json_object_set_new(names, name, json_true()) != 0)
            return status_fail(OTT_ERR_MEMORY, "out of memory: names of the shards");
    }
    return OTT_OK;
}

static ott_status allocate_files(shards *s, int64_t count) {
    return mem_alloc_array(s->account, MEM_OTHER, count, sizeof *s->files, "shards", &s->files);
}

static ott_status list_files(shards *s, json_t *weight_map) {
    const char *name;
    json_t *value, *names = json_object();
    ott_status status;
    if (!names) return status_fail(OTT_ERR_MEMORY, "out of memory: names of the shards");
    TRY_OUT(collect_names(s, weight_map, names));
    TRY_OUT(allocate_files(s, (int64_t)json_object_size(names)));
    json_object_foreach(names, name, value)
        TRY_OUT(arena_strdup(s->texts, name, &s->files[s->file_count++].name));
    qsort(s->files, (size_t)s->file_count, sizeof *s->files, by_file_name);
out:
    json_decref(names);
    return status;
}

/* Reads a header and closes the file: at most SHARDS_OPEN_MOST files stay open. */
static ott_status open_header(shards *s, shard_file *f) {
    const char *path;
    TRY(arena_printf(s->texts, &path, "%s%s", s->folder, f->name));
    ott_status status = file_is_gguf(path) ? safetensors_open_gguf(s->account, path, &f->header)
                                           : safetensors_open(s->account, path, &f->header);
    if (status == OTT_ERR_NOT_FOUND && s->index)
        return status_fail(status, "%s: is missing, though %s names it: an unfinished download?", path,
                           s->index);
    TRY(status);
    safetensors_suspend(f->header);
    s->count += safetensors_count(f->header);
    return OTT_OK;
}

static int by_tensor_name(const void *a, const void *b) {
    const shard_tensor *x = *(const shard_tensor *const *)a, *y = *(const shard_tensor *const *)b;
    return strcmp(x->entry->name, y->entry->name);
}

static ott_status open_headers(shards *s) {
    int64_t at = 0;
    for (int64_t i = 0; i < s->file_count; i++) TRY(open_header(s, &s->files[i]));
    TRY(mem_alloc_array(s->account, MEM_OTHER, s->count, sizeof *s->tensors, "tensors of shards",
                        &s->tensors));
    TRY(mem_alloc_array(s->account, MEM_OTHER, s->count, sizeof *s->by_name, "names of tensors",
                        &s->by_name));
    for (int64_t i = 0; i < s->file_count; i++)
        for (int64_t j = 0; j < safetensors_count(s->files[i].header); j++) {
            s->tensors[at] = (shard_tensor){safetensors_at(s->files[i].header, j), i};
            s->by_name[at] = &s->tensors[at];
            at++;
        }
    qsort(s->by_name, (size_t)s->count, sizeof *s->by_name, by_tensor_name);
    return OTT_OK;
}

/* ---- check of the index ---- */

static ott_status check_duplicates(const shards *s) {
    for (int64_t i = 1; i < s->count; i++) {
        const shard_tensor *a = s->by_name[i - 1], *b = s->by_name[i];
        if (strcmp(a->entry->name, b->entry->name) == 0)
            return FAIL_INDEX(s, "tensor '%s' is in two shards, %s and %s", str_show(a->entry->name).text,
                              s->files[a->file].name, s->files[b->file].name);
    }
    return OTT_OK;
}

static ott_status check_shards(const shards *s, json_t *weight_map) {
    for (int64_t i = 0; i < s->count; i++) {
        const shard_tensor *t = &s->tensors[i];
        const char *claimed = json_string_value(json_object_get(weight_map, t->entry->name));
        const char *file = s->files[t->file].name;
        if (!claimed)
            return FAIL_INDEX(s, "does not list tensor '%s' of %s", str_show(t->entry->name).text, file);
        if (strcmp(claimed, file) != 0)
            return FAIL_INDEX(s, "places tensor '%s' in %s, but it is in %s", str_show(t->entry->name).text,
                              claimed, file);
    }
    return OTT_OK;
}

static ott_status check_index(const shards *s, json_t *weight_map) {
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value) {
        if (!shards_find(s, name))
            return FAIL_INDEX(s, "places tensor '%s' in %s, which has no such tensor", str_show(name).text,
                              json_string_value(value));
    }
    return OTT_OK;
}

/* Compares metadata.total_size, which may be a real number or missing, with the size of all tensors. */
static ott_status check_total(const shards *s, json_t *root) {
    json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
    int64_t bytes = 0;
    if (!total) return OTT_OK;
    for (int64_t i = 0; i < s->count; i++) bytes += s->tensors[i].entry->bytes;
    if (json_is_integer(total) ? json_integer_value(total) == bytes : json_real_value(total) == (double)bytes)
        return OTT_OK;
    char *given = json_dumps(total, JSON_ENCODE_ANY | JSON_COMPACT);
    ott_status status = FAIL_INDEX(
        s, "metadata.total_size is %s, the shards hold %" PRId64 " bytes: files of different versions?",
        str_show(given ? given : "?").text, bytes);
    free(given);
    return status;
}

static ott_status parse_shard_index(shards *s, const char *text, int64_t bytes, json_t **root) {
    json_error_t error;
    TRY(json_text_parse(text, bytes, JSON_REJECT_DUPLICATES, root, &error));
    if (!*root) return FAIL_INDEX(s, "line %d: %s", error.line, str_show(error.text).text);
    if (!json_is_object(*root)) return FAIL_INDEX(s, "is not a JSON object");
    if (!json_is_object(json_object_get(*root, "weight_map")))
        return FAIL_INDEX(s, "has no object weight_map");
    json_t *metadata = json_object_get(*root, "metadata");
    if (metadata && !json_is_object(metadata)) return FAIL_INDEX(s, "metadata is not a JSON object");
    return OTT_OK;
}

static ott_status open_by_index(shards *s) {
    char *text = NULL;
    int64_t bytes;
    json_t *root = NULL;
    ott_status status;
    TRY(file_read(s->account, s->index, SAFETENSORS_MAX_HEADER, &text, &bytes));
    TRY_OUT(parse_shard_index(s, text, bytes, &root));
    json_t *weight_map = json_object_get(root, "weight_map");
    TRY_OUT(list_files(s, weight_map));
    TRY_OUT(open_headers(s));
    TRY_OUT(check_duplicates(s));
    TRY_OUT(check_shards(s, weight_map));
    TRY_OUT(check_index(s, weight_map));
    TRY_OUT(check_total(s, root));
out:
    json_decref(root);
    mem_free(s->account, text);
    return status;
}

/* ---- opening a path ---- */

static ott_status open_single(shards *s, const char *name) {
    TRY(allocate_files(s, 1));
    TRY(arena_strdup(s->texts, name, &s->files[0].name));
    s->file_count = 1;
    return open_headers(s);
}

static ott_status fail_no_weights(const shards *s) {
    file_list names;
    const char *other = NULL, *pickle = NULL;
    TRY(file_list_folder(s->account, s->path, &names));
    for (int64_t i = 0; i < names.count; i++) {
        if (str_ends_with(names.names[i], ".safetensors")) other = names.names[i];
        if (str_starts_with(names.names[i], "pytorch_model")) pickle = names.names[i];
    }
    if (other)
        status_fail(OTT_ERR_NOT_FOUND,
                    "%s: has neither " SHARDS_SINGLE_NAME " nor " SHARDS_INDEX_NAME
                    "; to read %s alone, give its path",
                    s->path, str_show(other).text);
    else if (pickle)
        status_fail(OTT_ERR_NOT_FOUND,
                    "%s: has its weights in %s, which is not supported; save them as safetensors "
                    "(save_pretrained with safe_serialization=True)",
                    s->path, str_show(pickle).text);
    else
        status_fail(OTT_ERR_NOT_FOUND,
                    "%s: has no weights: neither " SHARDS_SINGLE_NAME " nor " SHARDS_INDEX_NAME, s->path);
    file_list_free(&names);
    return OTT_ERR_NOT_FOUND;
}

static ott_status open_shard_folder(shards *s) {
    const char *single, *index;
    TRY(arena_printf(s->texts, &s->folder, "%s%s", s->path, str_ends_with(s->path, "/") ? "" : "/"));
    TRY(arena_printf(s->texts, &single, "%s" SHARDS_SINGLE_NAME, s->folder));
    TRY(arena_printf(s->texts, &index, "%s" SHARDS_INDEX_NAME, s->folder));
    if (file_exists(single) && file_exists(index))
        return status_fail(OTT_ERR_FORMAT,
                           "%s: holds " SHARDS_SINGLE_NAME " and " SHARDS_INDEX_NAME
                           ": give the path of the file or of the index",
                           s->path);
    if (file_exists(single)) return open_single(s, SHARDS_SINGLE_NAME);
    if (!file_exists(index)) return fail_no_weights(s);
    s->index = index;
    return open_by_index(s);
}

static ott_status open_path(shards *s, const char *path) {
    TRY(arena_open(s->account, MEM_OTHER, &s->texts));
    TRY(arena_strdup(s->texts, path, &s->path));
    if (file_is_folder(path)) return open_shard_folder(s);
    const char *slash = strrchr(s->path, '/'), *name = slash ? slash + 1 : s->path;
    TRY(arena_printf(s->texts, &s->folder, "%.*s", (int)(name - s->path), s->path));
    if (!str_ends_with(name, ".index.json")) return open_single(s, name);
    s->index = s->path;
    return open_by_index(s);
}

ott_status shards_open(mem *account, const char *path, shards **out) {
    shards *s;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(shards), "a model's shards", &s));
    s->account = account;
    ott_status status = open_path(s, path);
    if (status != OTT_OK) return shards_close(s), status;
    return *out = s, OTT_OK;
}

void shards_close(shards *s) {
    if (!s) return;
    for (int64_t i = 0; i < s->file_count; i++) safetensors_close(s->files[i].header);
    arena_close(s->texts);
    mem_free(s->account, (void *)s->by_name);
    mem_free(s->account, s->tensors);
    mem_free(s->account, s->files);
    mem_free(s->account, s);
}

/* ---- lookup ---- */

const char *shards_path(const shards *s) {
    return s->path;
}

int64_t shards_file_count(const shards *s) {
    return s->file_count;
}

const safetensors *shards_file(const shards *s, int64_t file) {
    return file >= 0 && file < s->file_count ? s->files[file].header : NULL;
}

const char *shards_file_name(const shards *s, int64_t file) {
    return file >= 0 && file < s->file_count ? s->files[file].name : NULL;
}

int64_t shards_count(const shards *s) {
    return s->count;
}

const shard_tensor *shards_at(const shards *s, int64_t index) {
    return index >= 0 && index < s->count ? &s->tensors[index] : NULL;
}

const shard_tensor *shards_find(const shards *s, const char *name) {
    const safetensors_entry entry = {.name = name};
    const shard_tensor key = {.entry = &entry}, *wanted = &key;
    if (s->count == 0) return NULL;
    const shard_tensor *const *found =
        bsearch(&wanted, s->by_name, (size_t)s->count, sizeof *s->by_name, by_tensor_name);
    return found ? *found : NULL;
}

ott_status shards_expect(const shards *s, const char *name, int rank, const int64_t *shape,
                         const shard_tensor **out) {
    const shard_tensor *t = *out = shards_find(s, name);
    if (!t) {
        safetensors_nearest nearest = safetensors_nearest_begin(name);
        for (int64_t i = 0; i < s->count; i++) safetensors_nearest_offer(&nearest, s->tensors[i].entry->name);
        return safetensors_nearest_fail(&nearest, s->path);
    }
    const safetensors *f = s->files[t->file].header;
    bool is_value = t->entry->dtype != OTT_DTYPE_COUNT && dtype_is_high_precision(t->entry->dtype);
    if (!is_value && !t->entry->packed)
        return status_fail(OTT_ERR_DTYPE, "%s: tensor '%s' is %s; F32, BF16 or F16 is expected",
                           safetensors_path(f), str_show(name).text, t->entry->format);
    return safetensors_check_shape(f, t->entry, rank, shape);
}

/* ---- reading ---- */

/* Moves `file` to the front of the open files. Opens it if needed, closing the least recently used file. */
static ott_status use_file(shards *s, int64_t file) {
    int at = 0;
    while (at < s->open_count && s->open[at] != file) at++;
    if (at == s->open_count) {
        TRY(safetensors_reopen(s->files[file].header));
        if (s->open_count < SHARDS_OPEN_MOST)
            s->open_count++;
        else
            safetensors_suspend(s->files[s->open[--at]].header);
    }
    memmove(&s->open[1], &s->open[0], (size_t)at * sizeof *s->open);
    s->open[0] = file;
    return OTT_OK;
}

ott_status shards_read(shards *s, const shard_tensor *t, int64_t offset, int64_t bytes, void *out) {
    TRY(use_file(s, t->file));
    return safetensors_read(s->files[t->file].header, t->entry, offset, bytes, out);
}

bool shards_has_floats(const shard_tensor *t) {
    ott_dtype d = t->entry->dtype;
    if (d == OTT_DTYPE_COUNT) return t->entry->packed != NULL;
    return dtype_is_high_precision(d) || dtype_is_fp8(d) || d == OTT_E8M0;
}

bool shards_are_gguf(const shards *s) {
    return s->file_count == 1 && safetensors_is_gguf(s->files[0].header);
}

/* Decodes the blocks that contain elements [first, first + count). */
static ott_status read_packed(shards *s, const shard_tensor *t, int64_t first, int64_t count, float *out) {
    const gguf_format *f = t->entry->packed;
    uint8_t piece[64 * GGUF_BLOCK_BYTES_MOST];
    float values[GGUF_BLOCK_MOST];
    int64_t last = first + count, end = (last + f->elements - 1) / f->elements;
    int64_t most = (int64_t)sizeof piece / f->bytes;
    for (int64_t at = first / f->elements, blocks; at < end; at += blocks) {
        blocks = end - at < most ? end - at : most;
        TRY(shards_read(s, t, at * f->bytes, blocks * f->bytes, piece));
        for (int64_t i = 0; i < blocks; i++) {
            int64_t begin = (at + i) * f->elements, from = begin > first ? begin : first,
                    to = begin + f->elements < last ? begin + f->elements : last;
            f->decode(piece + i * f->bytes, values);
            memcpy(out + (from - first), values + (from - begin), (size_t)(to - from) * sizeof *out);
        }
    }
    return OTT_OK;
}

/* Decodes codes of format d to floats. The codes are at the end of the array values[count], and the floats
   fill the array from its start. A code is not wider than a float, so no float overwrites an unread code. */
static void decode_in_place(float *values, int64_t count, ott_dtype d) {
    enum { PIECE = 512 };
    _Alignas(8) char piece[PIECE * 4];
    int64_t size = dtype_bytes(d);
    const char *codes = (const char *)values + count * (4 - size);
    for (int64_t at = 0, n; at < count; at += n) {
        n = count - at < PIECE ? count - at : PIECE;
        memcpy(piece, codes + at * size, (size_t)(n * size));
        if (d == OTT_BF16) /* most models use BF16, so this loop is written to vectorize */
            for (int64_t i = 0; i < n; i++)
                values[at + i] = cast_from_bf16(((const uint16_t *)(void *)piece)[i]);
        else
            for (int64_t i = 0; i < n; i++) values[at + i] = cast_load(piece, d, i);
    }
}

ott_status shards_read_floats(shards *s, const shard_tensor *t, int64_t first, int64_t count, float *out) {
    const safetensors_entry *e = t->entry;
    int64_t elements = safetensors_elements(e);
    if (!shards_has_floats(t))
        return status_fail(OTT_ERR_DTYPE, "%s: tensor '%s' is %s, which cannot be read as numbers", s->path,
                           str_show(e->name).text, e->format);
    if (first < 0 || count < 0 || first > elements || count > elements - first)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: tensor '%s': %" PRId64 " elements were requested at element %" PRId64
                           " of %" PRId64,
                           s->path, str_show(e->name).text, count, first, elements);
    if (e->packed) return count > 0 ? read_packed(s, t, first, count, out) : OTT_OK;
    int64_t size = dtype_bytes(e->dtype);
    TRY(shards_read(s, t, first * size, count * size, (char *)out + count * (4 - size)));
    if (e->dtype != OTT_F32) decode_in_place(out, count, e->dtype);
    return OTT_OK;
}

ott_status shards_stream(shards *s, const shard_tensor *t, int64_t first, int64_t count, float *buffer,
                         int64_t capacity, shards_sink sink, void *user) {
    STATUS_REQUIRE(capacity > 0);
    for (int64_t at = 0, piece; at < count; at += piece) {
        piece = count - at < capacity ? count - at : capacity;
        TRY(shards_read_floats(s, t, first + at, piece, buffer));
        TRY(sink(user, first + at, piece, buffer));
    }
    return OTT_OK;
}
