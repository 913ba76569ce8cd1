/*
 * A tensor sharded over ranks, by rows or by columns, under every recipe. The codes of a shard are the codes
 * that the full tensor has for these elements, in the rowwise and in the columnwise copy. Negative control:
 * codes differ if ranks do not reduce amaxes. If a linear layer is sharded by rows, results have one rank's
 * bits. If it is sharded by columns, they are within the bound of docs/explanation/numerics.md. The test also
 * checks where a shard's rows are in the full tensor.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "comm/ranks.h"
#include "nn/activation.h"
#include "nn/layer_harness.h"
#include "nn/linear/linear.h"

/* with SIDE rows and columns, every shard consists of complete scale blocks of 128 x 128 */
enum { RANKS_MAX = 4, SIDE = 512 };

typedef struct part {
    harness h;
    activation_specs specs;
    tensor x, y; /* x: original values, y: decoded codes */
    int64_t row, column;
    group *ranks;
} part;

static ott_status step(exec *cx, void *user) {
    part *p = user;
    activation a;
    TRY(activation_open(cx, "part", OTT_F32, p->x.rows, p->x.columns, &p->specs, &a));
    TRY(op_convert(cx, &(convert_args){.x = &p->x, .y = &a.t}));
    TRY(activation_quantize(cx, &a));
    TRY(op_dequantize(cx, &(dequantize_args){.q = &a.q.item[0], .y = &p->y}));
    return activation_close(cx, &a);
}

/* Returns element (i, j) of the full tensor. The largest value differs between rows, columns and quarters. */
static float value_at(int64_t i, int64_t j) {
    return rng_normal(5, 1, (uint64_t)(i * SIDE + j)) * (float)(1 + i % 7) * (float)(1 + j % 5) *
           (i >= SIDE / 2 ? 3.0f : 1.0f) * (j >= SIDE / 2 ? 5.0f : 1.0f);
}

static void open_part(part *p, const quant_spec *spec, tensor_shard shard, int64_t row, int64_t column,
                      int64_t rows, int64_t columns) {
    float *values = malloc((size_t)(rows * columns) * sizeof *values);
    int spec_index;
    *p =
        (part){.row = row, .column = column, .ranks = shard.row_ranks ? shard.row_ranks : shard.column_ranks};
    harness_open(&p->h, 1, NULL);
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = value_at(row + i / columns, column + i % columns);
    p->x = harness_tensor_of(&p->h, OTT_F32, rows, columns, values);
    p->y = harness_tensor(&p->h, OTT_F32, rows, columns);
    p->specs.shard = shard;
    HARNESS_OK(activation_specs_add(&p->specs, spec, NULL, true, &spec_index));
    harness_record(&p->h, step, p);
    free(values);
}

static ott_status run_part(void *argument) {
    part *p = argument;
    return harness_replay_rank(&p->h, step, p, p->ranks);
}

static bool part_is_equal(part *p, const float *all) {
    float *own = malloc((size_t)tensor_count(p->y) * sizeof *own);
    bool equal = true;
    harness_get(&p->h, &p->y, own);
    for (int64_t i = 0; i < p->y.rows; i++)
        equal &= memcmp(own + i * p->y.columns, all + (p->row + i) * SIDE + p->column,
                        (size_t)p->y.columns * sizeof *own) == 0;
    free(own);
    return equal;
}

/* True if all shards have the codes of the full tensor. meets: ranks reduce amaxes; if not, use their own. */
static bool parts_are_equal(const quant_spec *spec, int size, bool by_rows, bool meets) {
    static part full, parts[RANKS_MAX];
    float *all = malloc(SIDE * SIDE * sizeof *all);
    group *groups[RANKS_MAX];
    thread_groups opened = {0};
    int64_t length = SIDE / size;
    bool equal = true;
    ranks_groups(&opened, size, 1, size, groups);
    open_part(&full, spec, (tensor_shard){0}, 0, 0, SIDE, SIDE);
    harness_replay(&full.h, step, &full);
    harness_get(&full.h, &full.y, all);
    for (int k = 0; k < size; k++) {
        tensor_shard shard =
            by_rows ? (tensor_shard){.row_ranks = groups[k]} : (tensor_shard){.column_ranks = groups[k]};
        if (!meets) shard = (tensor_shard){0};
        open_part(&parts[k], spec, shard, by_rows ? k * length : 0, by_rows ? 0 : k * length,
                  by_rows ? length : SIDE, by_rows ? SIDE : length);
    }
    ranks_run("parts", size, parts, sizeof *parts, run_part);
    for (int k = 0; k < size; k++) {
        equal &= part_is_equal(&parts[k], all);
        harness_close(&parts[k].h);
    }
    harness_close(&full.h);
    ranks_close(&opened);
    free(all);
    return equal;
}

/* Makes the spec of one tensor of a recipe. uses: 1 for the rowwise copy only, 2 for the columnwise copy
   only, 0 for both. Returns false if no copy is FP8, or if scaling is delayed. */
static bool spec_of(const recipe *r, int tensor_index, int uses, quant_spec *out) {
    const quant_spec *specs[TENSOR_COUNT] = {&r->input, &r->weight, &r->grad_output};
    *out = quant_spec_from(*specs[tensor_index], OTT_F32);
    if (uses == 1) out->columnwise = (cast_spec){.format = OTT_F32};
    if (uses == 2) out->rowwise = (cast_spec){.format = OTT_F32};
    if (!cast_spec_is_fp8(&out->rowwise)) out->rowwise.format = OTT_F32;
    if (!cast_spec_is_fp8(&out->columnwise)) out->columnwise.format = OTT_F32;
    return quant_spec_is_fp8(out) && out->rowwise.policy != AMAX_DELAYED &&
           out->columnwise.policy != AMAX_DELAYED;
}

static void parts_have_the_codes_of_the_full_tensor(void **state) {
    int count;
    const recipe *table = recipe_table(&count);
    quant_spec spec;
    (void)state;
    for (int i = 0; i < count; i++)
        for (int t = 0; t < TENSOR_COUNT; t++)
            for (int uses = 0; uses < 3; uses++)
                for (int by_rows = 0; by_rows < 2 && spec_of(&table[i], t, uses, &spec); by_rows++)
                    if (!parts_are_equal(&spec, t == 1 ? 4 : 2, by_rows, true))
                        fail_msg("%s, tensor %d, uses %d, split by %s", table[i].name, t, uses,
                                 by_rows ? "rows" : "columns");
}

static void and_not_each_for_itself(void **state) {
    quant_spec spec;
    (void)state;
    assert_true(spec_of(recipe_find("tensorwise"), 0, 0, &spec));
    assert_false(parts_are_equal(&spec, 2, true, false));
    assert_false(parts_are_equal(&spec, 2, false, false));
    /* no reduction is needed, because every block is on one rank */
    assert_true(spec_of(recipe_find("block"), 0, 1, &spec));
    assert_true(parts_are_equal(&spec, 2, false, false));
}

static void split_blocks_are_known(void **state) {
    const quant_spec *block = &recipe_find("block")->weight, *one = &recipe_find("tensorwise")->weight;
    group g = {.size = 2};
    tensor_shard rows = {.row_ranks = &g}, columns = {.column_ranks = &g}, none = {0};
    int64_t size;
    (void)state;
    assert_true(shard_fits_blocks(&rows, block, 128, 100, &size));
    assert_false(shard_fits_blocks(&rows, block, 100, 128, &size));
    assert_int_equal(size, 128);
    assert_false(shard_fits_blocks(&columns, block, 128, 100, &size));
    assert_true(shard_fits_blocks(&none, block, 100, 100, &size));
    assert_true(shard_fits_blocks(&rows, one, 7, 5, &size));
    assert_false(shard_fits_blocks(&columns, &recipe_find("mxfp8")->input, 0, 48, &size));
    assert_int_equal(size, 32);
}

/* ---- a layer ---- */

enum { TOKENS = 32, DEPTH = 256, WIDTH = 256 };

typedef struct layer_part {
    harness h;
    parameter weight;
    linear linear;
    activation_specs input, grad;
    tensor x, y;
    group *ranks;
} layer_part;

static ott_status run_layer(exec *cx, void *user) {
    layer_part *p = user;
    activation a;
    TRY(activation_open(cx, "input", OTT_BF16, p->x.rows, p->x.columns, &p->input, &a));
    TRY(op_convert(cx, &(convert_args){.x = &p->x, .y = &a.t}));
    TRY(activation_quantize(cx, &a));
    TRY(linear_forward(cx, &p->linear, &a, &p->y));
    return activation_close(cx, &a);
}

static float input_at(int64_t i, int64_t j) {
    return cast_from_bf16(cast_to_bf16(rng_normal(5, 2, (uint64_t)(i * DEPTH + j)) * (float)(1 + j % 9)));
}
static float weight_at(int64_t i, int64_t j) {
    return cast_from_bf16(
        cast_to_bf16(rng_normal(5, 3, (uint64_t)(i * DEPTH + j)) * (float)(1 + (i + j) % 5)));
}

static tensor fill_from(harness *h, const parameter_part *at, float (*value)(int64_t i, int64_t j)) {
    float *values = malloc((size_t)(at->rows * at->columns) * sizeof *values);
    for (int64_t i = 0; i < at->rows * at->columns; i++)
        values[i] = value(at->row + i / at->columns, at->column + i % at->columns);
    tensor t = harness_tensor_of(h, OTT_F32, at->rows, at->columns, values);
    free(values);
    return t;
}

/* Opens a layer or, unless ranks is NULL, this rank's shard of the layer. */
static void open_layer(layer_part *p, const recipe *r, parameter_split shard, group *ranks, int rank,
                       int size) {
    static const int64_t shape[] = {WIDTH, DEPTH};
    linear_spec spec;
    *p = (layer_part){.ranks = ranks, .weight = parameter_of_shape(2, shape)};
    harness_open(&p->h, 1, NULL);
    parameter_part *local = &p->weight.local;
    if (shard == PARAMETER_ROWS) parameter_split_rows(&p->weight, shape, 1, rank, size);
    if (shard == PARAMETER_COLUMNS)
        *local = (parameter_part){0, rank * DEPTH / size, WIDTH, DEPTH / size, {{0}}};
    p->weight.value = fill_from(&p->h, local, weight_at);
    p->x = fill_from(&p->h, &(parameter_part){0, local->column, TOKENS, local->columns, {{0}}}, input_at);
    p->y = harness_tensor(&p->h, OTT_F32, TOKENS, local->rows);
    p->linear = (linear){.name = "linear",
                         .in = local->columns,
                         .out = local->rows,
                         .split = shard,
                         .ranks = {.group = ranks},
                         .weight = &p->weight};
    recipe_compile(r, OTT_BF16, &spec);
    HARNESS_OK(linear_set_spec(&p->linear, p->h.device, &spec));
    HARNESS_OK(linear_connect(&p->linear, &p->input, &p->grad));
    harness_record(&p->h, run_layer, p);
}

static void close_layer(layer_part *p) {
    weight_release(&p->linear.source, p->h.device);
    harness_close(&p->h);
}

static ott_status run_layer_part(void *argument) {
    layer_part *p = argument;
    return harness_replay_rank(&p->h, run_layer, p, p->ranks);
}

/* Allowed difference of each output: 2 K 2^-24 times the sum of the products' magnitudes. A cast may have
   increased each factor by half a step, at most 2^-4 of the factor. */
static double bound[TOKENS * WIDTH];

static void find_bounds(void) {
    static float x[TOKENS * DEPTH], w[WIDTH * DEPTH];
    for (int64_t i = 0; i < TOKENS * DEPTH; i++) x[i] = fabsf(input_at(i / DEPTH, i % DEPTH));
    for (int64_t i = 0; i < WIDTH * DEPTH; i++) w[i] = fabsf(weight_at(i / DEPTH, i % DEPTH));
    for (int64_t i = 0; i < TOKENS * WIDTH; i++) {
        double sum = 0;
        for (int64_t k = 0; k < DEPTH; k++)
            sum += (double)x[i / WIDTH * DEPTH + k] * (double)w[i % WIDTH * DEPTH + k];
        bound[i] = 2.0 * DEPTH * 0x1p-24 * sum * (1 + 0x1p-4) * (1 + 0x1p-4);
    }
}

static void expect_layer(const char *name, layer_part *p, const float *all) {
    static float own[TOKENS * WIDTH];
    const parameter_part *local = &p->weight.local;
    harness_get(&p->h, &p->y, own);
    for (int64_t i = 0; i < TOKENS; i++)
        for (int64_t j = 0; j < local->rows; j++) {
            float expected = all[i * WIDTH + local->row + j], found = own[i * local->rows + j];
            bool right = p->linear.split == PARAMETER_ROWS
                             ? expected == found
                             : fabs((double)expected - (double)found) <= bound[i * WIDTH + j];
            if (!right)
                fail_msg("%s, split by %s: output %d, %d is %.9g, not %.9g", name,
                         p->linear.split == PARAMETER_ROWS ? "rows" : "columns", (int)i, (int)j,
                         (double)found, (double)expected);
        }
}

static void compare_layer(const recipe *r, parameter_split shard, int size) {
    static layer_part full, parts[RANKS_MAX];
    static float all[TOKENS * WIDTH];
    group *groups[RANKS_MAX];
    thread_groups opened = {0};
    ranks_groups(&opened, size, 1, size, groups);
    open_layer(&full, r, PARAMETER_FULL, NULL, 0, 1);
    harness_replay(&full.h, run_layer, &full);
    harness_get(&full.h, &full.y, all);
    for (int k = 0; k < size; k++) open_layer(&parts[k], r, shard, groups[k], k, size);
    ranks_run(r->name, size, parts, sizeof *parts, run_layer_part);
    for (int k = 0; k < size; k++) {
        expect_layer(r->name, &parts[k], all);
        close_layer(&parts[k]);
    }
    close_layer(&full);
    ranks_close(&opened);
}

static void sharded_layers_match_the_full_layer(void **state) {
    static const char *const recipes[] = {"tensorwise", "rowwise", "current", "block", "mxfp8"};
    (void)state;
    find_bounds();
    for (int shard = PARAMETER_ROWS; shard <= PARAMETER_COLUMNS; shard++) {
        for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
            compare_layer(recipe_find(recipes[i]), (parameter_split)shard, 2);
        compare_layer(recipe_high_precision(OTT_BF16), (parameter_split)shard, 4);
    }
}

/* ---- rows ---- */

/* The rows of each of 2 ranks: one half of each of three sections, which have 8, 4 and 4 rows. */
static const int64_t halves[2][8] = {{0, 1, 2, 3, 8, 9, 12, 13}, {4, 5, 6, 7, 10, 11, 14, 15}};

/* Loops over the runs of adjacent elements in the shard of rows [first, first + count). `halves` gives the
   expected position of each element. */
static void expect_runs(parameter *p, int rank, int64_t first, int64_t count) {
    int64_t width = p->rank > 1 ? p->columns : 1, at = 0;
    p->shard.first = first;
    p->shard.value =
        p->rank > 1 ? tensor_matrix(NULL, OTT_F32, count, width) : tensor_vector(NULL, OTT_F32, count);
    const parameter_part own = parameter_shard_part(p);
    for (parameter_run run; at < count * width; at += run.count) {
        run = parameter_run_at(&own, p->columns, at, 5);
        assert_in_range(run.count, 1, 5);
        for (int64_t i = 0; i < run.count; i++)
            assert_int_equal(run.first + i,
                             halves[rank][first + (at + i) / width] * width + (at + i) % width);
    }
    assert_int_equal(at, count * width);
}

static void parts_have_rows_of_each_section(void **state) {
    static const int64_t sections[] = {8, 4, 4}, matrix[] = {16, 3}, vector[] = {16};
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        for (int dimensions = 1; dimensions <= 2; dimensions++) {
            parameter p = parameter_of_shape(dimensions, dimensions > 1 ? matrix : vector);
            parameter_split_rows(&p, sections, 3, rank, 2);
            assert_int_equal(parameter_local_rows(&p), 8);
            for (int64_t first = 0; first < 8; first++)
                for (int64_t count = 0; first + count <= 8; count++) expect_runs(&p, rank, first, count);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_the_codes_of_the_full_tensor),
        cmocka_unit_test(and_not_each_for_itself),
        cmocka_unit_test(split_blocks_are_known),
        cmocka_unit_test(sharded_layers_match_the_full_layer),
        cmocka_unit_test(parts_have_rows_of_each_section),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
