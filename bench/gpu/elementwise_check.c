/* bench/gpu/elementwise_check: implements elementwise_check.h. */
#include "elementwise_check.h"
#include "fp8/reference.h"
#include <stdlib.h>

typedef struct checker {
    gpu *g;
    const kernel_case *c;
    const elementwise_args *a;
    int64_t mismatches;
    gpu_error error;
} checker;

/* Part of a matrix. */
typedef struct region {
    int64_t row, column, rows, columns;
} region;

static void *read_region(const checker *k, const void *device, int64_t element, int64_t ld, region r) {
    void *host = gpu_host_alloc((size_t)(r.rows * r.columns * element));
    const char *from = (const char *)device + (r.row * ld + r.column) * element;
    gpu_read_rows(k->g, host, from, (size_t)(ld * element), (size_t)(r.columns * element), (size_t)r.rows);
    return host;
}

static void *read_array(const checker *k, const void *device, int64_t element, int64_t count) {
    return read_region(k, device, element, count, (region){0, 0, 1, count});
}

/* The first of a case is shown. */
static void expect(checker *k, bool equal, const char *what, int64_t row, int64_t column, double got,
                   double expected) {
    if (equal || k->mismatches++) return;
    fprintf(stderr, "%s, %lld x %lld: %s (%lld, %lld) is %.9g, expected %.9g\n", k->c->name,
            (long long)k->a->rows, (long long)k->a->columns, what, (long long)row, (long long)column, got,
            expected);
}

static bool same_float(float a, float b) {
    return fmath_bits(a) == fmath_bits(b) || (isnan(a) && isnan(b));
}

/* ---- which part is looked at: all of what is small ---- */

enum { PART = 128, SMALL = 1 << 18 };

static int64_t first_of_last(int64_t count) {
    return (count - 1) / PART * PART;
}

/* The last rows, all columns. */
static region last_rows(int64_t rows, int64_t columns) {
    int64_t row = rows * columns <= SMALL ? 0 : first_of_last(rows);
    return (region){row, 0, rows - row, columns};
}

static region last_columns(int64_t rows, int64_t columns) {
    int64_t column = rows * columns <= SMALL ? 0 : first_of_last(columns);
    return (region){0, column, rows, columns - column};
}

/* ---- codes and scales ---- */

/* One side's reference over a region that holds all of the contraction. */
typedef struct side_reference {
    int64_t line_groups, groups;
    float *amax, *scale, *inverse;
    uint8_t *codes; /* as the region lies */
} side_reference;

static side_reference quantize_region(const checker *k, region r, bool column) {
    const kernel_case *c = k->c;
    ott_dtype d = c->source == SOURCE_WEIGHT ? OTT_F32 : OTT_BF16;
    cast_spec spec = {.format = c->format,
                      .grain = c->grain,
                      .scale = c->rule,
                      .policy = c->grain == GRANULARITY_TENSOR ? AMAX_DELAYED : AMAX_CURRENT};
    int64_t lines = column ? r.columns : r.rows, depth = column ? r.rows : r.columns;
    side_reference s = {.line_groups = granularity_mn_groups(c->grain, lines),
                        .groups = granularity_groups(c->grain, lines, depth)};
    s.amax = gpu_host_alloc((size_t)(3 * s.groups * (int64_t)sizeof(float)));
    s.scale = s.amax + s.groups;
    s.inverse = s.scale + s.groups;
    s.codes = gpu_host_alloc((size_t)(r.rows * r.columns));
    if (k->a->scale) gpu_read(k->g, s.scale, k->a->scale, sizeof(float));
    void *x = read_region(k, case_values(c, k->a), dtype_bytes(d), case_value_columns(c, k->a->columns), r);
    reference_quantize(x, d, r.rows, r.columns, r.columns, &spec, column, s.amax, s.scale, s.inverse,
                       s.codes);
    free(x);
    return s;
}

static void check_q(checker *k, region r, const uint8_t *codes) {
    uint8_t *got = read_region(k, k->a->q, 1, case_value_columns(k->c, k->a->columns), r);
    for (int64_t i = 0; i < r.rows * r.columns; i++)
        expect(k, got[i] == codes[i], "q", r.row + i / r.columns, i % r.columns, got[i], codes[i]);
    free(got);
}

static void check_qt(checker *k, region r, const uint8_t *codes) {
    uint8_t *got = read_region(k, k->a->qt, 1, k->a->rows, (region){r.column, 0, r.columns, r.rows});
    for (int64_t j = 0; j < r.columns; j++)
        for (int64_t i = 0; i < r.rows; i++) {
            uint8_t code = got[j * r.rows + i], expected = codes[i * r.columns + j];
            expect(k, code == expected, "qt", r.column + j, i, code, expected);
        }
    free(got);
}

/* `line`: the first of the region's lines, of `lines` in all. */
static void check_inverse(checker *k, const float *inverse, const side_reference *s, int64_t line,
                          int64_t lines) {
    granularity grain = k->c->grain;
    int64_t all = granularity_mn_groups(grain, lines), first = line / granularity_block(grain).mn;
    int64_t blocks = s->groups / s->line_groups;
    float *got = read_array(k, inverse, sizeof(float), blocks * all);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < s->line_groups; i++) {
            float value = got[b * all + first + i], expected = s->inverse[b * s->line_groups + i];
            expect(k, same_float(value, expected), "inverse scale", b, first + i, (double)value,
                   (double)expected);
        }
    free(got);
}

static void check_side(checker *k, bool column) {
    int64_t rows = k->a->rows, columns = case_value_columns(k->c, k->a->columns);
    region r = column ? last_columns(rows, columns) : last_rows(rows, columns);
    side_reference s = quantize_region(k, r, column);
    if (column)
        check_qt(k, r, s.codes);
    else
        check_q(k, r, s.codes);
    if (k->c->grain != GRANULARITY_TENSOR)
        check_inverse(k, column ? k->a->inverse_t : k->a->inverse, &s, column ? r.column : r.row,
                      column ? columns : rows);
    free(s.amax);
    free(s.codes);
}

/* ---- largest magnitudes ---- */

static void check_amax(checker *k) {
    enum { AT_ONCE = 1 << 24 };
    const uint16_t *values = case_values(k->c, k->a);
    int64_t count = k->a->rows * case_value_columns(k->c, k->a->columns);
    uint16_t most = 0;
    for (int64_t at = 0; at < count; at += AT_ONCE) {
        int64_t n = count - at < AT_ONCE ? count - at : AT_ONCE;
        uint16_t *x = read_array(k, values + at, 2, n);
        for (int64_t i = 0; i < n; i++) most = (x[i] & 0x7fff) > most ? x[i] & 0x7fff : most;
        free(x);
    }
    float got;
    gpu_read(k->g, &got, k->a->amax, sizeof got);
    expect(k, same_float(got, cast_from_bf16(most)), "amax", 0, 0, (double)got, (double)cast_from_bf16(most));
}

static void check_column_amax(checker *k) {
    region r = last_columns(k->a->rows, k->a->columns);
    void *x = read_region(k, case_values(k->c, k->a), 2, k->a->columns, r);
    float *got = read_array(k, k->a->column_amax + r.column, sizeof(float), r.columns);
    float *expected = gpu_host_alloc((size_t)(r.columns * (int64_t)sizeof(float)));
    reference_amax_columns(x, OTT_BF16, r.rows, r.columns, r.columns, expected);
    for (int64_t j = 0; j < r.columns; j++)
        expect(k, same_float(got[j], expected[j]), "column amax", 0, r.column + j, (double)got[j],
               (double)expected[j]);
    free(x);
    free(got);
    free(expected);
}

/* ---- what is computed ---- */

static void check_copy(checker *k) {
    region r = last_rows(k->a->rows, k->a->columns);
    uint16_t *x = read_region(k, k->a->x, 2, r.columns, r), *y = read_region(k, k->a->y, 2, r.columns, r);
    for (int64_t i = 0; i < r.rows * r.columns; i++)
        expect(k, y[i] == x[i], "y", r.row + i / r.columns, i % r.columns, y[i], x[i]);
    free(x);
    free(y);
}

/* A result of norm or SwiGLU in bf16. */
static void expect_value(checker *k, const char *what, int64_t row, int64_t column, uint16_t bits,
                         double expected) {
    double got = (double)cast_from_bf16(bits);
    bool finite = isfinite(expected);
    bool same = got == expected || (isnan(got) && isnan(expected));
    bool close = finite && fabs(got - expected) <= 0x1p-8 * fabs(expected) + 0x1p-17;
    expect(k, same || close, what, row, column, got, expected);
    if (finite) gpu_error_add(&k->error, got, expected);
}

/* Row `row` of the matrix; x, second, residual, y are it. */
static void check_norm_row(checker *k, int64_t row, const uint16_t *x, const uint16_t *second,
                           const float *weight, const uint16_t *residual, const uint16_t *y, float rstd) {
    int64_t columns = k->a->columns;
    double squares = 0;
    for (int64_t j = 0; j < columns; j++) {
        uint16_t h = cast_to_bf16(cast_from_bf16(x[j]) + cast_from_bf16(second[j]));
        expect(k, residual[j] == h, "residual", row, j, residual[j], h);
        squares += (double)cast_from_bf16(h) * (double)cast_from_bf16(h);
    }
    double expected = 1 / sqrt(squares / (double)columns + (double)k->a->epsilon);
    bool close = fabs((double)rstd - expected) <= 1e-5 * expected || (isnan(rstd) && isnan(expected));
    expect(k, close, "rstd", row, 0, (double)rstd, expected);
    for (int64_t j = 0; j < columns; j++)
        expect_value(k, "y", row, j, y[j],
                     (double)cast_from_bf16(residual[j]) * expected * (double)weight[j]);
}

static void check_norm(checker *k) {
    const elementwise_args *a = k->a;
    region r = last_rows(a->rows, a->columns);
    uint16_t *x = read_region(k, a->x, 2, r.columns, r), *second = read_region(k, a->second, 2, r.columns, r);
    uint16_t *residual = read_region(k, a->residual, 2, r.columns, r),
             *y = read_region(k, a->y, 2, r.columns, r);
    float *weight = read_array(k, a->weight, 4, r.columns), *rstd = read_array(k, a->rstd + r.row, 4, r.rows);
    for (int64_t i = 0; i < r.rows; i++) {
        int64_t at = i * r.columns;
        check_norm_row(k, r.row + i, x + at, second + at, weight, residual + at, y + at, rstd[i]);
    }
    void *const all[] = {x, second, residual, y, weight, rstd};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static void check_swiglu(checker *k) {
    const elementwise_args *a = k->a;
    int64_t ff = a->columns;
    region r = last_rows(a->rows, ff);
    region pair = {r.row, 0, r.rows, 2 * ff};
    uint16_t *x = read_region(k, a->x, 2, 2 * ff, pair), *y = read_region(k, a->y, 2, ff, r);
    for (int64_t i = 0; i < r.rows; i++)
        for (int64_t j = 0; j < ff; j++) {
            double gate = (double)cast_from_bf16(x[i * 2 * ff + j]);
            double up = (double)cast_from_bf16(x[i * 2 * ff + ff + j]);
            expect_value(k, "y", r.row + i, j, y[i * ff + j], gate * sigmoid(gate) * up);
        }
    free(x);
    free(y);
}

static void check_swiglu_backward(checker *k) {
    const elementwise_args *a = k->a;
    int64_t ff = a->columns;
    region r = last_rows(a->rows, ff);
    region pair = {r.row, 0, r.rows, 2 * ff};
    uint16_t *x = read_region(k, a->x, 2, 2 * ff, pair), *dx = read_region(k, a->y, 2, 2 * ff, pair);
    uint16_t *dy = read_region(k, a->second, 2, ff, r);
    for (int64_t i = 0; i < r.rows; i++)
        for (int64_t j = 0; j < ff; j++) {
            int64_t at = i * 2 * ff + j;
            double gate = (double)cast_from_bf16(x[at]), up = (double)cast_from_bf16(x[at + ff]);
            double g = (double)cast_from_bf16(dy[i * ff + j]), s = sigmoid(gate);
            expect_value(k, "dgate", r.row + i, j, dx[at], g * up * (s * (1 + gate * (1 - s))));
            expect_value(k, "dup", r.row + i, j, dx[at + ff], g * (gate * s));
        }
    free(x);
    free(dx);
    free(dy);
}

/* ---- a case ---- */

/* A fused kernel's codes are compared with those of the bf16 value that the plain kernel writes. */
static cudaError_t make_values(checker *k) {
    static elementwise_kernel *const plain[] = {[SOURCE_X] = NULL,
                                                [SOURCE_WEIGHT] = NULL,
                                                [SOURCE_NORM] = norm_forward,
                                                [SOURCE_SWIGLU] = swiglu_forward,
                                                [SOURCE_SWIGLU_BACKWARD] = swiglu_backward};
    elementwise_kernel *kernel = plain[k->c->source];
    elementwise_args a = *k->a;
    a.amax = NULL;
    return kernel && !(k->c->writes & WRITES_Y) ? kernel(&a, k->g->stream) : cudaSuccess;
}

static void check_values(checker *k) {
    switch (k->c->source) {
    case SOURCE_NORM: check_norm(k); break;
    case SOURCE_SWIGLU: check_swiglu(k); break;
    case SOURCE_SWIGLU_BACKWARD: check_swiglu_backward(k); break;
    case SOURCE_X:
    case SOURCE_WEIGHT:
        if (k->c->writes & WRITES_Y) check_copy(k);
        break;
    }
}

static cudaError_t run_case(checker *k) {
    case_poison(k->g, k->c, k->a);
    cudaError_t status = case_prepare(k->g, k->c, k->a);
    if (status == cudaSuccess) status = case_run(k->g, k->c, k->a);
    return status == cudaSuccess ? make_values(k) : status;
}

void check_case(gpu *g, const kernel_case *c, const elementwise_args *a, case_check *result) {
    checker k = {.g = g, .c = c, .a = a, .mismatches = result->mismatches};
    if (result->status == cudaSuccess) result->status = run_case(&k);
    if (result->status != cudaSuccess) return;
    check_values(&k);
    if (c->writes & WRITES_Q) check_side(&k, false);
    if (c->writes & WRITES_QT) check_side(&k, true);
    if (c->writes & WRITES_AMAX) check_amax(&k);
    if (c->writes & WRITES_COLUMN_AMAX) check_column_amax(&k);
    result->mismatches = k.mismatches;
    result->rel_error = k.error.count ? gpu_error_rms(&k.error) : 0;
}

/* ---- small shapes, special numbers ---- */

typedef enum special { NORMAL, WITH_NAN, WITH_INFINITY, ZEROS, SUBNORMALS, TINY, SPECIALS } special;

static float special_number(special s, float x, bool middle) {
    switch (s) {
    case WITH_NAN: return middle ? NAN : x;
    case WITH_INFINITY: return middle ? -INFINITY : x;
    case ZEROS: return copysignf(0, x);
    case SUBNORMALS: return x * 0x1p-130f; /* of bf16 */
    case TINY: return x * 0x1p-14f;        /* subnormal codes */
    case NORMAL:
    case SPECIALS: break;
    }
    return x;
}

static void write_special(gpu *g, const kernel_case *c, const elementwise_args *a, special s) {
    ott_dtype d = c->source == SOURCE_WEIGHT ? OTT_F32 : OTT_BF16;
    int64_t count = a->rows * a->columns * (c->source >= SOURCE_SWIGLU ? 2 : 1);
    void *x = gpu_host_alloc((size_t)(count * dtype_bytes(d)));
    gpu_read(g, x, a->x, (size_t)(count * dtype_bytes(d)));
    for (int64_t i = 0; i < count; i++)
        cast_store(x, d, i, special_number(s, cast_load(x, d, i), i == count / 2));
    gpu_write(g, (void *)a->x, x, (size_t)(count * dtype_bytes(d)));
    free(x);
}

static void check_shape(gpu *g, const kernel_case *c, int64_t rows, int64_t columns, uint64_t seed, special s,
                        case_check *result) {
    elementwise_args a;
    case_open(g, c, rows, columns, seed, &a);
    if (s != NORMAL) write_special(g, c, &a, s);
    check_case(g, c, &a, result);
    case_close(&a);
}

/* A kernel returns an error for a number of columns that it does not take, and does nothing. */
static void check_refusal(gpu *g, const kernel_case *c, case_check *result) {
    elementwise_args a = {.rows = 16, .columns = 12, .format = c->format, .rule = c->rule};
    if (c->kernel(&a, g->stream) == cudaErrorInvalidValue) return;
    if (!result->mismatches++) fprintf(stderr, "%s takes 12 columns\n", c->name);
}

void check_small(gpu *g, const kernel_case *c, case_check *result) {
    static const struct {
        int64_t rows, columns;
        bool whole_units; /* multiples of 16 */
        special special;
    } tests[] = {{16, 16, true, NORMAL},         {144, 272, true, NORMAL},  {304, 144, true, NORMAL},
                 {3, 24, false, NORMAL},         {37, 2056, false, NORMAL}, {32, 144, true, WITH_NAN},
                 {32, 144, true, WITH_INFINITY}, {32, 144, true, ZEROS},    {32, 144, true, SUBNORMALS},
                 {32, 144, true, TINY}};
    check_refusal(g, c, result);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (tests[i].whole_units || !(c->writes & WRITES_QT))
            check_shape(g, c, tests[i].rows, tests[i].columns, i + 1, tests[i].special, result);
}
