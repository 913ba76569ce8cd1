/*
 * Several ranks have different rows of one tensor. If a scale covers all rows, the ranks reduce the amax
 * before the cast. A layer's output for each rank's rows is bit-identical to one rank's. For attention, each
 * rank receives copies of the key heads that its queries read. The gradients of the copies are sent back and
 * added up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "comm/ranks.h"
#include "nn/attention/context_ranks.h"
#include "nn/layer_harness.h"
#include "nn/linear/linear.h"
#include "nn/norm.h"

enum { RANKS_MAX = 4, ROWS = 48, DIM = 32, OUT = 16 };

/* A rank that runs its rows, or all rows, through a norm and a linear layer. */
typedef struct part {
    harness h;
    parameter gain, weight;
    norm norm;
    linear linear;
    activation_specs input, grad;
    int64_t rows;
    tensor x, y, rstd, amax; /* amax: of the columnwise copy, one value per scale group */
    group *ranks;
} part;

static ott_status step(exec *cx, void *user) {
    part *p = user;
    activation a;
    TRY(activation_open(cx, "norm output", OTT_BF16, p->rows, DIM, &p->input, &a));
    TRY(norm_forward(cx, &p->norm, &p->x, NULL, NULL, &a, &p->rstd));
    TRY(linear_forward(cx, &p->linear, &a, &p->y));
    tensor amax = tensor_vector(a.q.item[0].columnwise.amax, OTT_F32, p->amax.columns);
    TRY(op_convert(cx, &(convert_args){.x = &amax, .y = &p->amax}));
    return activation_close(cx, &a);
}

/* Fills this rank's rows with elements of the full tensor. Their magnitudes vary, so that the amax of one
   rank's rows is not the amax of all rows. */
static void fill_rows(part *p, int64_t first) {
    float *values = malloc((size_t)(p->rows * DIM) * sizeof *values);
    for (int64_t i = 0; i < p->rows * DIM; i++)
        values[i] = rng_normal(3, 1, (uint64_t)(first * DIM + i)) * (float)(1 + (first * DIM + i) % 7);
    p->x = harness_tensor_of(&p->h, OTT_BF16, p->rows, DIM, values);
    free(values);
}

static void open_part(part *p, const recipe *r, int64_t first, int64_t rows, group *ranks) {
    linear_spec spec;
    *p = (part){.rows = rows, .ranks = ranks};
    harness_open(&p->h, 1, NULL);
    p->gain = harness_parameter(&p->h, "norm.weight", 0, DIM, 1.0, 1);
    p->weight = harness_parameter(&p->h, "linear.weight", OUT, DIM, 0.3, 2);
    p->norm = (norm){.name = "norm", .weight = &p->gain, .epsilon = 1e-5f};
    p->linear = (linear){.name = "linear", .in = DIM, .out = OUT, .weight = &p->weight, .row_ranks = ranks};
    recipe_compile(r, OTT_BF16, &spec);
    HARNESS_OK(linear_set_spec(&p->linear, p->h.device, &spec));
    HARNESS_OK(linear_connect(&p->linear, &p->input, &p->grad));
    assert_int_equal(p->input.count, 1);
    fill_rows(p, first);
    p->y = harness_tensor(&p->h, OTT_BF16, rows, OUT);
    p->rstd = harness_tensor(&p->h, OTT_F32, 1, rows);
    granularity grain = p->input.spec[0].columnwise.grain;
    p->amax = harness_tensor(&p->h, OTT_F32, 1, granularity_groups(grain, DIM, rows));
    harness_record(&p->h, step, p);
}

static void close_part(part *p) {
    weight_release(&p->linear.source, p->h.device);
    harness_close(&p->h);
}

static ott_status run_part(void *argument) {
    part *p = argument;
    return harness_replay_rank(&p->h, step, p, p->ranks);
}

static void expect_rows(part *full, part *p, int64_t first) {
    float *all = malloc(ROWS * OUT * sizeof *all), *own = malloc(ROWS * OUT * sizeof *own);
    harness_get(&full->h, &full->y, all);
    harness_get(&p->h, &p->y, own);
    assert_memory_equal(all + first * OUT, own, (size_t)(p->rows * OUT) * sizeof *own);
    assert_int_equal(full->amax.columns, p->amax.columns);
    harness_get(&full->h, &full->amax, all);
    harness_get(&p->h, &p->amax, own);
    assert_memory_equal(all, own, (size_t)p->amax.columns * sizeof *own);
    free(all);
    free(own);
}

static void compare(const recipe *r, int size) {
    static part full, parts[RANKS_MAX];
    group *groups[RANKS_MAX];
    thread_groups opened = {0};
    int64_t rows = ROWS / size;
    ranks_groups(&opened, size, 1, size, groups);
    open_part(&full, r, 0, ROWS, NULL);
    harness_replay(&full.h, step, &full);
    for (int k = 0; k < size; k++) open_part(&parts[k], r, k * rows, rows, groups[k]);
    ranks_run(r->name, size, parts, sizeof *parts, run_part);
    for (int k = 0; k < size; k++) {
        expect_rows(&full, &parts[k], k * rows);
        close_part(&parts[k]);
    }
    close_part(&full);
    ranks_close(&opened);
}

static void rows_scale_as_one_tensor(void **state) {
    static const char *const recipes[] = {"tensorwise", "rowwise", "current"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int size = 2; size <= RANKS_MAX; size++) compare(recipe_find(recipes[i]), size);
}

/* ---- heads ---- */

enum { HEAD = 4, EACH = 3, SHARERS_MAX = 7, COLUMNS_MAX = 14 * HEAD }; /* EACH: tokens per rank */

typedef struct sharer {
    harness h;
    group *ranks;
    context_split deal;
    tensor keys, dealt, grads, sums;
} sharer;

static ott_status exchange(exec *cx, void *user) {
    sharer *s = user;
    TRY(context_ranks_gather(cx, s->ranks, &s->deal, &s->keys, &s->dealt));
    return context_ranks_scatter(cx, s->ranks, &s->deal, &s->grads, &s->sums);
}

static ott_status run_sharer(void *argument) {
    sharer *s = argument;
    return harness_replay_rank(&s->h, exchange, s, s->ranks);
}

/* key_at: an element of the keys of token `row`, the same on all ranks. grad_at: an element of the gradient
   of the key heads that rank r received. */
static float key_at(int64_t row, int64_t column) {
    return (float)(row * COLUMNS_MAX + column);
}
static float grad_at(int r, int64_t row, int64_t column) {
    return cast_from_bf16(cast_to_bf16(rng_normal(8, (uint64_t)r, (uint64_t)(row * COLUMNS_MAX + column))));
}

static void open_sharer(sharer *s, group *ranks, int rank, int size, int64_t heads, int64_t kv_heads) {
    float keys[EACH * COLUMNS_MAX], grads[SHARERS_MAX * EACH * COLUMNS_MAX];
    *s = (sharer){.ranks = ranks, .deal = context_split_keys(size, heads, kv_heads, HEAD)};
    int64_t columns = kv_heads * HEAD, dealt = context_split_columns(&s->deal, size, columns),
            rows = size * EACH;
    for (int64_t i = 0; i < EACH * columns; i++) keys[i] = key_at(rank * EACH + i / columns, i % columns);
    for (int64_t i = 0; i < rows * dealt; i++) grads[i] = grad_at(rank, i / dealt, i % dealt);
    harness_open(&s->h, 1, NULL);
    s->keys = harness_tensor_of(&s->h, OTT_F32, EACH, columns, keys);
    s->dealt = harness_tensor(&s->h, OTT_F32, rows, dealt);
    s->grads = harness_tensor_of(&s->h, OTT_BF16, rows, dealt, grads);
    s->sums = harness_tensor(&s->h, OTT_BF16, EACH, columns);
    harness_record(&s->h, exchange, s);
}

/* Checks that each query head of a rank finds its key head among the key heads that the rank received. */
static void expect_keys(sharer *s, int rank, int size, int64_t heads, int64_t kv_heads) {
    float found[SHARERS_MAX * EACH * COLUMNS_MAX];
    int64_t own = heads / size, dealt = s->dealt.columns / HEAD;
    harness_get(&s->h, &s->dealt, found);
    assert_int_equal(own % dealt, 0);
    for (int64_t row = 0; row < s->dealt.rows; row++)
        for (int64_t q = 0; q < own; q++)
            for (int64_t c = 0; c < HEAD; c++) {
                int64_t key = (rank * own + q) / (heads / kv_heads);
                assert_true(found[row * s->dealt.columns + q / (own / dealt) * HEAD + c] ==
                            key_at(row, key * HEAD + c));
            }
}

/* Returns an element of a key head's gradient: the sum over the head's copies, in rank order, in bf16. */
static float sum_at(int64_t row, int64_t key, int64_t c, int size, int64_t heads, int64_t kv_heads,
                    int64_t dealt) {
    int64_t own = heads / size, last = -1;
    float sum = 0;
    for (int64_t q = key * (heads / kv_heads); q < (key + 1) * (heads / kv_heads); q++) {
        int64_t copy = q / own * dealt + q % own / (own / dealt);
        if (copy != last) sum += grad_at((int)(q / own), row, copy % dealt * HEAD + c);
        last = copy;
    }
    return cast_from_bf16(cast_to_bf16(sum));
}

static void expect_sums(sharer *s, int rank, int size, int64_t heads, int64_t kv_heads) {
    float found[EACH * COLUMNS_MAX];
    harness_get(&s->h, &s->sums, found);
    for (int64_t i = 0; i < EACH * kv_heads * HEAD; i++) {
        int64_t row = i / (kv_heads * HEAD), column = i % (kv_heads * HEAD);
        assert_true(found[i] == sum_at(rank * EACH + row, column / HEAD, column % HEAD, size, heads, kv_heads,
                                       s->dealt.columns / HEAD));
    }
}

static void share_heads(int size, int64_t heads, int64_t kv_heads, int64_t dealt) {
    static sharer all[SHARERS_MAX];
    group *groups[SHARERS_MAX];
    thread_groups opened = {0};
    ranks_groups(&opened, size, 1, size, groups);
    for (int k = 0; k < size; k++) open_sharer(&all[k], groups[k], k, size, heads, kv_heads);
    ranks_run("heads", size, all, sizeof *all, run_sharer);
    for (int k = 0; k < size; k++) {
        assert_int_equal(all[k].dealt.columns, dealt * HEAD);
        expect_keys(&all[k], k, size, heads, kv_heads);
        expect_sums(&all[k], k, size, heads, kv_heads);
        harness_close(&all[k].h);
    }
    ranks_close(&opened);
}

/* Tests ranks that have all query heads of several key heads, some query heads of one key head, or some query
   heads of two key heads. In the last case a rank receives one key head twice. */
static void queries_find_their_keys(void **state) {
    (void)state;
    share_heads(2, 8, 4, 2);
    share_heads(4, 4, 1, 1);
    share_heads(4, 8, 2, 1);
    share_heads(7, 14, 2, 2); /* the heads of Qwen 2.5 0.5B */
    share_heads(2, 6, 3, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_scale_as_one_tensor),
        cmocka_unit_test(queries_find_their_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
