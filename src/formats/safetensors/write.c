/* formats/safetensors/write: the writer of one file, or of a folder of files (shards). Before it writes a
   byte, it decides which file gets which tensor, as transformers does. So all offsets are known, and a file's
   header is written first. One file is open at a time. The files have the same bytes as files of Hugging
   Face's safetensors library. */
#include "formats/safetensors/shards.h"
#include "base/arena.h"
#include "base/file/file.h"
#include "base/little.h"
#include "base/text/str.h"
#include "formats/safetensors/format.h"
#include "fp8/cast.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct data_item {
    safetensors_tensor tensor;
    int format;    /* index of the format in safetensors_formats */
    int64_t bytes; /* bytes of the tensor's data */
    int64_t index; /* index of the tensor in the caller's array */
    int64_t part;  /* index of the tensor's file */
} data_item;

typedef struct file_part {
    const char *name, *path; /* file name; path with the folder */
    int64_t first, end;      /* tensors of the file: items[first, end) */
} file_part;

struct safetensors_writer {
    mem *account;
    arena *texts;
    const char *place; /* path of the file or of the folder */
    bool is_folder;
    data_item *items; /* [count] tensors, in the order of their data */
    int64_t count, current, total;
    int64_t left;     /* bytes of items[current] that are not appended yet */
    file_part *parts; /* [part_count] files */
    int64_t part_count, part;
    safetensors_pair *metadata;
    int64_t metadata_count;
    int rank, size;    /* this process, and the number of processes that write together */
    file_writer *file; /* writer of parts[part]; NULL if no file is open */
};

/* ---- declaration ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const data_item *)a)->tensor.name, ((const data_item *)b)->tensor.name);
}

static int by_part_format_name(const void *a, const void *b) {
    const data_item *x = a, *y = b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    return x->format != y->format ? y->format - x->format : by_name(a, b);
}

/* Checks a tensor, and adds it to w->items and its bytes to w->total. */
static ott_status declare_item(safetensors_writer *w, const safetensors_tensor *t) {
    data_item *i = &w->items[w->count];
    if ((unsigned)t->dtype >= OTT_DTYPE_COUNT)
        return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': its format is invalid", t->name);
    if (str_utf8_error(t->name, (int64_t)strlen(t->name)) >= 0)
        return status_fail(OTT_ERR_ARGUMENT, "a tensor's name is not UTF-8");
    if (strcmp(t->name, "__metadata__") == 0)
        return status_fail(OTT_ERR_ARGUMENT, "a tensor cannot be named __metadata__");
    if (t->rank < 0 || t->rank > SAFETENSORS_MAX_RANK)
        return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': %d dimensions; at most %d are supported", t->name,
                           t->rank, SAFETENSORS_MAX_RANK);
    i->bytes = dtype_bytes(t->dtype);
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] < 0 || __builtin_mul_overflow(i->bytes, t->shape[d], &i->bytes))
            return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': dimension %d is %" PRId64 ", which is %s",
                               t->name, d, t->shape[d], t->shape[d] < 0 ? "negative" : "too large");
    if (__builtin_add_overflow(w->total, i->bytes, &w->total))
        return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': the tensors take more than 2^63 bytes", t->name);
    i->tensor = *t;
    i->format = safetensors_format_find(dtype_safetensors_name(t->dtype));
    i->index = w->count++;
    return arena_strdup(w->texts, t->name, &i->tensor.name);
}

static ott_status copy_metadata(safetensors_writer *w, const safetensors_pair *pairs, int64_t count) {
    TRY(arena_alloc(w->texts, count * (int64_t)sizeof *pairs, &w->metadata));
    for (w->metadata_count = 0; w->metadata_count < count; w->metadata_count++) {
        const safetensors_pair *pair = &pairs[w->metadata_count];
        safetensors_pair *copy = &w->metadata[w->metadata_count];
        for (int64_t i = 0; i < w->metadata_count; i++)
            if (strcmp(pairs[i].key, pair->key) == 0)
                return status_fail(OTT_ERR_ARGUMENT, "metadata key '%s' is given twice", pair->key);
        if (strcmp(pair->key, "format") == 0)
            return status_fail(OTT_ERR_ARGUMENT, "metadata key 'format' is reserved");
        TRY(arena_strdup(w->texts, pair->key, &copy->key));
        TRY(arena_strdup(w->texts, pair->value, &copy->value));
    }
    return OTT_OK;
}

/* Splits tensors as transformers does. A tensor larger than a shard gets its own shard. Others fill a shard
   until the next would exceed its size; then the shard gets a number, items[i].part. */
static void split_tensors(safetensors_writer *w, int64_t max_bytes) {
    enum { OPEN = -1 }; /* tensors in the current shard, which has no number yet */
    int64_t held = 0, first_held = 0;
    for (int64_t i = 0; i <= w->count; i++) {
        int64_t bytes = i < w->count ? w->items[i].bytes : 0;
        if (i < w->count && bytes > max_bytes) {
            w->items[i].part = w->part_count++;
            continue;
        }
        if (i == w->count || bytes > max_bytes - held) {
            bool closes = false;
            for (int64_t j = first_held; j < i; j++) {
                if (w->items[j].part != OPEN) continue;
                w->items[j].part = w->part_count;
                closes = true;
            }
            w->part_count += closes;
            held = 0;
            first_held = i;
        }
        if (i < w->count) w->items[i].part = OPEN;
        held += bytes;
    }
    if (w->part_count == 0) w->part_count = 1; /* a model without tensors is one file */
}

static ott_status name_output_file(safetensors_writer *w, int64_t i) {
    file_part *p = &w->parts[i];
    p->name = SHARDS_SINGLE_NAME;
    p->path = w->place;
    if (!w->is_folder) return OTT_OK;
    if (w->part_count > 1)
        TRY(arena_printf(w->texts, &p->name, "model-%05" PRId64 "-of-%05" PRId64 ".safetensors", i + 1,
                         w->part_count));
    return arena_printf(w->texts, &p->path, "%s%s%s", w->place, str_ends_with(w->place, "/") ? "" : "/",
                        p->name);
}

/* Declares all tensors and metadata; max_bytes: data of a shard. */
static ott_status declare(safetensors_writer *w, const safetensors_tensor *tensors, int64_t count,
                          int64_t max_bytes, const safetensors_pair *metadata, int64_t metadata_count) {
    TRY(mem_alloc_array(w->account, MEM_OTHER, count, sizeof *w->items, "tensors to write", &w->items));
    for (int64_t i = 0; i < count; i++) TRY(declare_item(w, &tensors[i]));
    TRY(copy_metadata(w, metadata, metadata_count));
    split_tensors(w, max_bytes);
    qsort(w->items, (size_t)count, sizeof *w->items, by_name);
    for (int64_t i = 1; i < count; i++)
        if (by_name(&w->items[i - 1], &w->items[i]) == 0)
            return status_fail(OTT_ERR_ARGUMENT, "two tensors are named '%s'", w->items[i].tensor.name);
    qsort(w->items, (size_t)count, sizeof *w->items, by_part_format_name);
    TRY(arena_alloc(w->texts, w->part_count * (int64_t)sizeof *w->parts, &w->parts));
    for (int64_t p = 0, at = 0; p < w->part_count; p++) {
        w->parts[p].first = at;
        while (at < count && w->items[at].part == p) at++;
        w->parts[p].end = at;
        TRY(name_output_file(w, p));
    }
    w->left = count > 0 ? w->items[0].bytes : 0;
    return OTT_OK;
}

static ott_status refuse_weights(const safetensors_writer *w) {
    file_list names;
    ott_status status = OTT_OK;
    TRY(file_list_folder(w->account, w->place, &names));
    for (int64_t i = 0; status == OTT_OK && i < names.count; i++)
        if (str_glob("model*.safetensors", names.names[i]) || strcmp(names.names[i], SHARDS_INDEX_NAME) == 0)
            status = status_fail(OTT_ERR_ARGUMENT,
                                 "%s: already holds weights (%s): choose another folder or remove them",
                                 w->place, names.names[i]);
    file_list_free(&names);
    return status;
}

/* ---- files ---- */

static void append_pair(str *s, const char *key, const char *value) {
    str_append(s, ",");
    str_append_json(s, key, (int64_t)strlen(key));
    str_append(s, ":");
    if (value) str_append_json(s, value, (int64_t)strlen(value));
}

/* Makes the beginning of a file: the length of the header in 8 bytes, and the header. */
static ott_status make_header(const safetensors_writer *w, const file_part *p, str *s) {
    int64_t begin = 0;
    str_append_bytes(s, "\0\0\0\0\0\0\0", 8);
    str_append(s, "{\"__metadata__\":{\"format\":\"pt\"");
    for (int64_t i = 0; i < w->metadata_count; i++) append_pair(s, w->metadata[i].key, w->metadata[i].value);
    str_append(s, "}");
    for (const data_item *i = w->items + p->first; i < w->items + p->end; begin += i->bytes, i++) {
        append_pair(s, i->tensor.name, NULL);
        str_printf(s, "{\"dtype\":\"%s\",\"shape\":[", safetensors_formats[i->format].name);
        for (int d = 0; d < i->tensor.rank; d++)
            str_printf(s, "%s%" PRId64, d ? "," : "", i->tensor.shape[d]);
        str_printf(s, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, begin + i->bytes);
    }
    str_append(s, "}");
    while (!s->failed && s->length % 8 != 0) str_append(s, " "); /* aligns the data to 8 bytes */
    TRY(str_finish(s));
    int64_t length = s->length - 8;
    if (length > SAFETENSORS_MAX_HEADER)
        return status_fail(OTT_ERR_ARGUMENT, "the header takes %" PRId64 " bytes; %d are allowed", length,
                           SAFETENSORS_MAX_HEADER);
    little_store(s->text, (uint64_t)length, 8);
    return OTT_OK;
}

static ott_status open_output_file(safetensors_writer *w) {
    const file_part *p = &w->parts[w->part];
    str header = {.account = w->account};
    ott_status status;
    TRY_OUT(status_context(make_header(w, p, &header), "%s", p->path));
    TRY_OUT(w->size == 1 ? file_writer_open(w->account, p->path, &w->file)
                         : file_writer_join(w->account, p->path, &w->file));
    status = w->rank == 0 ? file_writer_append(w->file, header.text, header.length)
                          : file_writer_skip(w->file, header.length);
out:
    str_free(&header);
    return status;
}

static ott_status commit_part(safetensors_writer *w) {
    file_writer *file = w->file;
    w->file = NULL;
    TRY(file_writer_commit(file));
    return w->part++, OTT_OK;
}

/* Advances to the next tensor that needs data, and opens its file. Commits the files before it. */
static ott_status advance(safetensors_writer *w) {
    for (;;) {
        if (!w->file) TRY(open_output_file(w));
        while (w->current < w->parts[w->part].end && w->left == 0)
            if (++w->current < w->count) w->left = w->items[w->current].bytes;
        /* the last file is committed with the index */
        if (w->current < w->parts[w->part].end || w->part == w->part_count - 1) return OTT_OK;
        TRY(commit_part(w));
    }
}

/* ---- opening ---- */

/* max_bytes 0: one file at `place`. */
static ott_status open_writer(mem *account, const char *place, const safetensors_tensor *tensors,
                              int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                              int64_t metadata_count, int rank, int size, safetensors_writer **out) {
    safetensors_writer *w;
    ott_status status;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(safetensors_writer), "a safetensors writer", &w));
    *w = (safetensors_writer){.account = account, .is_folder = max_bytes > 0, .rank = rank, .size = size};
    TRY_OUT(arena_open(account, MEM_OTHER, &w->texts));
    TRY_OUT(arena_strdup(w->texts, place, &w->place));
    TRY_OUT(status_context(
        declare(w, tensors, count, w->is_folder ? max_bytes : INT64_MAX, metadata, metadata_count), "%s",
        place));
    if (w->is_folder && rank == 0) {
        TRY_OUT(file_make_folder(place));
        TRY_OUT(refuse_weights(w));
    }
    TRY_OUT(advance(w));
    *out = w;
out:
    if (status != OTT_OK) safetensors_writer_abandon(w);
    return status;
}

ott_status safetensors_writer_join(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   int rank, int size, safetensors_writer **out) {
    return open_writer(account, path, tensors, count, 0, metadata, metadata_count, rank, size, out);
}

ott_status safetensors_writer_open(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   safetensors_writer **out) {
    return open_writer(account, path, tensors, count, 0, metadata, metadata_count, 0, 1, out);
}

ott_status safetensors_writer_join_shards(mem *account, const char *folder, const safetensors_tensor *tensors,
                                          int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                                          int64_t metadata_count, int rank, int size,
                                          safetensors_writer **out) {
    *out = NULL;
    if (max_bytes < 0)
        return status_fail(OTT_ERR_ARGUMENT, "%s: shards of %" PRId64 " bytes are not possible", folder,
                           max_bytes);
    return open_writer(account, folder, tensors, count, max_bytes > 0 ? max_bytes : SHARDS_DEFAULT_BYTES,
                       metadata, metadata_count, rank, size, out);
}

/* ---- data ---- */

int64_t safetensors_writer_next(const safetensors_writer *w) {
    return w->file && w->current < w->count ? w->items[w->current].index : -1;
}

static ott_status check_bytes(const safetensors_writer *w, int64_t bytes) {
    if (!w->file) return status_fail(OTT_ERR_ARGUMENT, "%s: an earlier write failed", w->place);
    if (bytes >= 0 && bytes <= w->left) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%" PRId64 " bytes are too many: tensor '%s' lacks %" PRId64, bytes,
                       w->current < w->count ? w->items[w->current].tensor.name : "(none)", w->left);
}

ott_status safetensors_writer_append(safetensors_writer *w, const void *data, int64_t bytes) {
    TRY(check_bytes(w, bytes));
    TRY(file_writer_append(w->file, data, bytes));
    w->left -= bytes;
    return advance(w);
}

ott_status safetensors_writer_skip(safetensors_writer *w, int64_t bytes) {
    TRY(check_bytes(w, bytes));
    TRY(file_writer_skip(w->file, bytes));
    w->left -= bytes;
    return advance(w);
}

ott_status safetensors_writer_append_floats(safetensors_writer *w, const float *values, int64_t count) {
    enum { PIECE = 2048 };
    _Alignas(8) char piece[PIECE * 4];
    const int64_t item = w->current;
    if (item == w->count || w->items[item].tensor.dtype == OTT_F32)
        return safetensors_writer_append(w, values, 4 * count);
    const safetensors_tensor *t = &w->items[item].tensor;
    if (!dtype_is_high_precision(t->dtype))
        return status_fail(OTT_ERR_DTYPE, "%s: tensor '%s' is %s: its codes are needed, not floats", w->place,
                           t->name, dtype_safetensors_name(t->dtype));
    for (int64_t at = 0, n; at < count; at += n) {
        n = count - at < PIECE ? count - at : PIECE;
        for (int64_t i = 0; i < n; i++) cast_store(piece, t->dtype, i, values[at + i]);
        if (w->current != item)
            return status_fail(OTT_ERR_ARGUMENT, "%s: tensor '%s' has fewer elements than were passed",
                               w->place, t->name);
        TRY(safetensors_writer_append(w, piece, n * dtype_bytes(t->dtype)));
    }
    return OTT_OK;
}

/* ---- closing ---- */

/* Writes the index as transformers does: indented by two, names sorted. */
static ott_status write_index(safetensors_writer *w) {
    char path[PATH_MAX];
    str s = {.account = w->account};
    TRY(file_join(w->place, SHARDS_INDEX_NAME, path));
    qsort(w->items, (size_t)w->count, sizeof *w->items, by_name);
    str_printf(&s, "{\n  \"metadata\": {\n    \"total_size\": %" PRId64 "\n  },\n  \"weight_map\": {",
               w->total);
    for (int64_t i = 0; i < w->count; i++) {
        str_append(&s, i ? ",\n    " : "\n    ");
        str_append_json(&s, w->items[i].tensor.name, (int64_t)strlen(w->items[i].tensor.name));
        str_printf(&s, ": \"%s\"", w->parts[w->items[i].part].name);
    }
    str_append(&s, "\n  }\n}\n");
    ott_status status = str_finish(&s);
    if (status == OTT_OK) status = file_write_atomic(path, s.text, s.length);
    str_free(&s);
    return status;
}

static ott_status finish_files(safetensors_writer *w) {
    if (!w->file) return status_fail(OTT_ERR_ARGUMENT, "%s: an earlier write failed", w->place);
    const char *name = w->current < w->count ? w->items[w->current].tensor.name : NULL;
    if (name && w->is_folder)
        return status_fail(OTT_ERR_ARGUMENT, "%s: tensor '%s' and later tensors lack data: incomplete",
                           w->place, name);
    if (name)
        return status_fail(OTT_ERR_ARGUMENT, "%s: tensor '%s' lacks %" PRId64 " bytes: incomplete", w->place,
                           name, w->left);
    TRY(commit_part(w));
    return w->part_count > 1 && w->rank == 0 ? write_index(w) : OTT_OK;
}

static void free_writer(safetensors_writer *w) {
    arena_close(w->texts);
    mem_free(w->account, w->items);
    mem_free(w->account, w);
}

ott_status safetensors_writer_commit(safetensors_writer *w) {
    ott_status status = finish_files(w);
    if (status != OTT_OK) return safetensors_writer_abandon(w), status;
    return free_writer(w), OTT_OK;
}

/* Deletes the temporary file, and the files that this writer made in a folder of shards. If several processes
   write, these include the current file, which already has its final name. */
void safetensors_writer_abandon(safetensors_writer *w) {
    if (!w) return;
    int64_t made = w->part + (w->file && w->size > 1);
    file_writer_abandon(w->file);
    for (int64_t i = 0; i < made && w->rank == 0 && w->is_folder; i++) (void)unlink(w->parts[i].path);
    free_writer(w);
}
