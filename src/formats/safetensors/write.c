/* formats/safetensors/write: the writer. All offsets are known before any data, so the header is written
   first. The files have the same bytes as files of Hugging Face's safetensors library. */
#include "formats/safetensors/safetensors.h"
#include "base/arena.h"
#include "base/file/file.h"
#include "base/text/str.h"
#include "formats/safetensors/format.h"
#include "fp8/dtype.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct data_item {
    const char *name;
    int format;    /* index of the format in safetensors_formats */
    int64_t bytes; /* bytes of the tensor's data */
    int64_t index; /* index of the tensor in the caller's array */
} data_item;

struct safetensors_writer {
    mem *account;
    arena *texts;
    const char *path;
    file_writer *file;
    data_item *items; /* [count] tensors, in the order of their data */
    int64_t count, current;
    int64_t left; /* bytes of items[current] that are not appended yet */
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const data_item *)a)->name, ((const data_item *)b)->name);
}

static int by_format_then_name(const void *a, const void *b) {
    const data_item *x = a, *y = b;
    return x->format != y->format ? y->format - x->format : by_name(a, b);
}

static ott_status tensor_bytes(const safetensors_tensor *t, int64_t *bytes) {
    *bytes = dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(*bytes, t->shape[i], bytes))
            return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': dimension %d is %" PRId64 ", which is %s",
                               t->name, i, t->shape[i], t->shape[i] < 0 ? "negative" : "too large");
    return OTT_OK;
}

static ott_status check_declaration(const safetensors_tensor *t) {
    if ((unsigned)t->dtype >= OTT_DTYPE_COUNT)
        return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': its format is invalid", t->name);
    if (str_utf8_error(t->name, (int64_t)strlen(t->name)) >= 0)
        return status_fail(OTT_ERR_ARGUMENT, "a tensor's name is not UTF-8");
    if (strcmp(t->name, "__metadata__") == 0)
        return status_fail(OTT_ERR_ARGUMENT, "a tensor cannot be named __metadata__");
    if (t->rank < 0 || t->rank > SAFETENSORS_MAX_RANK)
        return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': %d dimensions; at most %d are supported", t->name,
                           t->rank, SAFETENSORS_MAX_RANK);
    return OTT_OK;
}

static ott_status copy_tensors(safetensors_writer *w, const safetensors_tensor *tensors, int64_t count) {
    int64_t total = 0;
    TRY(mem_alloc_array(w->account, MEM_OTHER, count, sizeof *w->items, "tensors to write", &w->items));
    for (w->count = 0; w->count < count; w->count++) {
        const safetensors_tensor *t = &tensors[w->count];
        data_item *i = &w->items[w->count];
        TRY(check_declaration(t));
        TRY(tensor_bytes(t, &i->bytes));
        if (__builtin_add_overflow(total, i->bytes, &total))
            return status_fail(OTT_ERR_ARGUMENT, "the tensors take more than 2^63 bytes");
        TRY(arena_strdup(w->texts, t->name, &i->name));
        i->format = safetensors_format_find(dtype_safetensors_name(t->dtype));
        i->index = w->count;
    }
    qsort(w->items, (size_t)count, sizeof *w->items, by_name);
    for (int64_t i = 1; i < count; i++)
        if (strcmp(w->items[i - 1].name, w->items[i].name) == 0)
            return status_fail(OTT_ERR_ARGUMENT, "two tensors are named '%s'", w->items[i].name);
    qsort(w->items, (size_t)count, sizeof *w->items, by_format_then_name);
    return OTT_OK;
}

static void append_json(str *s, const char *text) {
    str_append_json(s, text, (int64_t)strlen(text));
}

static ott_status append_metadata(str *s, const safetensors_pair *pairs, int64_t count) {
    str_append(s, "{\"__metadata__\":{\"format\":\"pt\"");
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < i; j++)
            if (strcmp(pairs[i].key, pairs[j].key) == 0)
                return status_fail(OTT_ERR_ARGUMENT, "metadata key '%s' is given twice", pairs[i].key);
        if (strcmp(pairs[i].key, "format") == 0)
            return status_fail(OTT_ERR_ARGUMENT, "metadata key 'format' is reserved");
        str_append(s, ",");
        append_json(s, pairs[i].key);
        str_append(s, ":");
        append_json(s, pairs[i].value);
    }
    str_append(s, "}");
    return OTT_OK;
}

static void append_header_entry(str *s, const data_item *i, const safetensors_tensor *t, int64_t begin) {
    str_append(s, ",");
    append_json(s, i->name);
    str_printf(s, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_formats[i->format].name);
    for (int d = 0; d < t->rank; d++) str_printf(s, "%s%" PRId64, d ? "," : "", t->shape[d]);
    str_printf(s, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, begin + i->bytes);
}

static ott_status make_json_header(const safetensors_writer *w, const safetensors_tensor *tensors,
                                   const safetensors_pair *metadata, int64_t metadata_count, str *s) {
    int64_t begin = 0;
    TRY(append_metadata(s, metadata, metadata_count));
    for (int64_t i = 0; i < w->count; i++) {
        append_header_entry(s, &w->items[i], &tensors[w->items[i].index], begin);
        begin += w->items[i].bytes;
    }
    str_append(s, "}");
    while (!s->failed && s->length % 8 != 0) str_append(s, " "); /* aligns the data to 8 bytes */
    TRY(str_finish(s));
    if (s->length > SAFETENSORS_MAX_HEADER)
        return status_fail(OTT_ERR_ARGUMENT, "the header takes %" PRId64 " bytes; %d are allowed", s->length,
                           SAFETENSORS_MAX_HEADER);
    return OTT_OK;
}

static ott_status write_header(safetensors_writer *w, const str *header) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header->length >> 8 * i);
    TRY(file_writer_append(w->file, length, 8));
    return file_writer_append(w->file, header->text, header->length);
}

/* Advances to the next tensor that has data. */
static void skip_empty(safetensors_writer *w) {
    while (w->current < w->count && w->left == 0)
        if (++w->current < w->count) w->left = w->items[w->current].bytes;
}

/* Checks all arguments before any file is created. */
static ott_status check_and_make_header(safetensors_writer *w, const char *path,
                                        const safetensors_tensor *tensors, int64_t count,
                                        const safetensors_pair *metadata, int64_t metadata_count,
                                        str *header) {
    ott_status status;
    TRY_OUT(arena_open(w->account, MEM_OTHER, &w->texts));
    TRY_OUT(arena_strdup(w->texts, path, &w->path));
    TRY_OUT(copy_tensors(w, tensors, count));
    TRY_OUT(make_json_header(w, tensors, metadata, metadata_count, header));
    w->left = count > 0 ? w->items[0].bytes : 0;
    skip_empty(w);
out:
    return status == OTT_OK ? OTT_OK : status_context(status, "%s", path);
}

ott_status safetensors_writer_join(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   int rank, int size, safetensors_writer **out) {
    safetensors_writer *w;
    str header = {.account = account};
    ott_status status;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(safetensors_writer), "a safetensors writer", &w));
    w->account = account;
    TRY_OUT(check_and_make_header(w, path, tensors, count, metadata, metadata_count, &header));
    TRY_OUT(size == 1 ? file_writer_open(w->account, path, &w->file)
                      : file_writer_join(w->account, path, &w->file));
    TRY_OUT(rank == 0 ? write_header(w, &header) : file_writer_skip(w->file, 8 + header.length));
    *out = w;
out:
    if (status != OTT_OK) safetensors_writer_abandon(w);
    str_free(&header);
    return status;
}

ott_status safetensors_writer_open(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   safetensors_writer **out) {
    return safetensors_writer_join(account, path, tensors, count, metadata, metadata_count, 0, 1, out);
}

int64_t safetensors_writer_next(const safetensors_writer *w) {
    return w->current < w->count ? w->items[w->current].index : -1;
}

static ott_status check_bytes(const safetensors_writer *w, int64_t bytes) {
    if (bytes >= 0 && bytes <= w->left) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%" PRId64 " bytes are too many: tensor '%s' lacks %" PRId64, bytes,
                       w->current < w->count ? w->items[w->current].name : "(none)", w->left);
}

static void advance_tensor(safetensors_writer *w, int64_t bytes) {
    w->left -= bytes;
    skip_empty(w);
}

ott_status safetensors_writer_append(safetensors_writer *w, const void *data, int64_t bytes) {
    TRY(check_bytes(w, bytes));
    TRY(file_writer_append(w->file, data, bytes));
    advance_tensor(w, bytes);
    return OTT_OK;
}

ott_status safetensors_writer_skip(safetensors_writer *w, int64_t bytes) {
    TRY(check_bytes(w, bytes));
    TRY(file_writer_skip(w->file, bytes));
    advance_tensor(w, bytes);
    return OTT_OK;
}

static void free_writer(safetensors_writer *w) {
    if (w->texts) arena_close(w->texts);
    mem_free(w->account, w->items);
    mem_free(w->account, w);
}

ott_status safetensors_writer_commit(safetensors_writer *w) {
    ott_status status = OTT_OK;
    if (w->current < w->count) {
        status = status_fail(OTT_ERR_ARGUMENT, "%s: tensor '%s' lacks %" PRId64 " bytes: incomplete", w->path,
                             w->items[w->current].name, w->left);
        file_writer_abandon(w->file);
    } else {
        status = file_writer_commit(w->file);
    }
    free_writer(w);
    return status;
}

void safetensors_writer_abandon(safetensors_writer *w) {
    if (!w) return;
    file_writer_abandon(w->file);
    free_writer(w);
}
