/* folders/tensors_write: writes a tensor set to a safetensors file, through one small buffer. Each rank
   writes its slices. */
#include "folders/tensors.h"
#include "base/text/size.h"
#include <inttypes.h>

enum { BUFFER_BYTES = 1 << 18, BUFFER_ELEMENTS = BUFFER_BYTES / sizeof(float) };

typedef struct set_writer {
    mem *account;
    const checkpoint_ranks *ranks;
    const char *path;
    char *buffer; /* BUFFER_BYTES bytes */
} set_writer;

/* *out = bytes [at, at + count) of the slice, in host memory. Bytes in device memory are copied to the
   buffer. */
static ott_status fetch_bytes(const set_writer *s, const tensor_slice *p, int64_t at, int64_t count,
                              const char **out) {
    const char *from = (const char *)p->data + at;
    *out = p->on_host ? from : s->buffer;
    return p->on_host ? OTT_OK : device_copy_out(s->ranks->device, s->buffer, from, count);
}

static ott_status skip_to(safetensors_writer *w, int64_t from, int64_t to, int64_t size) {
    return to > from ? safetensors_writer_skip(w, (to - from) * size) : OTT_OK;
}

/* *end: offset in the tensor, in elements, up to which the file is written. The call increases it. */
static ott_status write_piece(safetensors_writer *w, const tensor_slice *p, const safetensors_tensor *t,
                              int64_t at, int64_t count, const char *values, int64_t *end) {
    int64_t columns = tensor_set_columns(t), size = dtype_bytes(t->dtype);
    parameter_run run;
    for (int64_t done = 0; done < count; done += run.count) {
        run = parameter_run_at(&p->part, columns, at + done, count - done);
        TRY(skip_to(w, *end, run.first, size));
        TRY(safetensors_writer_append(w, values + done * size, run.count * size));
        *end = run.first + run.count;
    }
    return OTT_OK;
}

/* Writes this rank's elements of a tensor and skips the elements that other ranks write. */
static ott_status write_tensor(const set_writer *s, safetensors_writer *w, const safetensors_tensor *t,
                               const tensor_slice *p) {
    int64_t end = 0, all = 1, total = tensor_slice_elements(p), size = dtype_bytes(t->dtype);
    const char *values;
    for (int i = 0; i < t->rank; i++) all *= t->shape[i];
    for (int64_t at = 0, count; at < total; at += count) {
        count = size_min(total - at, BUFFER_ELEMENTS);
        TRY(fetch_bytes(s, p, at * size, count * size, &values));
        TRY(write_piece(w, p, t, at, count, values, &end));
    }
    return skip_to(w, end, all, size);
}

static ott_status write_tensors(const set_writer *s, const tensor_set *set, safetensors_writer *w) {
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;)
        TRY(write_tensor(s, w, &set->declared[next], &set->slices[next]));
    return OTT_OK;
}

/* Lists the file's metadata, pairs of key and value: of each tensor with a key (`note`), then of the set. */
static ott_status list_metadata(const tensor_set *set, arena *memory, safetensors_pair **out,
                                int64_t *count) {
    TRY(arena_alloc(memory, (set->count + set->metadata_count) * (int64_t)sizeof **out, out));
    *count = 0;
    for (int64_t i = 0; i < set->count; i++) {
        if (!set->slices[i].note) continue;
        safetensors_pair *pair = &(*out)[(*count)++];
        pair->key = set->slices[i].note;
        TRY(arena_printf(memory, &pair->value, "%" PRId64, set->slices[i].number));
    }
    for (int64_t i = 0; i < set->metadata_count; i++) (*out)[(*count)++] = set->metadata[i];
    return OTT_OK;
}

static ott_status open_tensor_file(const set_writer *s, const tensor_set *set, safetensors_writer **out) {
    arena *memory;
    safetensors_pair *metadata;
    int64_t count;
    TRY(arena_open(s->account, MEM_OTHER, &memory));
    ott_status status = list_metadata(set, memory, &metadata, &count);
    if (status == OTT_OK)
        status = safetensors_writer_join(s->account, s->path, set->declared, set->count, metadata, count,
                                         ranks_own_rank(s->ranks), ranks_size(s->ranks), out);
    arena_close(memory);
    return status;
}

static ott_status write_file(const set_writer *s, const tensor_set *set) {
    safetensors_writer *w;
    TRY(open_tensor_file(s, set, &w));
    ott_status status = write_tensors(s, set, w);
    if (status == OTT_OK) return safetensors_writer_commit(w);
    safetensors_writer_abandon(w);
    return status;
}

ott_status tensors_write(mem *account, const checkpoint_ranks *ranks, const tensor_set *set,
                         const char *path) {
    set_writer s = {.account = account, .ranks = ranks, .path = path};
    TRY(mem_alloc(account, MEM_OTHER, BUFFER_BYTES, "buffer of a tensor file", &s.buffer));
    ott_status status = write_file(&s, set);
    mem_free(account, s.buffer);
    return status;
}
