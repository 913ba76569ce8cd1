/*
 * tensor/qtensor: the memory layout of a quantized tensor's arrays, for every recipe's tensors and for
 * backends with either data layout; which data the rowwise and the columnwise copy share; and the operands
 * that a GEMM gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/operand.h"

typedef struct part {
    const char *at;
    int64_t bytes;
} part;

/* The arrays of a quantized tensor. They must not overlap, and each must be inside of the memory blocks. */
typedef struct parts {
    part items[8];
    int count;
    const qblocks *blocks;
    int64_t alignment;
} parts;

static bool is_within(const qblock *b, part p) {
    const char *base = b->data;
    return base && p.at >= base && p.at + p.bytes <= base + b->bytes;
}

static void add_part(parts *all, const void *at, int64_t bytes) {
    part p = {at, bytes};
    assert_non_null(at);
    assert_int_equal((uintptr_t)at % (uintptr_t)all->alignment, 0);
    assert_true(is_within(&all->blocks->rowwise, p) || is_within(&all->blocks->columnwise, p));
    for (int i = 0; i < all->count; i++)
        assert_true(p.at + p.bytes <= all->items[i].at || all->items[i].at + all->items[i].bytes <= p.at);
    all->items[all->count++] = p;
}

static void add_scales(parts *all, const qdata *d, const cast_spec *s, int64_t mn_size, int64_t depth) {
    scale_grid grid = granularity_grid(s->grain, mn_size, depth);
    int64_t bytes = grid.mn * grid.k * (int64_t)sizeof(float);
    add_part(all, d->amax, bytes);
    add_part(all, d->scale, bytes);
    add_part(all, d->scale_inv, granularity_scale_bytes(s->grain, grid));
    assert_true(is_within(&all->blocks->rowwise, all->items[all->count - 3])); /* amax */
    assert_true(is_within(&all->blocks->rowwise, all->items[all->count - 2])); /* scale */
    assert_int_equal(d->mn_step, 1);
    assert_int_equal(d->k_step, granularity_mn_groups(s->grain, mn_size));
}

/* Allocates `bytes` bytes that begin at a multiple of `alignment`. */
static void *memory_of(int64_t bytes, int64_t alignment) {
    return bytes ? aligned_alloc((size_t)alignment, (size_t)bytes) : NULL;
}

static void check_codes(const qdata *d, int64_t rows, int64_t columns, bool transposed) {
    assert_int_equal(d->transposed, transposed);
    assert_int_equal(d->ld, transposed ? rows : columns);
    assert_int_equal(qtensor_index(d, rows - 1, columns - 1), rows * columns - 1);
    assert_int_equal(qtensor_index(d, 0, 1), transposed ? rows : 1);
}

static void check_uses(const qtensor *q, const backend_capabilities *can, const qblocks *blocks) {
    parts all = {.blocks = blocks, .alignment = can->alignment};
    bool rowwise = cast_spec_is_fp8(&q->spec.rowwise), columnwise = cast_spec_is_fp8(&q->spec.columnwise);
    bool shares_scales = rowwise && quant_spec_shares_scales(&q->spec);
    assert_int_equal(qtensor_shares_scales(q), shares_scales);
    assert_int_equal(qtensor_shares_codes(q), shares_scales && !can->contiguous_contraction);
    if (rowwise) {
        add_scales(&all, &q->rowwise, &q->spec.rowwise, q->rows, q->columns);
        add_part(&all, q->rowwise.data, q->rows * q->columns);
        check_codes(&q->rowwise, q->rows, q->columns, false);
    } else
        assert_true(!q->rowwise.data && !q->rowwise.amax && !q->rowwise.scale && !q->rowwise.scale_inv);
    if (columnwise && !shares_scales)
        add_scales(&all, &q->columnwise, &q->spec.columnwise, q->columns, q->rows);
    if (columnwise && !qtensor_shares_codes(q)) add_part(&all, q->columnwise.data, q->rows * q->columns);
    if (columnwise) {
        check_codes(&q->columnwise, q->rows, q->columns, can->contiguous_contraction);
        part scales = {q->columnwise.scale_inv, 1}, codes = {q->columnwise.data, 1};
        assert_true(is_within(&blocks->columnwise, scales) && is_within(&blocks->columnwise, codes));
    } else
        assert_true(!q->columnwise.data && !q->columnwise.scale_inv);
    int64_t bytes = 0; /* all bytes belong to some array */
    for (int i = 0; i < all.count; i++) bytes += backend_align(can, all.items[i].bytes);
    assert_int_equal(bytes, blocks->rowwise.bytes + blocks->columnwise.bytes);
}

static void check_layout(const quant_spec *spec, const backend_capabilities *can, int64_t rows,
                         int64_t columns) {
    qtensor q = {.rows = rows, .columns = columns, .spec = *spec};
    qblocks blocks = {0};
    assert_int_equal(qtensor_lay_out(&q, can, &blocks), OTT_OK);
    assert_true(!q.rowwise.data && !q.columnwise.data); /* the first call only computes sizes */
    int64_t rowwise = blocks.rowwise.bytes, columnwise = blocks.columnwise.bytes;
    blocks.rowwise.data = memory_of(rowwise, can->alignment);
    blocks.columnwise.data = memory_of(columnwise, can->alignment);
    assert_int_equal(qtensor_lay_out(&q, can, &blocks), OTT_OK);
    assert_true(blocks.rowwise.bytes == rowwise && blocks.columnwise.bytes == columnwise);
    check_uses(&q, can, &blocks);
    free(blocks.rowwise.data), free(blocks.columnwise.data);
}

static void test_every_recipe_and_backend(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {7, 300}, {129, 40}, {256, 256}};
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count * 16; i++) {
        const recipe *r = &table[i / 16];
        const quant_spec *specs[] = {&r->input, &r->weight, &r->grad_output};
        backend_capabilities can = {.alignment = i % 2 ? 256 : 64, .contiguous_contraction = i / 2 % 2};
        for (int t = 0; t < TENSOR_COUNT; t++) {
            quant_spec evaluating = *specs[t];
            evaluating.columnwise = (cast_spec){.format = OTT_BF16};
            check_layout(specs[t], &can, shapes[i / 4 % 4][0], shapes[i / 4 % 4][1]);
            check_layout(&evaluating, &can, shapes[i / 4 % 4][0], shapes[i / 4 % 4][1]);
        }
    }
}

/* Checks which copies share data. The tests above would also pass if no copies ever shared data. */
static void test_what_recipes_share(void **state) {
    (void)state;
    assert_true(quant_spec_shares_scales(&recipe_find("tensorwise")->input));
    assert_true(quant_spec_shares_scales(&recipe_find("block")->weight));
    assert_false(quant_spec_shares_scales(&recipe_find("block")->input));
    assert_false(quant_spec_shares_scales(&recipe_find("rowwise")->weight));
}

/* An operand's element, by its row and its index along the contraction, is the same in both layouts. */
static void test_operands_of_both_layouts(void **state) {
    (void)state;
    enum { ROWS = 3, COLUMNS = 5 };
    tensor none = {0};
    for (int contiguous = 0; contiguous < 2; contiguous++) {
        const backend_capabilities can = {.alignment = 64, .contiguous_contraction = contiguous};
        _Alignas(64) static char memory[2][4096];
        qblocks blocks = {{memory[0], 0}, {memory[1], 0}};
        qtensor q = {.rows = ROWS, .columns = COLUMNS, .spec = recipe_find("rowwise")->input};
        assert_int_equal(qtensor_lay_out(&q, &can, &blocks), OTT_OK);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) {
                ((char *)q.rowwise.data)[qtensor_index(&q.rowwise, i, j)] = (char)(16 * i + j);
                ((char *)q.columnwise.data)[qtensor_index(&q.columnwise, i, j)] = (char)(16 * i + j);
            }
        operand a = operand_rowwise(none, &q), b = operand_columnwise(none, &q);
        assert_false(a.transposed);
        assert_int_equal(b.transposed, !contiguous);
        assert_true(operand_mn(&a) == ROWS && operand_k(&a) == COLUMNS);
        assert_true(operand_mn(&b) == COLUMNS && operand_k(&b) == ROWS);
        assert_true(b.scale_inv == q.columnwise.scale_inv && b.mn_step == 1);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) {
                int64_t at = b.transposed ? i * b.t.ld + j : j * b.t.ld + i;
                assert_int_equal(((char *)a.t.data)[i * a.t.ld + j], 16 * i + j);
                assert_int_equal(((char *)b.t.data)[at], 16 * i + j);
            }
    }
}

/* Position (mn, k) of a group's scale_inv must be entry `at` of the full tensor's scale_inv. */
static void expect_inverse_of(const qdata *full, const qdata *group, int64_t at, int64_t mn, int64_t k,
                              int64_t bytes) {
    if (!full->tiles.along_k) {
        assert_ptr_equal((float *)group->scale_inv + mn * group->mn_step + k * group->k_step,
                         (float *)full->scale_inv + at);
        return;
    }
    int64_t byte = scale_tiles_index(full->tiles, at % full->k_step, at / full->k_step);
    assert_in_range(byte, 0, bytes - 1);
    assert_int_equal(scale_tiles_index(group->tiles, mn, k), byte);
    assert_ptr_equal(group->scale_inv, full->scale_inv);
}

/* A tensor with groups of rows: each group has its own scales, and its codes are part of the full tensor's
   codes. Tests also an empty group, and a tensor without rows. */
static void expect_own_scales(const qtensor *q, bool columnwise, const int64_t *end, int groups) {
    const qdata *full = columnwise ? &q->columnwise : &q->rowwise;
    scale_block block = granularity_block(columnwise ? q->spec.columnwise.grain : q->spec.rowwise.grain);
    qdata order;
    scale_grid grid = qtensor_order_use(&order, q, columnwise);
    int64_t entries = grid.mn * grid.k, first = 0;
    int64_t bytes =
        granularity_scale_bytes(columnwise ? q->spec.columnwise.grain : q->spec.rowwise.grain, grid);
    int *owner = calloc((size_t)entries, sizeof *owner);
    assert_non_null(owner);
    for (int e = 0; e <= groups; first = end[e++]) {
        qtensor own = qtensor_group(q, e, first, end[e] - first);
        const qdata *d = columnwise ? &own.columnwise : &own.rowwise;
        for (int64_t i = 0; i < own.rows; i++)
            for (int64_t j = 0; j < own.columns; j++) {
                int64_t mn = columnwise ? j : i, k = columnwise ? i : j;
                int64_t at = d->amax - full->amax + mn / block.mn * d->mn_step + k / block.k * d->k_step;
                assert_in_range(at, 0, entries - 1);
                assert_true(owner[at] == 0 || owner[at] == e + 1);
                expect_inverse_of(full, d, at, mn / block.mn, k / block.k, bytes);
                owner[at] = e + 1;
                assert_ptr_equal((char *)d->data + qtensor_index(d, i, j),
                                 (char *)full->data + qtensor_index(full, first + i, j));
            }
    }
    free(owner);
}

static void test_groups_share_no_scale(void **state) {
    static const int64_t end[] = {100, 100, 131, 259, 290, 300}; /* rows from 300 on are in no group */
    enum { GROUPS = sizeof end / sizeof *end - 1 };
    (void)state;
    for (int n = 0; n < 2 * GRANULARITY_COUNT; n++) {
        const backend_capabilities can = {.alignment = 64, .contiguous_contraction = n % 2};
        const cast_spec spec = {.format = OTT_E4M3, .grain = (granularity)(n / 2)};
        qtensor q = {.rows = 300, .columns = 150, .groups = GROUPS, .spec = {spec, spec}};
        qblocks blocks = {0};
        assert_int_equal(qtensor_lay_out(&q, &can, &blocks), OTT_OK);
        void *row = memory_of(blocks.rowwise.bytes, 64), *column = memory_of(blocks.columnwise.bytes, 64);
        blocks.rowwise.data = row;
        blocks.columnwise.data = column;
        assert_int_equal(qtensor_lay_out(&q, &can, &blocks), OTT_OK);
        expect_own_scales(&q, false, end, GROUPS);
        expect_own_scales(&q, true, end, GROUPS);
        free(row);
        free(column);
    }
}

/* Each position of E8M0 scales has its own byte in the tiles, and tiles have no other bytes but padding. */
static void test_tiles_have_a_byte_for_each_position(void **state) {
    (void)state;
    static unsigned char used[6 * SCALE_TILE_BYTES];
    scale_grid grid = {200, 9};
    scale_tiles t = granularity_tiles(GRANULARITY_1X32, grid);
    assert_int_equal(granularity_scale_bytes(GRANULARITY_1X32, grid), sizeof used);
    for (int64_t mn = 0; mn < 256; mn++)
        for (int64_t k = 0; k < 12; k++) {
            int64_t at = scale_tiles_index(t, mn, k);
            assert_in_range(at, 0, sizeof used - 1);
            assert_int_equal(used[at]++, 0);
        }
    /* the first tile, as cuBLAS documents it: 16 bytes for rows 0, 32, 64 and 96, then for rows 1, 33, ... */
    assert_int_equal(scale_tiles_index(t, 0, 3), 3);
    assert_int_equal(scale_tiles_index(t, 32, 0), 4);
    assert_int_equal(scale_tiles_index(t, 1, 0), 16);
    assert_int_equal(scale_tiles_index(t, 0, 4), SCALE_TILE_BYTES);
    assert_int_equal(scale_tiles_index(t, 128, 0), 3 * SCALE_TILE_BYTES);
}

/* Returns the bytes that a layer keeps for backward for each element of its input. */
static double kept_bytes(const char *name, const backend_capabilities *can) {
    enum { TOKENS = 4096, COLUMNS = 2048 };
    qtensor q = {.rows = TOKENS, .columns = COLUMNS, .spec = recipe_find(name)->input};
    qblocks blocks = {0};
    assert_int_equal(qtensor_lay_out(&q, can, &blocks), OTT_OK);
    return (double)blocks.columnwise.bytes / (TOKENS * COLUMNS);
}

static void test_bytes_kept_for_backward(void **state) {
    (void)state;
    for (int contiguous = 0; contiguous < 2; contiguous++) {
        const backend_capabilities can = {.alignment = 256, .contiguous_contraction = contiguous};
        assert_true(kept_bytes("tensorwise", &can) < 1.001);
        assert_true(kept_bytes("rowwise", &can) < 1.001);
        assert_true(kept_bytes("delayed", &can) < 1.001);
        assert_true(kept_bytes("block", &can) == 1 + 4.0 / 128);
        assert_true(kept_bytes("mxfp8", &can) == 1 + 1.0 / 32);
    }
}

static void test_sizes_that_are_none(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{-1, 4},
                                       {4, -1},
                                       {INT64_MAX, 1},
                                       {1, INT64_MAX},
                                       {INT64_MAX, INT64_MAX},
                                       {INT64_MAX, 0},
                                       {INT64_C(1) << 40, INT64_C(1) << 40}};
    const backend_capabilities can = {.alignment = 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        qtensor q = {.rows = sizes[i][0], .columns = sizes[i][1], .spec = recipe_find("mxfp8")->input};
        qblocks blocks = {0};
        assert_int_equal(qtensor_lay_out(&q, &can, &blocks), OTT_ERR_SHAPE);
        assert_non_null(strstr(status_text(), "is too large, or negative"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_recipe_and_backend),
        cmocka_unit_test(test_what_recipes_share),
        cmocka_unit_test(test_operands_of_both_layouts),
        cmocka_unit_test(test_groups_share_no_scale),
        cmocka_unit_test(test_sizes_that_are_none),
        cmocka_unit_test(test_tiles_have_a_byte_for_each_position),
        cmocka_unit_test(test_bytes_kept_for_backward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
