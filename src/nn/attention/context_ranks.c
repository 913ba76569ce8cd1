/* nn/attention/context_ranks: all-to-all of heads and tokens: each rank sends a block of rows to each. */
#include "nn/attention/context_ranks.h"
#include "base/text/size.h"

tensor context_ranks_own(const group *g, tensor of_all) {
    if (!g) return of_all;
    int64_t count = of_all.columns / g->size;
    return tensor_columns(of_all, g->rank * count, count);
}

context_split context_split_queries(int ranks, int64_t heads, int64_t head_dim) {
    return (context_split){heads / ranks * head_dim, 1, 1};
}

/* On each rank, attention kernels require the same number of query heads for every key head. So key heads are
   copied. A copy serves gcd(query heads per rank, query heads per key head) query heads. */
context_split context_split_keys(int ranks, int64_t heads, int64_t kv_heads, int64_t head_dim) {
    int64_t all = heads / kv_heads, queries = size_common_divisor(heads / ranks, all);
    if (queries == all) return context_split_queries(ranks, kv_heads, head_dim);
    return (context_split){head_dim, queries, all};
}

int64_t context_split_columns(const context_split *d, int ranks, int64_t columns) {
    return columns * d->all_queries / d->queries / ranks;
}

/* Returns the first column of `tokens` that is in copy number k. k counts all ranks' copies in order. */
static int64_t column_of(const context_split *d, int64_t k) {
    return k * d->queries / d->all_queries * d->width;
}

/* Returns copy number k, a view in `blocks`. `blocks` has a block of rows for each rank. */
static tensor copy_at(const context_split *d, const tensor *blocks, int ranks, int64_t k) {
    int64_t each = blocks->columns / d->width, rows = blocks->rows / ranks;
    return tensor_columns(tensor_rows(*blocks, k / each * rows, rows), k % each * d->width, d->width);
}

static int64_t copy_count(const context_split *d, const tensor *blocks, int ranks) {
    return blocks->columns / d->width * ranks;
}

static ott_status exchange_parts(exec *cx, group *g, const tensor *from, const tensor *to) {
    return group_run(g, cx, &(collective){.kind = COLLECTIVE_ALL_TO_ALL, .input = *from, .output = *to});
}

ott_status context_ranks_gather(exec *cx, group *g, const context_split *d, const tensor *tokens,
                                const tensor *heads) {
    tensor blocks;
    plan_buffer buffer;
    TRY(exec_open(cx, "heads to exchange", heads->dtype, heads->rows, heads->columns, &blocks, &buffer));
    for (int64_t k = 0; k < copy_count(d, &blocks, g->size); k++) {
        tensor from = tensor_columns(*tokens, column_of(d, k), d->width),
               to = copy_at(d, &blocks, g->size, k);
        TRY(op_convert(cx, &(convert_args){.x = &from, .y = &to}));
    }
    TRY(exchange_parts(cx, g, &blocks, heads));
    return plan_close(cx->plan, &buffer);
}

/* *to = the sum of copies [first, end), which are copies of the same columns. */
static ott_status add_copies(exec *cx, const context_split *d, const tensor *blocks, int ranks, int64_t first,
                             int64_t end, const tensor *to) {
    tensor sum, next;
    plan_buffer sum_buffer, next_buffer;
    TRY(exec_open(cx, "sum of copies", OTT_F32, to->rows, d->width, &sum, &sum_buffer));
    TRY(exec_open(cx, "gradient of a copy", OTT_F32, to->rows, d->width, &next, &next_buffer));
    for (int64_t k = first; k < end; k++) {
        tensor copy = copy_at(d, blocks, ranks, k);
        TRY(op_convert(cx, &(convert_args){.x = &copy, .y = k > first ? &next : &sum}));
        if (k > first) TRY(op_add(cx, &(add_args){.x = &sum, .delta = &next, .y = &sum}));
    }
    TRY(op_convert(cx, &(convert_args){.x = &sum, .y = to}));
    TRY(plan_close(cx->plan, &next_buffer));
    return plan_close(cx->plan, &sum_buffer);
}

ott_status context_ranks_scatter(exec *cx, group *g, const context_split *d, const tensor *heads,
                                 const tensor *tokens) {
    tensor blocks;
    plan_buffer buffer;
    TRY(exec_open(cx, "heads to exchange", heads->dtype, heads->rows, heads->columns, &blocks, &buffer));
    TRY(exchange_parts(cx, g, heads, &blocks));
    int64_t count = copy_count(d, &blocks, g->size);
    for (int64_t k = 0, end = 0; k < count; k = end) {
        tensor from = copy_at(d, &blocks, g->size, k),
               to = tensor_columns(*tokens, column_of(d, k), d->width);
        while (end < count && column_of(d, end) == column_of(d, k)) end++;
        if (end - k > 1)
            TRY(add_copies(cx, d, &blocks, g->size, k, end, &to));
        else
            TRY(op_convert(cx, &(convert_args){.x = &from, .y = &to}));
    }
    return plan_close(cx->plan, &buffer);
}
