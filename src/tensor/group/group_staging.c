/* tensor/group/group_staging: sizes of staging memory, slots and pieces. */
#include "tensor/group/group_staging.h"

enum {
    MOST = 64 << 20, /* largest number of staging bytes of a group */
    /* if all ranks' tensors have at most this many bytes in total, they are sent in full */
    FULL_MOST = 1 << 18,
    ALIGNED = 16 /* slots and pieces are aligned to this number of bytes, the width of one load */
};

int64_t group_staging_slot(int64_t bytes) {
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

int64_t group_staging_piece(int size, ott_dtype d, int64_t most) {
    int64_t fits = MOST / size / ALIGNED * ALIGNED, part = group_staging_slot(most * dtype_bytes(d));
    return (fits < part ? fits : part) / dtype_bytes(d);
}

int64_t group_staging_largest_part(int size, const collective *call) {
    int64_t most = 0;
    for (int r = 0; r < size; r++) {
        int64_t rows = group_part_rows(call->input_rows, call->input.rows, size, r);
        if (rows > most) most = rows;
    }
    return most * call->input.columns;
}

bool group_staging_sends_full(int size, const collective *call) {
    return group_staging_slot(tensor_bytes(call->input)) * size <= FULL_MOST;
}

int64_t group_staging_bytes(int size, const collective *call) {
    ott_dtype d = call->input.dtype;
    int64_t bytes = dtype_bytes(d);
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE:
        if (group_staging_sends_full(size, call)) return group_staging_slot(tensor_bytes(call->input)) * size;
        return group_staging_piece(size, d, (tensor_count(call->input) + size - 1) / size) * bytes * size;
    case COLLECTIVE_REDUCE_SCATTER:
        return group_staging_piece(size, d, group_staging_largest_part(size, call)) * bytes * size;
    case COLLECTIVE_BARRIER: return size;
    case COLLECTIVE_SEND: return tensor_bytes(call->input);
    default: return 0;
    }
}
