/* api/sequence_layout: positions and first rows of the sequences in a module's input, for attention. */
#include "api/sequence_layout.h"
#include <string.h>

void sequence_layout_release(sequence_layout *p, device *d) {
    device_release(d, p->block);
    mem_free(d->account, p->start);
}

ott_status sequence_layout_set(sequence_layout *p, mem *account, const int64_t *start, int count) {
    void *copy = NULL;
    if (count > 0) {
        TRY(mem_alloc_array(account, MEM_OTHER, count, sizeof *start, "sequence starts", &copy));
        memcpy(copy, start, (size_t)count * sizeof *start);
    }
    mem_free(account, p->start);
    p->start = copy;
    p->count = count;
    p->rows = 0;
    return OTT_OK;
}

/* Number of sequences in `rows` rows. Each has `length` rows if ott_module_set_sequences was not called. */
static int count_sequences(const sequence_layout *p, int64_t rows, int64_t length) {
    return p->count > 0 ? p->count : (int)(rows / length);
}

/* Computes the rows [*first, *end) of sequence i. */
static void sequence_at(const sequence_layout *p, int i, int64_t rows, int64_t length, int64_t *first,
                        int64_t *end) {
    *first = p->count > 0 ? p->start[i] : i * length;
    *end = p->count == 0 ? *first + length : i + 1 < p->count ? p->start[i + 1] : rows;
}

static ott_status check_sequences(const sequence_layout *p, int64_t rows, int64_t length) {
    int64_t first, end;
    if (p->count > 0 && p->start[p->count - 1] >= rows)
        return status_fail(OTT_ERR_SHAPE,
                           "ott_module_forward: x has %lld rows, but a sequence begins at row %lld "
                           "(ott_module_set_sequences)",
                           (long long)rows, (long long)p->start[p->count - 1]);
    for (int i = 0; i < count_sequences(p, rows, length); i++) {
        sequence_at(p, i, rows, length, &first, &end);
        if (end - first > p->max_positions)
            return status_fail(OTT_ERR_SHAPE,
                               "ott_module_forward: the sequence from row %lld to %lld of x is longer than "
                               "%s = %lld",
                               (long long)first, (long long)end, p->limit, (long long)p->max_positions);
    }
    return OTT_OK;
}

static void fill_metadata(const sequence_layout *p, int32_t *position, int32_t *start, int64_t rows,
                          int64_t length) {
    int64_t first, end;
    int sequences = count_sequences(p, rows, length);
    for (int i = 0; i < sequences; i++) {
        sequence_at(p, i, rows, length, &first, &end);
        start[i] = (int32_t)first;
        for (int64_t t = first; t < end; t++) position[t] = (int32_t)(t - first);
    }
    start[sequences] = (int32_t)rows;
}

ott_status sequence_layout_update(sequence_layout *p, device *d, int64_t rows, int64_t length) {
    void *host;
    if (p->rows == rows && p->length == length) return OTT_OK;
    TRY(check_sequences(p, rows, length));
    int sequences = count_sequences(p, rows, length);
    int64_t ints = rows + sequences + 1;
    TRY(mem_alloc_array(d->account, MEM_OTHER, ints, sizeof(int32_t), "positions", &host));
    fill_metadata(p, host, (int32_t *)host + rows, rows, length);
    p->rows = 0;
    device_release(d, p->block);
    p->block = NULL;
    ott_status status = device_allocate(d, MEM_DATA, ints * (int64_t)sizeof(int32_t), "positions", &p->block);
    if (status == OTT_OK) status = device_copy_in(d, p->block, host, ints * (int64_t)sizeof(int32_t));
    mem_free(d->account, host);
    if (status != OTT_OK) return status;
    p->at =
        (sequence_metadata){.position = tensor_vector(p->block, OTT_I32, rows),
                            .cu_seqlens = tensor_vector((int32_t *)p->block + rows, OTT_I32, sequences + 1)};
    p->rows = rows;
    p->length = length;
    return OTT_OK;
}
