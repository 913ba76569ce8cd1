/* tensor/group/group_host: copies a piece of data to the device, runs the collective, copies the piece
   back. */
#include "tensor/group/group_host.h"
#include "base/text/size.h"
#include <string.h>

ott_status group_host_broadcast(const group_host *h, void *data, int64_t bytes, int root) {
    exec cx = {.device = h->device};
    char *at = data;
    for (int64_t left = bytes, count; left > 0; left -= count, at += count) {
        count = size_min(left, h->bytes);
        tensor t = tensor_vector(h->buffer, OTT_U8, count);
        if (h->group->rank == root) TRY(device_copy_in(h->device, h->buffer, at, count));
        TRY(group_broadcast(h->group, &cx, &t, root));
        TRY(device_copy_out(h->device, at, h->buffer, count));
    }
    return OTT_OK;
}

ott_status group_host_reduce(const group_host *h, float *values, int64_t count, reduce_kind kind) {
    exec cx = {.device = h->device};
    int64_t per_pass = h->bytes / (int64_t)sizeof *values;
    for (int64_t part; count > 0; count -= part, values += part) {
        part = size_min(count, per_pass);
        tensor t = tensor_vector(h->buffer, OTT_F32, part);
        TRY(device_copy_in(h->device, h->buffer, values, part * (int64_t)sizeof *values));
        TRY(group_all_reduce(h->group, &cx, &t, kind));
        TRY(device_copy_out(h->device, values, h->buffer, part * (int64_t)sizeof *values));
    }
    return OTT_OK;
}

/* Splits each value into four pieces of 12 bits. fp32 adds such pieces of 4096 ranks without rounding. */
ott_status group_host_count(const group_host *h, int64_t *values, int64_t count) {
    enum { PIECES = 4, BITS = 12, AT_ONCE = 8 };
    float piece[AT_ONCE][PIECES];
    for (int64_t part; count > 0; count -= part, values += part) {
        part = size_min(count, AT_ONCE);
        for (int64_t i = 0; i < part * PIECES; i++)
            piece[i / PIECES][i % PIECES] =
                (float)(values[i / PIECES] >> i % PIECES * BITS & ((1 << BITS) - 1));
        TRY(group_host_reduce(h, piece[0], part * PIECES, REDUCE_SUM));
        memset(values, 0, (size_t)part * sizeof *values);
        for (int64_t i = 0; i < part * PIECES; i++)
            values[i / PIECES] += (int64_t)piece[i / PIECES][i % PIECES] << i % PIECES * BITS;
    }
    return OTT_OK;
}
