/*
 * cpu/gemm/gemm: compares every ISA level and several numbers of threads with fp8/reference, bit for bit.
 * Cases have shapes near the block sizes, all formats and orientations, scales of every granularity, bias,
 * accumulation, special values, and tensor-core accumulation.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "devices.h"
#include "fp8/reference.h"
#include "tensor/exec.h"
#include <stdlib.h>

typedef enum values {
    VALUES_NORMAL,
    VALUES_ANY_BITS,
    VALUES_TINY,
    /* operands and products are normal numbers, but sums are subnormal; terms with k >= 20 are 0 */
    VALUES_NEARLY_SUBNORMAL,
    VALUES_ANY_FINITE, /* FP8: any finite code; other formats: normally distributed */
    VALUES_KINDS
} values;

typedef struct use {
    ott_dtype format;
    bool transposed;
    int padding; /* elements by which the leading dimension exceeds the columns */
    bool scaled;
    granularity grain;
    bool turned; /* true: scales are stored as for the transposed matrix (qtensor_shared_use) */
    bool packed; /* b is not transposed, and is packed before the product */
} use;

typedef struct gemm_case {
    int64_t m, n, k;
    use a, b;
    ott_dtype c;
    int c_padding;
    gemm_spec spec;
    bool bias, accumulate;
    values values;
} gemm_case;

/* The arrays of a case. Each is an allocation of exactly its size. */
typedef struct gemm_data {
    void *a, *b, *c_before, *c_expected, *c;
    void *scale_inv_a, *scale_inv_b;
    float *bias;
    int64_t c_bytes;
} gemm_data;

static devices all;
static uint64_t draws; /* random numbers drawn so far */

static uint32_t draw(void) {
    return rng_u32(1, 2, draws++);
}
static int64_t pick(int64_t count) {
    return draw() % count;
}

static float some_value(values v) {
    float x = rng_normal(1, 3, draws++);
    if (v == VALUES_ANY_BITS) return fmath_from_bits(draw());
    return v == VALUES_TINY ? x * 0x1p-128f : x;
}

/* Draws one of few magnitudes, so that products cancel and sums get as small as 2^-128. Returns 0 for terms
   with k >= 20. */
static float nearly_subnormal(int64_t k) {
    if (k >= 20 || draw() % 8 == 0) return 0.0f;
    return (draw() % 2 ? 0x1p-57f : -0x1p-57f) * (draw() % 2 ? 1.0f + 0x1p-7f : 1.0f);
}

static uint8_t some_number(ott_dtype d) {
    uint8_t code = (uint8_t)draw();
    return isfinite(cast_from_fp8(code, d)) ? code : 0;
}

static void *some_matrix(ott_dtype d, int64_t rows, int64_t columns, int64_t ld, values v) {
    int64_t count = rows > 0 ? (rows - 1) * ld + columns : 0;
    /* one byte more, so that malloc does not return NULL if count is 0 */
    uint8_t *data = malloc((size_t)(count * dtype_bytes(d) + 1));
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        if (v == VALUES_ANY_BITS && d != OTT_F32)
            for (int64_t b = 0; b < dtype_bytes(d); b++) data[i * dtype_bytes(d) + b] = (uint8_t)draw();
        else if (v == VALUES_TINY && dtype_is_fp8(d))
            data[i] = (uint8_t)(draw() & 0x83); /* codes of subnormals and zeros */
        else if (v == VALUES_ANY_FINITE && dtype_is_fp8(d))
            data[i] = some_number(d);
        else
            cast_store(data, d, i,
                       v == VALUES_NEARLY_SUBNORMAL ? nearly_subnormal(rows > columns ? i / ld : i % ld)
                                                    : some_value(v));
    }
    return data;
}

static float *some_floats(int64_t count, values v) {
    float *x = some_matrix(OTT_F32, 1, count, count, v == VALUES_ANY_BITS ? v : VALUES_NORMAL);
    return x;
}

static int64_t use_rows(const use *s, int64_t mn, int64_t k) {
    return s->transposed ? k : mn;
}
static int64_t use_columns(const use *s, int64_t mn, int64_t k) {
    return s->transposed ? mn : k;
}

static void *use_matrix(const use *s, int64_t mn, int64_t k, values v) {
    int64_t columns = use_columns(s, mn, k);
    return some_matrix(s->format, use_rows(s, mn, k), columns, columns + s->padding, v);
}

static void *use_scales(const use *s, int64_t mn, int64_t k, values v) {
    int64_t bytes = granularity_scale_bytes(s->grain, granularity_grid(s->grain, mn, k));
    if (granularity_scale_format(s->grain) == OTT_F32) return some_floats(bytes / 4, v);
    uint8_t *codes = malloc((size_t)bytes + 1);
    assert_non_null(codes);
    for (int64_t i = 0; i < bytes; i++)
        codes[i] = (uint8_t)(v == VALUES_ANY_BITS ? draw() : (uint32_t)(120 + pick(15)));
    return codes;
}

static operand use_operand(const use *s, void *data, int64_t mn, int64_t k, const void *scale_inv) {
    qdata scales = {0};
    qtensor_order(&scales, s->grain, granularity_grid(s->grain, s->turned ? k : mn, s->turned ? mn : k));
    if (s->turned) scales = qtensor_shared_use(scales);
    operand o = {.t = tensor_matrix(data, s->format, use_rows(s, mn, k), use_columns(s, mn, k)),
                 .transposed = s->transposed,
                 .scale_inv = s->scaled ? scale_inv : NULL,
                 .grain = s->grain,
                 .mn_step = scales.mn_step,
                 .k_step = scales.k_step,
                 .tiles = scales.tiles};
    o.t.ld += s->padding;
    return o;
}

static reference_operand use_reference(const operand *o) {
    return (reference_operand){.data = o->t.data,
                               .format = o->t.dtype,
                               .ld = o->t.ld,
                               .transposed = o->transposed,
                               .scale_inv = o->scale_inv,
                               .grain = o->grain,
                               .mn_step = o->mn_step,
                               .k_step = o->k_step,
                               .tiles = o->tiles};
}

/* Packs the operand on the device, in an allocation of exactly its size. The caller frees it with free(). */
static operand pack(exec *cx, const operand *plain) {
    operand packed = *plain;
    int64_t count = op_packed_count(cx, plain), size = dtype_bytes(plain->t.dtype);
    uint8_t *data = malloc((size_t)(count * size) + 1);
    assert_non_null(data);
    data[count * size] = 0x5a;
    tensor y = tensor_vector(data, plain->t.dtype, count);
    if (op_pack(cx, &(pack_args){.b = plain, .y = &y}) != OTT_OK) fail_msg("%s", status_text());
    assert_int_equal(data[count * size], 0x5a);
    packed.packed = true;
    packed.t = tensor_matrix(data, plain->t.dtype, plain->t.rows, plain->t.columns);
    return packed;
}

static gemm_data make(const gemm_case *t) {
    gemm_data d = {.a = use_matrix(&t->a, t->m, t->k, t->values),
                   .b = use_matrix(&t->b, t->n, t->k, t->values)};
    d.scale_inv_a = use_scales(&t->a, t->m, t->k, t->values);
    d.scale_inv_b = use_scales(&t->b, t->n, t->k, t->values);
    d.bias = some_floats(t->n, t->values);
    int64_t ld = t->n + t->c_padding;
    d.c_bytes = t->m > 0 ? ((t->m - 1) * ld + t->n) * dtype_bytes(t->c) : 0;
    d.c_before = some_matrix(t->c, t->m, t->n, ld, t->values);
    d.c_expected = malloc((size_t)d.c_bytes + 1);
    d.c = malloc((size_t)d.c_bytes + 1);
    assert_true(d.c_expected && d.c);
    return d;
}

static void discard(gemm_data *d) {
    free(d->a), free(d->b), free(d->c_before), free(d->c_expected), free(d->c);
    free(d->scale_inv_a), free(d->scale_inv_b), free(d->bias);
}

/* Compares every byte of C's memory, including the padding. In fp32 any NaN equals any NaN. */
static void assert_same(const gemm_case *t, const gemm_data *d, const device *on) {
    for (int64_t i = 0; i < d->c_bytes / dtype_bytes(t->c); i++) {
        float found = cast_load(d->c, t->c, i), expected = cast_load(d->c_expected, t->c, i);
        bool same = memcmp((char *)d->c + i * dtype_bytes(t->c),
                           (char *)d->c_expected + i * dtype_bytes(t->c), (size_t)dtype_bytes(t->c)) == 0;
        if (same || (t->c == OTT_F32 && isnan(found) && isnan(expected))) continue;
        int64_t ld = t->n + t->c_padding;
        fail_msg("%s: %s%s by %s x %s%s%s by %s -> %s, %dx%dx%d: c[%d,%d] is %a, expected %a", on->name,
                 dtype_name(t->a.format), t->a.transposed ? "^T" : "", granularity_name(t->a.grain),
                 dtype_name(t->b.format), t->b.transposed ? "^T" : "", t->b.packed ? " packed" : "",
                 granularity_name(t->b.grain), dtype_name(t->c), (int)t->m, (int)t->n, (int)t->k,
                 (int)(i / ld), (int)(i % ld), (double)found, (double)expected);
    }
}

static void check(const gemm_case *t) {
    gemm_data d = make(t);
    operand a = use_operand(&t->a, d.a, t->m, t->k, d.scale_inv_a),
            b = use_operand(&t->b, d.b, t->n, t->k, d.scale_inv_b);
    reference_operand ra = use_reference(&a), rb = use_reference(&b);
    tensor bias = tensor_vector(d.bias, OTT_F32, t->n), c = tensor_matrix(d.c, t->c, t->m, t->n);
    c.ld += t->c_padding;
    memcpy(d.c_expected, d.c_before, (size_t)d.c_bytes);
    reference_gemm(t->m, t->n, t->k, &ra, &rb, &t->spec, t->bias ? d.bias : NULL, t->accumulate, d.c_expected,
                   t->c, c.ld);
    for (int i = 0; i < all.count; i++) {
        exec cx = {.device = all.list[i]};
        operand read = t->b.packed ? pack(&cx, &b) : b;
        memcpy(d.c, d.c_before, (size_t)d.c_bytes);
        ott_status status = op_gemm(&cx, &(gemm_args){.a = &a,
                                                      .b = &read,
                                                      .bias = t->bias ? &bias : NULL,
                                                      .c = &c,
                                                      .accumulate = t->accumulate,
                                                      .spec = t->spec});
        if (status != OTT_OK) fail_msg("%s: %s", all.list[i]->name, status_text());
        assert_same(t, &d, all.list[i]);
        if (t->b.packed) free(read.t.data);
    }
    discard(&d);
}

/* Granularities of A's and B's scales. Along K both have no blocks, or blocks of the same length. */
static const granularity grains[][2] = {
    {GRANULARITY_TENSOR, GRANULARITY_TENSOR}, {GRANULARITY_TENSOR, GRANULARITY_ROW},
    {GRANULARITY_ROW, GRANULARITY_TENSOR},    {GRANULARITY_ROW, GRANULARITY_ROW},
    {GRANULARITY_1X128, GRANULARITY_1X128},   {GRANULARITY_1X128, GRANULARITY_128X128},
    {GRANULARITY_128X128, GRANULARITY_1X128}, {GRANULARITY_128X128, GRANULARITY_128X128},
    {GRANULARITY_1X32, GRANULARITY_1X32}};
enum { GRAIN_PAIRS = sizeof grains / sizeof grains[0], FIRST_BLOCKS = 4 };

static void set_grains(gemm_case *t, int64_t pair) {
    use *uses[] = {&t->a, &t->b};
    for (int i = 0; i < 2; i++) {
        uses[i]->grain = grains[pair][i];
        uses[i]->turned = grains[pair][i] == GRANULARITY_128X128 && pick(2);
    }
}

/* Makes a case of this shape and these formats. Everything else is random. */
static gemm_case some_case(int64_t m, int64_t n, int64_t k, ott_dtype a, ott_dtype b) {
    const ott_dtype results[] = {OTT_F32, OTT_BF16, OTT_F16};
    gemm_case t = {
        .m = m,
        .n = n,
        .k = k,
        .a = {.format = a, .transposed = pick(2), .padding = (int)pick(2) * 5, .scaled = pick(4) > 0},
        .b = {.format = b, .transposed = pick(2), .padding = (int)pick(2) * 3, .scaled = pick(4) > 0},
        .c = results[pick(3)],
        .c_padding = (int)pick(2) * 7,
        .spec = {.accumulate = pick(2) ? ACCUMULATE_FP32 : ACCUMULATE_TILE32,
                 .fast_accumulate = pick(2),
                 .order = pick(2) ? SCALE_PRODUCT : SCALE_A_THEN_B},
        .bias = pick(2),
        .accumulate = pick(2),
        .values = (values)pick(VALUES_KINDS),
    };
    set_grains(&t, pick(GRAIN_PAIRS));
    return t;
}

static const ott_dtype formats[] = {OTT_E4M3, OTT_E5M2, OTT_BF16, OTT_F16, OTT_F32};

static void every_format_pair_and_orientation(void **state) {
    (void)state;
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++)
            for (int orientation = 0; orientation < 4; orientation++)
                for (int v = 0; v < VALUES_KINDS; v++) {
                    gemm_case t = some_case(17, 35, 50, formats[a], formats[b]);
                    t.a.transposed = orientation & 1;
                    t.b.transposed = orientation >> 1;
                    t.values = (values)v;
                    check(&t);
                }
}

static void shapes_around_tiles_and_vectors(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 2, 3, 5, 6, 7, 13, 14, 15, 16, 17, 28, 31, 32, 33, 48, 64, 65, 100, 257};
    const int count = sizeof sizes / sizeof sizes[0];
    for (int i = 0; i < 300; i++) {
        gemm_case t = some_case(sizes[pick(count)], sizes[pick(count)], sizes[pick(count)], formats[pick(5)],
                                formats[pick(5)]);
        if (t.m * t.n * t.k < 500000) check(&t);
    }
}

/* Tests sizes above the packed block sizes: 1024 of the contraction, 168 and 1008 of A's rows, 512 of B's. */
static void shapes_beyond_the_blocks(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{15, 33, 1024}, {14, 32, 1025}, {3, 17, 2100}, {29, 7, 3100},
                                 {170, 40, 30},  {169, 5, 1030}, {1009, 3, 20}, {1020, 1, 1100},
                                 {2, 513, 40},   {5, 530, 1040}, {340, 520, 3}, {1, 16400, 20},
                                 {1, 15900, 33}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int repeat = 0; repeat < 4; repeat++) {
            gemm_case t =
                some_case(shapes[i][0], shapes[i][1], shapes[i][2], formats[pick(5)], formats[pick(5)]);
            t.a.transposed = repeat & 1;
            t.b.transposed = repeat >> 1;
            check(&t);
        }
}

/* Dot-product instructions treat subnormal numbers as 0. Tiles of C with such sums must not use them. */
static void sums_around_the_smallest_normal_number(void **state) {
    (void)state;
    const int64_t shapes[][3] = {
        {33, 70, 64}, {30, 40, 2100}, {15, 33, 4200}, {60, 100, 1501}, {3, 130, 777}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int repeat = 0; repeat < 8; repeat++) {
            gemm_case t = some_case(shapes[i][0], shapes[i][1], shapes[i][2], OTT_BF16, OTT_BF16);
            t.a.transposed = repeat & 1;
            t.b.transposed = repeat >> 1 & 1;
            t.b.packed = repeat >> 2 && !t.b.transposed;
            t.a.scaled = t.b.scaled = t.bias = t.accumulate = false;
            t.c = OTT_F32;
            t.values = VALUES_NEARLY_SUBNORMAL;
            check(&t);
        }
}

/* Tests shapes that several threads divide. A thread's share may end inside a tile. */
static void shapes_that_are_shared(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{100, 100, 64}, {257, 33, 100}, {31, 257, 80},
                                 {64, 64, 150},  {1, 700, 800},  {700, 1, 800}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int repeat = 0; repeat < 6; repeat++) {
            gemm_case t =
                some_case(shapes[i][0], shapes[i][1], shapes[i][2], formats[pick(5)], formats[pick(5)]);
            check(&t);
        }
}

static void every_scale_order_bias_and_accumulation(void **state) {
    (void)state;
    for (int i = 0; i < GRAIN_PAIRS * 4 * 2 * 2 * 2 * 3; i++) {
        const ott_dtype results[] = {OTT_F32, OTT_BF16, OTT_F16};
        gemm_case t = some_case(15, 34, 20, OTT_E4M3, OTT_E5M2);
        int rest = i;
        set_grains(&t, rest % GRAIN_PAIRS), rest /= GRAIN_PAIRS;
        t.a.scaled = rest % 2, rest /= 2;
        t.b.scaled = rest % 2, rest /= 2;
        t.spec.order = rest % 2 ? SCALE_PRODUCT : SCALE_A_THEN_B, rest /= 2;
        t.bias = rest % 2, rest /= 2;
        t.accumulate = rest % 2, rest /= 2;
        t.c = results[rest % 3];
        t.values = VALUES_NORMAL;
        check(&t);
    }
}

/* Tests every pair of block scales in every orientation, contractions with and without an incomplete block,
   and contractions of one and of several packed blocks. */
static void block_scales(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{15, 33, 128}, {17, 65, 31},  {31, 30, 257}, {300, 9, 129},
                                 {9, 300, 96},  {3, 40, 1153}, {16, 1, 2080}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int pair = FIRST_BLOCKS; pair < GRAIN_PAIRS; pair++)
            for (int repeat = 0; repeat < 8; repeat++) {
                gemm_case t =
                    some_case(shapes[i][0], shapes[i][1], shapes[i][2], formats[pick(2)], formats[pick(2)]);
                set_grains(&t, pair);
                t.a.transposed = repeat & 1;
                t.b.transposed = repeat >> 1 & 1;
                t.spec.order = repeat >> 2 ? SCALE_PRODUCT : SCALE_A_THEN_B;
                check(&t);
            }
}

/* ---- packed rows ---- */

static gemm_case some_packed_case(int64_t m, int64_t n, int64_t k, ott_dtype a, ott_dtype b) {
    gemm_case t = some_case(m, n, k, a, b);
    t.a.transposed = pick(8) == 0;
    t.b.transposed = false;
    t.b.packed = true;
    return t;
}

/* Tests packed B with up to 16 rows of A, which have a kernel of their own, and with more rows. Tests all
   pairs of formats and every kind of values. */
static void packed_rows_of_every_format(void **state) {
    (void)state;
    const int64_t mn[] = {1, 3, 63, 64, 65, 100, 128, 150}, depths[] = {0, 1, 2, 15, 32, 50, 129};
    for (int64_t m = 1; m <= 18; m++)
        for (int a = 0; a < 5; a++)
            for (int b = 0; b < 5; b++) {
                gemm_case t = some_packed_case(m, mn[pick(8)], depths[pick(7)], formats[a], formats[b]);
                for (int v = 0; v < VALUES_KINDS; v++) {
                    t.values = (values)v;
                    check(&t);
                }
            }
}

/* Tests packed B in shapes that several threads divide, and that are larger than one packed block. */
static void packed_rows_of_large_shapes(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 700, 800},  {1, 65, 8200}, {4, 513, 300},  {16, 520, 70}, {2, 300, 1030},
                                 {1, 16400, 33}, {40, 530, 70}, {20, 40, 2100}, {300, 70, 40}, {7, 1200, 90}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int b = 0; b < 5; b++) {
            ott_dtype a = b < 2 ? formats[pick(2)] : formats[2 + pick(3)];
            gemm_case t = some_packed_case(shapes[i][0], shapes[i][1], shapes[i][2], a, formats[b]);
            check(&t);
        }
}

static void packed_rows_with_every_scale(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 64, 128}, {1, 200, 257}, {2, 129, 31},  {5, 70, 160},
                                 {9, 40, 96},  {16, 65, 300}, {17, 65, 129}, {1, 130, 1153}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int pair = 0; pair < GRAIN_PAIRS; pair++)
            for (int repeat = 0; repeat < 8; repeat++) {
                gemm_case t = some_packed_case(shapes[i][0], shapes[i][1], shapes[i][2], formats[pick(2)],
                                               formats[repeat & 1]);
                set_grains(&t, pair);
                t.b.scaled = repeat >> 1 & 1;
                t.spec.order = repeat >> 2 ? SCALE_PRODUCT : SCALE_A_THEN_B;
                check(&t);
            }
}

static void packed_rows_in_the_tensor_core(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 70, 100}, {3, 17, 300}, {14, 64, 128}, {20, 65, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int repeat = 0; repeat < 8; repeat++) {
            gemm_case t = some_packed_case(shapes[i][0], shapes[i][1], shapes[i][2], formats[repeat & 1],
                                           formats[repeat >> 1 & 1]);
            t.spec.accumulate = repeat >> 2 & 1 ? ACCUMULATE_HOPPER_FAST : ACCUMULATE_HOPPER_SPLIT;
            check(&t);
        }
}

static void refuses_to_pack_what_it_cannot_read(void **state) {
    (void)state;
    float x[2 * 64 * 3] = {0}, c[4];
    exec cx = {.device = all.list[0]};
    operand plain = {.t = tensor_matrix(x, OTT_F32, 2, 3)}, packed = plain;
    tensor tc = tensor_matrix(c, OTT_F32, 2, 2);
    packed.packed = true;
    assert_int_equal(op_gemm(&cx, &(gemm_args){.a = &packed, .b = &plain, .c = &tc}), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "a is packed"));
    packed.transposed = true;
    packed.t = tensor_matrix(x, OTT_F32, 3, 2);
    assert_int_equal(op_gemm(&cx, &(gemm_args){.a = &plain, .b = &packed, .c = &tc}), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "transposed"));
    tensor to = tensor_vector(x, OTT_F32, op_packed_count(&cx, &plain));
    packed.packed = false;
    assert_int_equal(op_pack(&cx, &(pack_args){.b = &packed, .y = &to}), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "b is transposed"));
    to.columns--;
    assert_int_equal(op_pack(&cx, &(pack_args){.b = &plain, .y = &to}), OTT_ERR_INTERNAL);
}

static void refuses_blocks_that_differ(void **state) {
    (void)state;
    uint8_t a[4] = {0};
    float c[4], one = 1.0f;
    operand left = {.t = tensor_matrix(a, OTT_E4M3, 2, 2), .grain = GRANULARITY_1X128, .scale_inv = &one},
            right;
    right = left;
    tensor tc = tensor_matrix(c, OTT_F32, 2, 2);
    exec cx = {.device = all.list[0]};
    const granularity others[] = {GRANULARITY_1X32, GRANULARITY_ROW, GRANULARITY_TENSOR};
    for (int i = 0; i < 3; i++) {
        right.grain = others[i];
        assert_int_equal(op_gemm(&cx, &(gemm_args){.a = &left, .b = &right, .c = &tc}), OTT_ERR_UNSUPPORTED);
        assert_non_null(strstr(status_text(), "1x128"));
        assert_non_null(strstr(status_text(), granularity_name(others[i])));
    }
}

/* A sum begins with +0, so it cannot become -0. Only multiplication by a scale can give -0. */
static void zeros_keep_their_sign_as_the_reference_says(void **state) {
    (void)state;
    float a[4] = {-0.0f, 0.0f, -0.0f, 1.0f}, b[4] = {1.0f, -1.0f, 0.0f, -0.0f}, minus = -1.0f;
    float expected, found;
    operand oa = {.t = tensor_matrix(a, OTT_F32, 1, 4), .scale_inv = &minus},
            ob = {.t = tensor_matrix(b, OTT_F32, 1, 4)};
    reference_operand ra = use_reference(&oa), rb = use_reference(&ob);
    gemm_spec spec = {.accumulate = ACCUMULATE_FP32};
    reference_gemm(1, 1, 4, &ra, &rb, &spec, NULL, false, &expected, OTT_F32, 1);
    assert_int_equal(fmath_bits(expected), 0x80000000u);
    tensor c = tensor_matrix(&found, OTT_F32, 1, 1);
    for (int i = 0; i < all.count; i++) {
        exec cx = {.device = all.list[i]};
        found = 7.0f;
        assert_int_equal(op_gemm(&cx, &(gemm_args){.a = &oa, .b = &ob, .c = &c, .spec = spec}), OTT_OK);
        assert_int_equal(fmath_bits(found), fmath_bits(expected));
    }
}

static void tensor_core_accumulation(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 1, 1}, {15, 33, 100}, {3, 17, 300},  {14, 32, 128},
                                 {2, 2, 0}, {30, 5, 257},  {2, 20, 2200}, {40, 3, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int repeat = 0; repeat < 16; repeat++) {
            gemm_case t =
                some_case(shapes[i][0], shapes[i][1], shapes[i][2], formats[pick(2)], formats[pick(2)]);
            t.a.transposed = repeat & 1;
            t.b.transposed = repeat >> 1 & 1;
            t.spec.accumulate = repeat >> 2 & 1 ? ACCUMULATE_HOPPER_FAST : ACCUMULATE_HOPPER_SPLIT;
            check(&t);
        }
}

/* Tests tensor-core sums of terms and accumulators of every magnitude that a format has. Normally distributed
   numbers would not have all magnitudes. Small terms lose bits when they are added to large terms. */
static void tensor_core_sums_of_all_magnitudes(void **state) {
    (void)state;
    for (int f = 0; f < 4; f++)
        for (int mode = ACCUMULATE_HOPPER_FAST; mode <= ACCUMULATE_HOPPER_SPLIT; mode++) {
            gemm_case t = some_case(16, 64, 160, formats[f & 1], formats[f >> 1]);
            t.a.scaled = t.b.scaled = t.bias = t.accumulate = false;
            t.c = OTT_F32;
            t.spec.accumulate = (accumulate_mode)mode;
            t.values = VALUES_ANY_FINITE;
            check(&t);
        }
}

static void tensor_core_accumulation_is_for_fp8_only(void **state) {
    (void)state;
    uint16_t a[4] = {0}, c[4] = {0};
    operand oa = {.t = tensor_matrix(a, OTT_BF16, 2, 2)};
    tensor tc = tensor_matrix(c, OTT_BF16, 2, 2);
    exec cx = {.device = all.list[0]};
    gemm_args args = {.a = &oa, .b = &oa, .c = &tc, .spec = {.accumulate = ACCUMULATE_HOPPER_FAST}};
    assert_int_equal(op_gemm(&cx, &args), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "bf16"));
}

/* Tests contractions that end at each position within a tile of 32 terms. */
static void incomplete_tiles_of_32(void **state) {
    (void)state;
    for (int64_t k = 0; k <= 66; k++)
        for (int repeat = 0; repeat < 8; repeat++) {
            const ott_dtype d = formats[pick(5)];
            gemm_case t = some_case(17, 35, k, d, dtype_is_fp8(d) ? formats[pick(2)] : d);
            t.a.transposed = repeat & 1;
            t.b.transposed = repeat >> 1 & 1;
            t.b.packed = repeat >> 2 && !t.b.transposed;
            t.m = t.b.packed && pick(2) ? 3 : 17;
            t.spec.accumulate = ACCUMULATE_TILE32;
            check(&t);
        }
}

static int setup(void **state) {
    (void)state;
    all = devices_open();
    devices_add_tiles(&all);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    devices_close(&all);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_pair_and_orientation),
        cmocka_unit_test(shapes_around_tiles_and_vectors),
        cmocka_unit_test(shapes_beyond_the_blocks),
        cmocka_unit_test(shapes_that_are_shared),
        cmocka_unit_test(sums_around_the_smallest_normal_number),
        cmocka_unit_test(every_scale_order_bias_and_accumulation),
        cmocka_unit_test(block_scales),
        cmocka_unit_test(packed_rows_of_every_format),
        cmocka_unit_test(packed_rows_of_large_shapes),
        cmocka_unit_test(packed_rows_with_every_scale),
        cmocka_unit_test(packed_rows_in_the_tensor_core),
        cmocka_unit_test(refuses_to_pack_what_it_cannot_read),
        cmocka_unit_test(refuses_blocks_that_differ),
        cmocka_unit_test(zeros_keep_their_sign_as_the_reference_says),
        cmocka_unit_test(incomplete_tiles_of_32),
        cmocka_unit_test(tensor_core_accumulation),
        cmocka_unit_test(tensor_core_sums_of_all_magnitudes),
        cmocka_unit_test(tensor_core_accumulation_is_for_fp8_only),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
