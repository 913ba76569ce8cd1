/*
 * cpu/quantize/quantize and cpu/quantize/convert: compares every ISA level and several numbers of threads
 * with fp8/reference and fp8/cast, bit for bit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "devices.h"
#include "fp8/reference.h"
#include "tensor/exec.h"
#include "tensor/scale_entry.h"
#include <stdlib.h>

static devices all;
static uint64_t draws;

static uint32_t draw(void) {
    return rng_u32(5, 6, draws++);
}
static int64_t pick(int64_t count) {
    return draw() % count;
}

static const ott_dtype high_precision[] = {OTT_F32, OTT_BF16, OTT_F16};

/* ---- data ---- */

typedef enum values {
    VALUES_NORMAL,
    VALUES_ANY_BITS,
    VALUES_ZERO,
    VALUES_ONE_NAN,
    VALUES_TINY,
    VALUES_KINDS
} values;

static float value_of(values v, int64_t i) {
    float x = rng_normal(5, 7, draws++);
    switch (v) {
    case VALUES_ANY_BITS: return fmath_from_bits(draw());
    case VALUES_ZERO: return i % 2 ? -0.0f : 0.0f;
    case VALUES_ONE_NAN: return i == 11 ? NAN : x;
    case VALUES_TINY: return x * 0x1p-127f;
    default: return x * (i % 7 == 0 ? 1000.0f : 1.0f);
    }
}

/* Makes a tensor of rows x columns with leading dimension ld, in an allocation of exactly that size. */
static tensor some_tensor(ott_dtype d, int64_t rows, int64_t columns, int64_t ld, values v) {
    int64_t count = rows > 0 ? (rows - 1) * ld + columns : 0;
    void *data = malloc((size_t)(count * dtype_bytes(d)) + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) cast_store(data, d, i, value_of(v, i));
    tensor t = tensor_matrix(data, d, rows, columns);
    t.ld = ld;
    return t;
}

static scale_grid grid_of(const cast_spec *s, const tensor *x, bool column) {
    return granularity_grid(s->grain, column ? x->columns : x->rows, column ? x->rows : x->columns);
}

static int64_t groups_of(const cast_spec *s, const tensor *x, bool column) {
    scale_grid grid = grid_of(s, x, column);
    return grid.mn * grid.k;
}

/* Makes the arrays of one copy (rowwise or columnwise), filled with other bytes than the op writes. */
static qdata make_use(const cast_spec *s, const tensor *x, bool column) {
    size_t codes = (size_t)tensor_count(*x) + 1, floats = (size_t)groups_of(s, x, column) * 4;
    size_t inverses = (size_t)granularity_scale_bytes(s->grain, grid_of(s, x, column));
    qdata use = {.data = malloc(codes), .ld = x->columns};
    use.amax = malloc(floats), use.scale = malloc(floats), use.scale_inv = malloc(inverses);
    assert_true(use.data && use.amax && use.scale && use.scale_inv);
    memset(use.data, 0xa5, codes);
    memset(use.amax, 0xa5, floats);
    memset(use.scale, 0xa5, floats);
    memset(use.scale_inv, 0xa5, inverses);
    qtensor_order(&use, s->grain, grid_of(s, x, column));
    return use;
}

static void free_use(qdata *s) {
    free(s->data), free(s->amax), free(s->scale), free(s->scale_inv);
}

static void assert_same_float(const char *on, const char *what, int64_t i, float found, float expected) {
    if (fmath_bits(found) != fmath_bits(expected) && !(isnan(found) && isnan(expected)))
        fail_msg("%s: %s[%d] is %a, expected %a", on, what, (int)i, (double)found, (double)expected);
}

/* Compares a quantized copy's codes, stored in any order, with `expected`, which is in row order. */
static void assert_same_codes(const char *on, const tensor *x, const qdata *found, const qdata *expected) {
    const uint8_t *f = found->data, *e = expected->data;
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            if (f[qtensor_index(found, i, j)] != e[i * x->columns + j])
                fail_msg("%s: code[%d,%d]%s is %02x, expected %02x", on, (int)i, (int)j,
                         found->transposed ? ", transposed," : "", f[qtensor_index(found, i, j)],
                         e[i * x->columns + j]);
    assert_int_equal(f[tensor_count(*x)], 0xa5); /* the byte after the last code is unchanged */
}

static void assert_same_use(const char *on, const tensor *x, const cast_spec *s, const qdata *found,
                            const qdata *expected, int64_t groups) {
    if (!cast_spec_is_fp8(s)) return;
    assert_same_codes(on, x, found, expected);
    for (int64_t g = 0; g < groups; g++) {
        assert_same_float(on, "amax", g, found->amax[g], expected->amax[g]);
        assert_same_float(on, "scale", g, found->scale[g], expected->scale[g]);
        assert_same_float(on, "scale_inv", g, scale_entry_read(found, g), scale_inverse(expected->scale[g]));
    }
}

/* ---- quantize against the reference ---- */

/* The scale for delayed scaling, which is an input. give_scale stores it in qdata.next or qdata.scale. */
static const float given_scale = 3.7f;

static void give_scale(const cast_spec *s, qdata *out, int64_t groups, bool as_next) {
    if (s->policy != AMAX_DELAYED) return;
    out->next = as_next ? &given_scale : NULL;
    for (int64_t g = 0; g < groups && !as_next; g++) out->scale[g] = given_scale;
}

static void reference_use(const tensor *x, const cast_spec *s, bool column, qdata *out) {
    float *scale_inv = malloc((size_t)groups_of(s, x, column) * 4 + 1);
    assert_non_null(scale_inv);
    give_scale(s, out, groups_of(s, x, column), false);
    reference_quantize(x->data, x->dtype, x->rows, x->columns, x->ld, s, column, out->amax, out->scale,
                       scale_inv, out->data);
    free(scale_inv);
}

static ott_status quantize_in_parts(exec *cx, const tensor *x, const qtensor *q) {
    TRY(op_amax(cx, &(amax_args){.x = x, .q = q}));
    TRY(op_scale(cx, &(scale_args){.q = q}));
    return op_cast(cx, &(cast_args){.x = x, .q = q});
}

/* Makes a quantized tensor with the layout of tensor/qtensor. transposed: the columnwise codes are
   transposed, as some backends require. */
static qtensor lay_out(const tensor *x, const quant_spec *spec, const qdata *row, const qdata *column,
                       bool transposed) {
    qtensor q = {
        .rows = x->rows, .columns = x->columns, .spec = *spec, .rowwise = *row, .columnwise = *column};
    if (quant_spec_shares_scales(spec)) q.columnwise = qtensor_shared_use(q.rowwise);
    if (!transposed) return q;
    q.columnwise.data = column->data;
    q.columnwise.transposed = true;
    q.columnwise.ld = x->rows;
    return q;
}

static void check_quantize(const tensor *x, const quant_spec *spec) {
    int64_t row_groups = groups_of(&spec->rowwise, x, false);
    int64_t column_groups = groups_of(&spec->columnwise, x, true);
    qdata wanted_row = make_use(&spec->rowwise, x, false),
          wanted_column = make_use(&spec->columnwise, x, true);
    reference_use(x, &spec->rowwise, false, &wanted_row);
    reference_use(x, &spec->columnwise, true, &wanted_column);
    bool shared = quant_spec_shares_scales(spec), transposed = pick(2);
    for (int i = 0; i < 4 * all.count; i++) {
        exec cx = {.device = all.list[i / 4]};
        bool delayed = spec->rowwise.policy == AMAX_DELAYED || spec->columnwise.policy == AMAX_DELAYED;
        if (i % 4 > 1 && !delayed) continue;
        qdata row = make_use(&spec->rowwise, x, false), column = make_use(&spec->columnwise, x, true);
        give_scale(&spec->rowwise, &row, row_groups, i % 4 > 1);
        give_scale(&spec->columnwise, &column, column_groups, i % 4 > 1);
        qtensor q = lay_out(x, spec, &row, &column, transposed);
        ott_status status =
            i % 2 ? quantize_in_parts(&cx, x, &q) : op_quantize(&cx, &(quantize_args){.x = x, .q = &q});
        if (status != OTT_OK) fail_msg("%s: %s", cx.device->name, status_text());
        assert_same_use(cx.device->name, x, &spec->rowwise, &q.rowwise, &wanted_row, row_groups);
        if (!shared)
            assert_same_use(cx.device->name, x, &spec->columnwise, &q.columnwise, &wanted_column,
                            column_groups);
        else if (cast_spec_is_fp8(&spec->columnwise)) /* the columnwise copy shares the rowwise scales */
            assert_same_codes(cx.device->name, x, &q.columnwise, &wanted_column);
        free_use(&row), free_use(&column);
    }
    free_use(&wanted_row), free_use(&wanted_column);
}

/* If an amax is NaN, amax, scale and scale_inv have the same bits at every ISA level, whatever bits the
   source's NaN has. */
static void test_nan_is_one_number(void **state) {
    (void)state;
    enum { ROWS = 40, COLUMNS = 160, ELEMENTS = ROWS * COLUMNS };
    static const granularity grains[] = {GRANULARITY_TENSOR, GRANULARITY_ROW, GRANULARITY_1X128,
                                         GRANULARITY_128X128, GRANULARITY_1X32};
    static uint16_t halves[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) halves[i] = 0x3c00; /* the fp16 code of 1 */
    halves[3 * COLUMNS + 7] = 0x7d01, halves[5 * COLUMNS + 9] = 0xfe35;
    tensor x = tensor_matrix(halves, OTT_F16, ROWS, COLUMNS);
    for (size_t n = 0; n < 2 * sizeof grains / sizeof *grains; n++) {
        bool mx = grains[n / 2] == GRANULARITY_1X32;
        cast_spec s = {
            .format = OTT_E4M3, .grain = grains[n / 2], .scale = {.rule = mx ? SCALE_E8M0 : SCALE_TORCHAO}};
        quant_spec spec = {s, {.format = OTT_F16}};
        if (n % 2) spec = (quant_spec){{.format = OTT_F16}, s};
        int64_t groups = groups_of(&s, &x, n % 2);
        qdata use = make_use(&s, &x, n % 2);
        qtensor q = {.rows = ROWS, .columns = COLUMNS, .spec = spec, .rowwise = use, .columnwise = use};
        for (int i = 0; i < all.count; i++) {
            exec cx = {.device = all.list[i]};
            int found = 0;
            if (op_quantize(&cx, &(quantize_args){.x = &x, .q = &q}) != OTT_OK) fail_msg("%s", status_text());
            for (int64_t g = 0; g < groups; g++) {
                if (!isnan(use.amax[g])) continue;
                found++;
                if (fmath_bits(use.amax[g]) != 0x7fc00000u || fmath_bits(use.scale[g]) != 0x7fc00000u ||
                    fmath_bits(scale_entry_read(&use, g)) != 0x7fc00000u)
                    fail_msg("%s, %s: amax %08x", cx.device->name, granularity_name(s.grain),
                             fmath_bits(use.amax[g]));
            }
            assert_true(found >= 1);
        }
        free_use(&use);
    }
}

static cast_spec some_use(ott_dtype format, granularity grain) {
    const scale_rule rules[] = {SCALE_TORCHAO, SCALE_TE, SCALE_NONE, SCALE_E8M0, SCALE_E8M0_FLOOR};
    bool mx = grain == GRANULARITY_1X32;
    return (cast_spec){.format = format,
                       .grain = grain,
                       .mode = pick(2) ? CAST_SATURATE : CAST_OVERFLOW,
                       .policy = mx || pick(6) ? AMAX_CURRENT : AMAX_DELAYED,
                       .scale = {.rule = rules[mx ? 3 + pick(2) : pick(5)],
                                 .power_of_two = pick(2),
                                 .epsilon = pick(2) ? 0.01f : 0.0f,
                                 .infinite = 3.4e38f}};
}

static const ott_dtype codes[] = {OTT_E4M3, OTT_E5M2, OTT_BF16};

static cast_spec any_use(int formats) {
    return some_use(codes[pick(formats)], (granularity)pick(GRANULARITY_COUNT));
}

static void every_pair_of_uses(void **state) {
    (void)state;
    for (int i = 0; i < 3 * GRANULARITY_COUNT * 3 * GRANULARITY_COUNT; i++)
        for (int v = 0; v < VALUES_KINDS; v++) {
            int rest = i;
            ott_dtype row = codes[rest % 3], column = codes[rest / 3 % 3];
            rest /= 9;
            quant_spec spec = {some_use(row, (granularity)(rest % GRANULARITY_COUNT)),
                               some_use(column, (granularity)(rest / GRANULARITY_COUNT))};
            tensor x = some_tensor(high_precision[pick(3)], 45, 283, 283 + 5 * pick(2), (values)v);
            check_quantize(&x, &spec);
            free(x.data);
        }
}

/* If both copies (rowwise, columnwise) have one spec, tensorwise or with square blocks, they share data. */
static void uses_that_may_share(void **state) {
    (void)state;
    for (int grain = 0; grain < GRANULARITY_COUNT; grain++)
        for (int v = 0; v < VALUES_KINDS; v++)
            for (int repeat = 0; repeat < 2; repeat++) {
                cast_spec use = some_use(codes[repeat], (granularity)grain);
                tensor x = some_tensor(high_precision[pick(3)], 140, 270, 270 + 5 * pick(2), (values)v);
                check_quantize(&x, &(quant_spec){use, use});
                free(x.data);
            }
}

static void many_shapes(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 257};
    const int count = sizeof sizes / sizeof sizes[0];
    for (int i = 0; i < 400; i++) {
        int64_t rows = sizes[pick(count)], columns = sizes[pick(count)];
        tensor x = some_tensor(high_precision[pick(3)], rows, columns, columns + pick(9),
                               (values)pick(VALUES_KINDS));
        quant_spec spec = {any_use(3), any_use(3)};
        check_quantize(&x, &spec);
        free(x.data);
    }
}

/* Tests shapes that several threads divide, with several work units along a row. */
static void shapes_that_are_shared(void **state) {
    (void)state;
    const int64_t shapes[][2] = {{300, 70}, {3, 9000}, {129, 257}, {1, 17000}, {17000, 1}, {150, 1100}};
    for (int i = 0; i < 6; i++)
        for (int repeat = 0; repeat < 10; repeat++) {
            tensor x = some_tensor(high_precision[pick(3)], shapes[i][0], shapes[i][1],
                                   shapes[i][1] + pick(4), (values)pick(VALUES_KINDS));
            quant_spec spec = {any_use(2), any_use(2)};
            if (repeat % 4 == 0) spec.columnwise = spec.rowwise;
            check_quantize(&x, &spec);
            free(x.data);
        }
}

/* Compares the vector encoder with fp8/cast, for every half-precision number, and for fp32 numbers near every
   rounding boundary. */
static void every_bf16_and_f16_number(void **state) {
    (void)state;
    uint16_t *every = malloc(65536 * 2);
    assert_non_null(every);
    for (int i = 0; i < 65536; i++) every[i] = (uint16_t)i;
    for (int d = 1; d < 3; d++)
        for (int format = 0; format < 2; format++)
            for (int mode = 0; mode < 2; mode++) {
                tensor x = tensor_matrix(every, high_precision[d], 256, 256);
                cast_spec s = {
                    .format = codes[format], .mode = (cast_mode)mode, .scale = {.rule = SCALE_NONE}};
                check_quantize(&x, &(quant_spec){s, s});
            }
    free(every);
}

static void fp32_around_every_boundary(void **state) {
    (void)state;
    enum { PER_CODE = 6 };
    float *near = malloc(256 * PER_CODE * sizeof(float));
    assert_non_null(near);
    for (int format = 0; format < 2; format++) {
        for (int c = 0; c < 256; c++) {
            float low = cast_from_fp8((uint8_t)c, codes[format]),
                  high = cast_from_fp8((uint8_t)(c ^ 1), codes[format]);
            float middle = low / 2 + high / 2, *out = near + c * PER_CODE;
            out[0] = low, out[1] = nextafterf(low, 0.0f), out[2] = nextafterf(low, INFINITY);
            out[3] = middle, out[4] = nextafterf(middle, 0.0f), out[5] = nextafterf(middle, INFINITY);
        }
        for (int mode = 0; mode < 2; mode++) {
            tensor x = tensor_matrix(near, OTT_F32, PER_CODE, 256);
            cast_spec s = {.format = codes[format], .mode = (cast_mode)mode, .scale = {.rule = SCALE_NONE}};
            check_quantize(&x, &(quant_spec){s, s});
        }
    }
    free(near);
}

/* Compares the vector code of the scale rules, for every exponent of amax, and for mantissas near 1, 1.5,
   1.75 and 2. x has one row, so in the columnwise use each element is a scale block. */
static void block_scales_of_every_amax(void **state) {
    (void)state;
    enum { NEAR = 12, PER_EXPONENT = 4 * NEAR };
    float *amax = malloc(256 * PER_EXPONENT * sizeof(float));
    assert_non_null(amax);
    for (uint32_t e = 0; e < 256; e++)
        for (uint32_t i = 0; i < PER_EXPONENT; i++) {
            const uint32_t from[] = {0, 0x400000 - NEAR / 2, 0x600000 - NEAR / 2, 0x800000 - NEAR};
            amax[e * PER_EXPONENT + i] = fmath_from_bits((e << 23) + from[i / NEAR] + i % NEAR);
        }
    tensor x = tensor_matrix(amax, OTT_F32, 1, 256 * PER_EXPONENT);
    for (int format = 0; format < 2; format++)
        for (int i = 0; i < 5; i++) {
            cast_spec s = {.format = codes[format],
                           .grain = i == 0 ? GRANULARITY_1X32 : GRANULARITY_1X128,
                           .scale = {.rule = i == 0 ? SCALE_E8M0 : SCALE_TE,
                                     .power_of_two = i & 1,
                                     .epsilon = i & 2 ? 0.01f : 0.0f,
                                     .infinite = 0x1.fep127f}};
            check_quantize(&x, &(quant_spec){{.format = OTT_BF16}, s});
        }
    free(amax);
}

/* Delayed scaling records the amax, but casts with the scale that it was given. */
static void delayed_keeps_the_given_scale(void **state) {
    (void)state;
    tensor x = some_tensor(OTT_F32, 5, 40, 40, VALUES_NORMAL);
    cast_spec s = {.format = OTT_E4M3, .scale = {.rule = SCALE_TE}, .policy = AMAX_DELAYED, .history = 4};
    for (int i = 0; i < all.count; i++) {
        exec cx = {.device = all.list[i]};
        qdata use = make_use(&s, &x, false);
        use.scale[0] = 4.0f;
        qtensor q = {.rows = 5, .columns = 40, .spec = {s, s}, .rowwise = use, .columnwise = use};
        assert_int_equal(op_quantize(&cx, &(quantize_args){.x = &x, .q = &q}), OTT_OK);
        assert_true(use.scale[0] == 4.0f && scale_entry_read(&use, 0) == 0.25f);
        assert_true(use.amax[0] == reference_amax(x.data, OTT_F32, 5, 40, 40));
        for (int64_t e = 0; e < 200; e++)
            assert_int_equal(((uint8_t *)use.data)[e],
                             cast_to_e4m3(((float *)x.data)[e] * 4.0f, CAST_SATURATE));
        free_use(&use);
    }
    free(x.data);
}

static void refuses_what_it_cannot_do(void **state) {
    (void)state;
    float x[4] = {0}, f[4];
    uint8_t bytes[4];
    tensor t = tensor_matrix(x, OTT_F32, 2, 2);
    qdata use = {.data = bytes, .ld = 2, .amax = f, .scale = f, .scale_inv = f};
    qtensor q = {.rows = 2, .columns = 2, .rowwise = use, .columnwise = use};
    exec cx = {.device = all.list[0]};
    cast_spec good = {.format = OTT_E4M3}, stochastic = {.format = OTT_E4M3, .rounding = ROUND_STOCHASTIC};
    q.spec = (quant_spec){good, stochastic};
    assert_int_equal(op_quantize(&cx, &(quantize_args){.x = &t, .q = &q}), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "columnwise use"));
    q.spec = (quant_spec){stochastic, good};
    assert_int_equal(op_cast(&cx, &(cast_args){.x = &t, .q = &q}), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "rowwise use"));
}

/* ---- convert ---- */

static void check_convert(const tensor *x, ott_dtype to, int64_t ld) {
    int64_t count = x->rows > 0 ? (x->rows - 1) * ld + x->columns : 0, size = dtype_bytes(to);
    unsigned char *y = malloc((size_t)(count * size) + 1);
    assert_non_null(y);
    tensor t = tensor_matrix(y, to, x->rows, x->columns);
    t.ld = ld;
    for (int i = 0; i < all.count; i++) {
        exec cx = {.device = all.list[i]};
        memset(y, 0xa5, (size_t)(count * size) + 1);
        assert_int_equal(op_convert(&cx, &(convert_args){.x = x, .y = &t}), OTT_OK);
        for (int64_t e = 0; e < count; e++) {
            float expected[1] = {0};
            if (e % ld >= x->columns)
                memset(expected, 0xa5, 4);
            else
                cast_store(expected, to, 0, cast_load(x->data, x->dtype, e / ld * x->ld + e % ld));
            if (to == OTT_F32 && isnan(((float *)y)[e]) && isnan(expected[0])) continue;
            if (memcmp(y + e * size, expected, (size_t)size) != 0)
                fail_msg("%s: %s to %s: element %d of %d", cx.device->name, dtype_name(x->dtype),
                         dtype_name(to), (int)e, (int)count);
        }
        assert_int_equal(y[count * size], 0xa5);
    }
    free(y);
}

static void convert_every_pair(void **state) {
    (void)state;
    const int64_t shapes[][2] = {{0, 5}, {1, 1}, {3, 15}, {5, 33}, {64, 100}, {1, 17000}, {137, 129}};
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int s = 0; s < 7; s++)
                for (int v = 0; v < 2; v++) {
                    int64_t rows = shapes[s][0], columns = shapes[s][1];
                    tensor x =
                        some_tensor(high_precision[from], rows, columns, columns + 3 * pick(2), (values)v);
                    check_convert(&x, high_precision[to], columns + 2 * pick(2));
                    free(x.data);
                }
}

static int setup(void **state) {
    (void)state;
    all = devices_open();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    devices_close(&all);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan_is_one_number),     cmocka_unit_test(every_pair_of_uses),
        cmocka_unit_test(uses_that_may_share),        cmocka_unit_test(many_shapes),
        cmocka_unit_test(shapes_that_are_shared),     cmocka_unit_test(every_bf16_and_f16_number),
        cmocka_unit_test(fp32_around_every_boundary), cmocka_unit_test(delayed_keeps_the_given_scale),
        cmocka_unit_test(block_scales_of_every_amax), cmocka_unit_test(refuses_what_it_cannot_do),
        cmocka_unit_test(convert_every_pair),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
