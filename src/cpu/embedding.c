/* cpu/embedding: looks up a table row for each token, and adds the gradients of tokens to table rows. */
#include "cpu/rows.h"

SIMD void zero_row(ott_dtype d, void *to, int64_t columns) {
    BY_16(c, lanes, columns, v16_put(to, d, c, v16_zero(), lanes););
}

SIMD void copy_row(ott_dtype from_d, ott_dtype d, const void *from, void *to, int64_t columns) {
    BY_16(c, lanes, columns, v16_put(to, d, c, v16_get(from, from_d, c, lanes), lanes););
}

/* Sets y[t] to the token's row of the table, or to 0 if another rank has the row. */
SIMD void forward_row(ott_dtype d, const embedding_forward_args *a, int64_t t) {
    int64_t row = ((const int32_t *)a->token->data)[t] - a->before, columns = a->y->columns;
    void *to = row_of(a->y, t);
    if (row < 0 || row >= a->table->rows)
        zero_row(d, to, columns);
    else if (a->table->dtype == OTT_F32)
        copy_row(OTT_F32, d, row_of(a->table, row), to, columns);
    else
        copy_row(a->table->dtype, d, row_of(a->table, row), to, columns);
}

static void forward_task(void *argument, int thread, int threads) {
    const embedding_forward_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->y->dtype, D, forward_row(D, a, t));
}

ott_status ISA(embedding_forward)(exec *cx, const embedding_forward_args *a) {
    TRY(row_check_indices("embedding_forward", "token", a->token, a->before + a->table->rows + a->after,
                          false));
    cpu_run_sized(cx, tensor_count(*a->y), forward_task, (void *)a);
    return OTT_OK;
}

SIMD void add_row(ott_dtype d, const void *dy, float *sum, int64_t columns) {
    BY_16(c, lanes, columns, {
        v16 both = v16_add(v16_get(sum, OTT_F32, c, lanes), v16_get(dy, d, c, lanes));
        v16_put(sum, OTT_F32, c, both, lanes);
    });
}

/* Returns the first index in [t, end) with this token, or end. */
SIMD int64_t find_token(const int32_t *tokens, int64_t t, int64_t end, int32_t token) {
    v16i wanted = v16i_set1((uint32_t)token);
    while (t + 16 <= end && v16m_count(v16i_eq(v16i_load(tokens + t), wanted)) == 0) t += 16;
    while (t < end && tokens[t] != token) t++;
    return t;
}

/* Adds to a token's bf16 row the gradients of all its positions, and rounds once. t: its first position. */
static void add_token(const int32_t *tokens, const tensor *dy, int64_t t, uint16_t *row) {
    enum { PIECE = 1024 };
    float sum[PIECE];
    for (int64_t c = 0; c < dy->columns; c += PIECE) {
        tensor piece = tensor_columns(*dy, c, dy->columns - c < PIECE ? dy->columns - c : PIECE);
        copy_row(OTT_BF16, OTT_F32, row + c, sum, piece.columns);
        for (int64_t u = t; u < dy->rows; u = find_token(tokens, u + 1, dy->rows, tokens[t]))
            WITH_DTYPE(dy->dtype, D, add_row(D, row_of(&piece, u), sum, piece.columns));
        copy_row(OTT_F32, OTT_BF16, sum, row + c, piece.columns);
    }
}

/* Each thread adds some columns of the gradients of all tokens, in the order of the tokens. */
static void backward_task(void *argument, int thread, int threads) {
    const embedding_backward_args *a = argument;
    const int32_t *token = a->token->data; /* [T], the token at each position */
    int64_t first, end;
    pool_share(a->dy->columns, 16, thread, threads, &first, &end);
    tensor dy = tensor_columns(*a->dy, first, end - first);
    tensor dtable = tensor_columns(*a->dtable, first, end - first);
    for (int64_t t = 0; t < dy.rows; t++) {
        int64_t row = token[t] - a->before;
        if ((a->has_padding && token[t] == a->padding) || row < 0 || row >= dtable.rows) continue;
        if (dtable.dtype == OTT_F32)
            WITH_DTYPE(dy.dtype, D, add_row(D, row_of(&dy, t), row_of(&dtable, row), dy.columns));
        else if (find_token(token, 0, t, token[t]) == t)
            add_token(token, &dy, t, row_of(&dtable, row));
    }
}

ott_status ISA(embedding_backward)(exec *cx, const embedding_backward_args *a) {
    TRY(row_check_indices("embedding_backward", "token", a->token, a->before + a->dtable->rows + a->after,
                          false));
    cpu_run_sized(cx, tensor_count(*a->dy), backward_task, (void *)a);
    return OTT_OK;
}
