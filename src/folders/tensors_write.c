/* folders/tensors_write: writes a tensor set to a safetensors file. Each rank writes its slices. */
#include "folders/tensors.h"
#include "base/text/size.h"
#include <inttypes.h>

enum { BUFFER_BYTES = 1 << 18, BUFFER_ELEMENTS = BUFFER_BYTES / sizeof(float) };

static ott_status skip_to(safetensors_writer *w, int64_t from, int64_t to, int64_t size) {
    return to > from ? safetensors_writer_skip(w, (to - from) * size) : OTT_OK;
}

/* *end: offset in the tensor, in elements, up to which the file is written. The call increases it. */
static ott_status write_slice_piece(safetensors_writer *w, const tensor_slice *p, const safetensors_tensor *t,
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

/* Writes only this rank's elements of a tensor. buffer: BUFFER_BYTES bytes, for elements in device memory. */
static ott_status write_set_tensor(device *d, safetensors_writer *w, const safetensors_tensor *t,
                                   const tensor_slice *p, char *buffer) {
    int64_t end = 0, all = 1, total = tensor_slice_elements(p), size = dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++) all *= t->shape[i];
    for (int64_t at = 0, count; at < total; at += count) {
        const char *from = (const char *)p->data + at * size;
        count = size_min(total - at, BUFFER_ELEMENTS);
        if (!p->on_host) TRY(device_copy_out(d, buffer, from, count * size));
        TRY(write_slice_piece(w, p, t, at, count, p->on_host ? from : buffer, &end));
    }
    return skip_to(w, end, all, size);
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

ott_status tensors_write(mem *account, const checkpoint_ranks *ranks, const tensor_set *set,
                         const char *path) {
    char *buffer = NULL;
    arena *memory = NULL;
    safetensors_pair *metadata;
    safetensors_writer *w = NULL;
    int64_t count, next;
    ott_status status;
    TRY_OUT(mem_alloc(account, MEM_OTHER, BUFFER_BYTES, "buffer of a tensor file", &buffer));
    TRY_OUT(arena_open(account, MEM_OTHER, &memory));
    TRY_OUT(list_metadata(set, memory, &metadata, &count));
    TRY_OUT(safetensors_writer_join(account, path, set->declared, set->count, metadata, count,
                                    ranks_own_rank(ranks), ranks_size(ranks), &w));
    while ((next = safetensors_writer_next(w)) >= 0)
        TRY_OUT(write_set_tensor(ranks->device, w, &set->declared[next], &set->slices[next], buffer));
out:
    if (status == OTT_OK)
        status = safetensors_writer_commit(w);
    else
        safetensors_writer_abandon(w);
    arena_close(memory);
    mem_free(account, buffer);
    return status;
}
