/*
 * Rows of one tensor on several ranks: where a scale is of all rows, the ranks take the largest amax of all between
 * amax and cast, and what a layer makes of each rank's rows is what it makes of them among all, bit for bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "comm/ranks.h"
#include "nn/layer_harness.h"
#include "nn/linear.h"
#include "nn/norm.h"

enum { RANKS_MAX = 4, ROWS = 48, DIM = 32, OUT = 16 };

/* Rows [first, first + rows) through a norm and a linear layer. */
typedef struct part {
    harness h;
    parameter gain, weight;
    norm norm;
    linear linear;
    activation_specs input, grad;
    int64_t rows;
    tensor x, y, rstd, amax; /* amax: of the columnwise use, one for each group */
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

/* Later rows are larger, so that each rank alone would scale otherwise. */
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
    p->linear = (linear){.name = "linear",
                         .in = DIM,
                         .out = OUT,
                         .weight = &p->weight,
                         .row_ranks = ranks,
                         .compute_step = -1};
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
    linear_release(&p->linear, p->h.device);
    harness_close(&p->h);
}

static ott_status run_part(void *argument) {
    part *p = argument;
    plan_replay(p->h.plan);
    ott_status status = step(&p->h.cx, p);
    group_close(p->ranks);
    return status;
}

static void expect_rows(part *whole, part *p, int64_t first) {
    float *all = malloc(ROWS * OUT * sizeof *all), *own = malloc(ROWS * OUT * sizeof *own);
    harness_get(&whole->h, &whole->y, all);
    harness_get(&p->h, &p->y, own);
    assert_memory_equal(all + first * OUT, own, (size_t)(p->rows * OUT) * sizeof *own);
    assert_int_equal(whole->amax.columns, p->amax.columns);
    harness_get(&whole->h, &whole->amax, all);
    harness_get(&p->h, &p->amax, own);
    assert_memory_equal(all, own, (size_t)p->amax.columns * sizeof *own);
    free(all);
    free(own);
}

static void compare(const recipe *r, int size) {
    static part whole, parts[RANKS_MAX];
    group *groups[RANKS_MAX];
    ranks_worlds worlds = {0};
    int64_t rows = ROWS / size;
    ranks_groups(&worlds, size, 1, size, groups);
    open_part(&whole, r, 0, ROWS, NULL);
    harness_replay(&whole.h, step, &whole);
    for (int k = 0; k < size; k++) open_part(&parts[k], r, k * rows, rows, groups[k]);
    ranks_run(r->name, size, parts, sizeof *parts, run_part);
    for (int k = 0; k < size; k++) {
        expect_rows(&whole, &parts[k], k * rows);
        close_part(&parts[k]);
    }
    close_part(&whole);
    ranks_close(&worlds);
}

static void rows_scale_as_one_tensor(void **state) {
    static const char *const recipes[] = {"tensorwise", "rowwise", "current"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        for (int size = 2; size <= RANKS_MAX; size++) compare(recipe_find(recipes[i]), size);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_scale_as_one_tensor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
