/* cpu/transpose: transposes FP8 codes, in tiles that stay in the first-level cache. */
#include "cpu/isa.h"

enum { TILE = 64 };

static void transpose_tile(const tensor *x, const tensor *y, int64_t row, int64_t rows, int64_t column,
                           int64_t columns) {
    for (int64_t j = column; j < column + columns; j++) {
        const uint8_t *from = (const uint8_t *)x->data + row * x->ld + j;
        uint8_t *to = (uint8_t *)y->data + j * y->ld + row;
        for (int64_t i = 0; i < rows; i++) to[i] = from[i * x->ld];
    }
}

static void transpose_task(void *argument, int thread, int threads) {
    const transpose_args *a = argument;
    int64_t column, end;
    pool_share(a->x->columns, TILE, thread, threads, &column, &end);
    for (; column < end; column += TILE)
        for (int64_t row = 0; row < a->x->rows; row += TILE)
            transpose_tile(a->x, a->y, row, a->x->rows - row < TILE ? a->x->rows - row : TILE, column,
                           end - column < TILE ? end - column : TILE);
}

ott_status ISA(transpose)(exec *cx, const transpose_args *a) {
    cpu_run_sized(cx, tensor_count(*a->x), transpose_task, (void *)a);
    return OTT_OK;
}
