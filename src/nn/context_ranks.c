/* nn/context_ranks: heads of tokens change places. What travels lies as a block for each rank, one below the other. */
#include "nn/context_ranks.h"

/* The columns that are rank r's heads, and its block. */
static tensor columns_of(const tensor *tokens, int ranks, int r) {
    int64_t width = tokens->columns / ranks;
    return tensor_columns(*tokens, r * width, width);
}

static tensor block_of(const tensor *blocks, int ranks, int r) {
    int64_t rows = blocks->rows / ranks;
    return tensor_rows(*blocks, r * rows, rows);
}

static ott_status exchange(exec *cx, group *g, const tensor *from, const tensor *to) {
    return group_run(g, cx, &(collective){.kind = COLLECTIVE_ALL_TO_ALL, .input = *from, .output = *to});
}

ott_status context_ranks_gather(exec *cx, group *g, const tensor *tokens, const tensor *heads) {
    tensor blocks;
    plan_buffer buffer;
    TRY(exec_open(cx, "heads to exchange", heads->dtype, heads->rows, heads->columns, &blocks, &buffer));
    for (int r = 0; r < g->size; r++) {
        tensor from = columns_of(tokens, g->size, r), to = block_of(&blocks, g->size, r);
        TRY(op_convert(cx, &(convert_args){.x = &from, .y = &to}));
    }
    TRY(exchange(cx, g, &blocks, heads));
    return plan_close(cx->plan, &buffer);
}

ott_status context_ranks_scatter(exec *cx, group *g, const tensor *heads, const tensor *tokens) {
    tensor blocks;
    plan_buffer buffer;
    TRY(exec_open(cx, "heads to exchange", heads->dtype, heads->rows, heads->columns, &blocks, &buffer));
    TRY(exchange(cx, g, heads, &blocks));
    for (int r = 0; r < g->size; r++) {
        tensor from = block_of(&blocks, g->size, r), to = columns_of(tokens, g->size, r);
        TRY(op_convert(cx, &(convert_args){.x = &from, .y = &to}));
    }
    return plan_close(cx->plan, &buffer);
}
