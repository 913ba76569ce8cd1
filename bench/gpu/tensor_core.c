/*
 * bench/gpu/tensor_core: compares Hopper's FP8 tensor cores bit by bit with the model in
 * src/fp8/tensorcore.h.
 *
 * First it finds the layout of the operands, by products of small integers. Then it compares single
 * instructions with the model and with other rules (tensor_core_rules.h), for all kinds of operands and
 * accumulators. Then it compares contractions along K, "fast" (one accumulator) and "split" (a new
 * accumulator every 128 elements), and measures their errors against float64. The exit status is 1 if no
 * layout gives right products, or if any result differs from the model.
 *
 * With --out FILE, FILE.vectors has all single instructions. It begins with "OTTTCV01". For each tile of 64 x
 * 8 results it has four bytes (formats of a and b: 0 E4M3, 1 E5M2; kind of operands and kind of accumulators,
 * as numbered in tensor_core_cases.c), codes a [64,32] and b [8,32], accumulators c [64,8] and results d
 * [64,8] as little-endian fp32.
 */
#include "fp8/cast.h"
#include "fp8/tensorcore.h"
#include "gpu.h"
#include "tensor_core_cases.h"
#include "tensor_core_rules.h"
#include "wgmma.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OUTPUTS = WGMMA_ROWS * WGMMA_COLUMNS, SHOWN = 3, SHOWN_K = 256, RULES_MAX = 64 };
enum { INSTRUCTION_TILES = 2, CHAIN_TILES = 8 };

static const ott_dtype formats[] = {OTT_E4M3, OTT_E5M2};
static const wgmma_layout layouts[] = {{128, 256}, {256, 128}};

typedef struct bench {
    gpu g;
    wgmma_layout layout;
    FILE *vectors; /* the file FILE.vectors; NULL without --out */
    /* finite: number of finite results of single instructions; missed: those that differ from the model */
    int64_t finite, missed;
    /* number of results for which rules[0], the model, differs from fp8/tensorcore: must be 0 */
    int64_t unlike;
    int64_t explained[RULES_MAX]; /* for each rule: number of finite results that equal the rule's */
    /* for each rule: number of finite results that equal the rule's but not the model's */
    int64_t explained_missed[RULES_MAX];
    bool failed;
} bench;

/* Products in host memory: the operands and results of a wgmma_batch. Owns its arrays. */
typedef struct products {
    ott_dtype da, db;
    int64_t k, tiles;
    bool split;
    uint8_t *a, *b;
    float *c, *d;
} products;

/* ---- running ---- */

static int64_t outputs(const products *p) {
    return p->tiles * OUTPUTS;
}
static int64_t bytes_of_a(const products *p) {
    return p->tiles * WGMMA_ROWS * p->k;
}
static int64_t bytes_of_b(const products *p) {
    return p->tiles * WGMMA_COLUMNS * p->k;
}
static int64_t bytes_of_c(const products *p) {
    return outputs(p) * (int64_t)sizeof(float);
}

/* Allocates products. Their accumulators are zero. */
static products open_products(ott_dtype da, ott_dtype db, int64_t k, int64_t tiles) {
    products p = {.da = da, .db = db, .k = k, .tiles = tiles};
    p.a = gpu_host_alloc((size_t)bytes_of_a(&p));
    p.b = gpu_host_alloc((size_t)bytes_of_b(&p));
    p.c = gpu_host_alloc((size_t)bytes_of_c(&p));
    p.d = gpu_host_alloc((size_t)bytes_of_c(&p));
    return p;
}

static void close_products(products *p) {
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->d);
}

static void *to_device(gpu *g, const void *host, int64_t bytes) {
    void *device = gpu_alloc((size_t)bytes);
    gpu_write(g, device, host, (size_t)bytes);
    return device;
}

static void run(gpu *g, wgmma_layout layout, products *p) {
    void *a = to_device(g, p->a, bytes_of_a(p)), *b = to_device(g, p->b, bytes_of_b(p));
    void *c = to_device(g, p->c, bytes_of_c(p)), *d = gpu_alloc((size_t)bytes_of_c(p));
    gpu_poison(g, d, (size_t)bytes_of_c(p));
    wgmma_batch batch = {p->da, p->db, p->k, p->tiles, p->split, layout, a, b, c, d};
    GPU_CHECK(wgmma_multiply(&batch, g->stream));
    gpu_read(g, p->d, d, (size_t)bytes_of_c(p));
    gpu_free(a);
    gpu_free(b);
    gpu_free(c);
    gpu_free(d);
}

/* The row of A and the row of B whose product is result i. */
static const uint8_t *row_of_a(const products *p, int64_t i) {
    return p->a + i / WGMMA_COLUMNS * p->k;
}
static const uint8_t *row_of_b(const products *p, int64_t i) {
    return p->b + (i / OUTPUTS * WGMMA_COLUMNS + i % WGMMA_COLUMNS) * p->k;
}

/* ---- results ---- */

static bool same(float x, float y) {
    return fmath_bits(x) == fmath_bits(y) || (isnan(x) && isnan(y));
}

static void result_formats(gpu *g, const products *p) {
    char text[32];
    snprintf(text, sizeof text, "%sx%s", dtype_safetensors_name(p->da) + 3,
             dtype_safetensors_name(p->db) + 3);
    result_text(g, "formats", text);
}

static void result_bits(gpu *g, const char *key, float x) {
    char text[16];
    snprintf(text, sizeof text, "%08x", fmath_bits(x));
    result_text(g, key, text);
}

static void result_codes(gpu *g, const char *key, const uint8_t *codes, int64_t count) {
    char text[2 * SHOWN_K + 1] = "";
    for (int64_t i = 0; i < count; i++) snprintf(text + 2 * i, 3, "%02x", codes[i]);
    result_text(g, key, text);
}

/* Writes a wrong result as a JSON line. The line includes the operands if K is small enough. */
static void report_mismatch(gpu *g, const char *name, const products *p, int64_t i, float expected) {
    result_begin(g);
    result_text(g, "case", "mismatch");
    result_text(g, "of", name);
    result_formats(g, p);
    result_text(g, "mode", p->split ? "split" : "fast");
    result_int(g, "K", p->k);
    result_int(g, "index", i);
    if (p->k <= SHOWN_K) {
        result_codes(g, "a", row_of_a(p, i), p->k);
        result_codes(g, "b", row_of_b(p, i), p->k);
    }
    result_bits(g, "c", p->c[i]);
    result_bits(g, "got", p->d[i]);
    result_bits(g, "expected", expected);
    result_end(g);
    printf("  %s, result %lld: c %a, got %a (%08x), expected %a (%08x)\n", name, (long long)i,
           (double)p->c[i], (double)p->d[i], fmath_bits(p->d[i]), (double)expected, fmath_bits(expected));
}

/* ---- the layout ---- */

/* Makes operands of small integers. Sums of their products are exact under all rules. */
static products integer_products(ott_dtype da, ott_dtype db) {
    products p = open_products(da, db, WGMMA_PRODUCTS, 2);
    case_integers(1, da, bytes_of_a(&p), p.a);
    case_integers(2, db, bytes_of_b(&p), p.b);
    for (int64_t i = 0; i < outputs(&p); i++) p.c[i] = (float)(i % OUTPUTS);
    return p;
}

static float integer_sum(const products *p, int64_t i) {
    float sum = p->c[i];
    for (int64_t k = 0; k < p->k; k++)
        sum += cast_from_fp8(row_of_a(p, i)[k], p->da) * cast_from_fp8(row_of_b(p, i)[k], p->db);
    return sum;
}

static int64_t layout_mismatches(gpu *g, wgmma_layout layout, products *p) {
    int64_t wrong = 0;
    run(g, layout, p);
    for (int64_t i = 0; i < outputs(p); i++) wrong += p->d[i] != integer_sum(p, i);
    result_begin(g);
    result_text(g, "case", "layout");
    result_formats(g, p);
    result_int(g, "leading_bytes", layout.leading);
    result_int(g, "stride_bytes", layout.stride);
    result_int(g, "vectors", outputs(p));
    result_int(g, "mismatches", wrong);
    for (int64_t i = 0; wrong && i < OUTPUTS; i += WGMMA_COLUMNS) {
        char key[16], text[256] = "";
        snprintf(key, sizeof key, "row%lld", (long long)i / WGMMA_COLUMNS);
        for (int n = 0; n < WGMMA_COLUMNS; n++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%g ", (double)p->d[i + n]);
        result_text(g, key, text);
    }
    result_end(g);
    return wrong;
}

/* True if products of integers are exact for all four pairs of formats. */
static bool layout_is_right(gpu *g, wgmma_layout layout) {
    int64_t wrong = 0, all = 0;
    for (int pair = 0; pair < 4; pair++) {
        products p = integer_products(formats[pair / 2], formats[pair % 2]);
        wrong += layout_mismatches(g, layout, &p);
        all += outputs(&p);
        close_products(&p);
    }
    printf("layout: leading offset %u, stride offset %u: %lld of %lld integer products are wrong\n",
           layout.leading, layout.stride, (long long)wrong, (long long)all);
    return wrong == 0;
}

static bool find_layout(bench *b) {
    bool found = false;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!layout_is_right(&b->g, layouts[i]) || found) continue;
        b->layout = layouts[i];
        found = true;
    }
    if (found) return true;
    result_begin(&b->g);
    result_text(&b->g, "case", "layout");
    result_text(&b->g, "status", "no layout gives the products of small integers");
    result_end(&b->g);
    printf("no layout gives the products of small integers: nothing else is measured\n");
    return false;
}

/* ---- single instructions ---- */

static float expected_step(const products *p, int64_t i) {
    return tensorcore_fp8_step(row_of_a(p, i), p->da, row_of_b(p, i), p->db, WGMMA_PRODUCTS, p->c[i]);
}

/* Adds result i to the counts of all rules with the same result; sets explains[r] to false for the others. */
static void score_rules(bench *b, const products *p, int64_t i, float expected, bool *explains) {
    bool missed = !same(p->d[i], expected);
    b->finite++;
    b->missed += missed;
    for (int r = 0; r < rule_count; r++) {
        float by_rule = rule_step(&rules[r], row_of_a(p, i), p->da, row_of_b(p, i), p->db, p->c[i]);
        bool explained = same(p->d[i], by_rule);
        if (r == 0) b->unlike += !same(by_rule, expected);
        b->explained[r] += explained;
        b->explained_missed[r] += explained && missed;
        if (!explained) explains[r] = false;
    }
}

static void write_vectors(bench *b, const products *p, int operands, int accumulators) {
    if (!b->vectors) return;
    uint8_t head[] = {p->da == OTT_E5M2, p->db == OTT_E5M2, (uint8_t)operands, (uint8_t)accumulators};
    for (int64_t t = 0; t < p->tiles; t++) {
        fwrite(head, sizeof head, 1, b->vectors);
        fwrite(p->a + t * WGMMA_ROWS * p->k, (size_t)(WGMMA_ROWS * p->k), 1, b->vectors);
        fwrite(p->b + t * WGMMA_COLUMNS * p->k, (size_t)(WGMMA_COLUMNS * p->k), 1, b->vectors);
        fwrite(p->c + t * OUTPUTS, sizeof(float), OUTPUTS, b->vectors);
        fwrite(p->d + t * OUTPUTS, sizeof(float), OUTPUTS, b->vectors);
    }
}

/* Writes the names of the rules that agree with every result of a case. */
static void result_rules(gpu *g, const bool *explains) {
    char text[1024] = "";
    for (int r = 0; r < rule_count; r++)
        if (explains[r])
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? "; " : "",
                     rules[r].name);
    result_text(g, "explained_by", text);
}

/* Results of single instructions with one kind of operands and one kind of accumulators. */
typedef struct instruction_result {
    const char *operands, *accumulators;
    int64_t mismatches, odd_nans;
    bool explains[RULES_MAX];
} instruction_result;

static void report_instructions(gpu *g, const products *p, const instruction_result *r) {
    result_begin(g);
    result_text(g, "case", "instruction");
    result_text(g, "operands", r->operands);
    result_text(g, "accumulator", r->accumulators);
    result_formats(g, p);
    result_int(g, "K", p->k);
    result_int(g, "vectors", outputs(p));
    result_int(g, "mismatches", r->mismatches);
    result_int(g, "nans_not_7fffffff", r->odd_nans);
    result_rules(g, r->explains);
    result_end(g);
}

static int64_t instruction_case(bench *b, products *p, int operands, int accumulators) {
    for (int64_t t = 0; t < p->tiles; t++)
        case_tile(operands, accumulators, (int)t, p->da, p->db, p->a + t * WGMMA_ROWS * p->k,
                  p->b + t * WGMMA_COLUMNS * p->k, p->c + t * OUTPUTS);
    run(&b->g, b->layout, p);
    write_vectors(b, p, operands, accumulators);

    instruction_result r = {operand_kinds[operands], accumulator_kinds[accumulators], 0, 0, {false}};
    memset(r.explains, true, sizeof r.explains);
    char name[64];
    snprintf(name, sizeof name, "%s, accumulator %s", r.operands, r.accumulators);
    for (int64_t i = 0; i < outputs(p); i++) {
        float expected = expected_step(p, i);
        r.odd_nans += isnan(p->d[i]) && fmath_bits(p->d[i]) != 0x7fffffffu;
        if (!same(p->d[i], expected) && r.mismatches++ < SHOWN) report_mismatch(&b->g, name, p, i, expected);
        if (isfinite(expected)) score_rules(b, p, i, expected, r.explains);
    }
    report_instructions(&b->g, p, &r);
    return r.mismatches;
}

static void all_instructions(bench *b, ott_dtype da, ott_dtype db) {
    products p = open_products(da, db, WGMMA_PRODUCTS, b->g.tiny ? 1 : INSTRUCTION_TILES);
    for (int o = 0; o < operand_kind_count; o++) {
        int64_t wrong = 0;
        for (int a = 0; a < accumulator_kind_count; a++) wrong += instruction_case(b, &p, o, a);
        printf("%s x %s, one instruction, operands %s: %lld of %lld differ from the model\n", dtype_name(da),
               dtype_name(db), operand_kinds[o], (long long)wrong,
               (long long)(accumulator_kind_count * outputs(&p)));
        b->failed |= wrong > 0;
    }
    close_products(&p);
}

static void report_rules(bench *b) {
    printf("rules, with their parts of %lld finite results and of %lld that differ from the model:\n",
           (long long)b->finite, (long long)b->missed);
    for (int r = 0; r < rule_count; r++) {
        result_begin(&b->g);
        result_text(&b->g, "case", "hypothesis");
        result_text(&b->g, "rule", rules[r].name);
        result_int(&b->g, "vectors", b->finite);
        result_int(&b->g, "explained", b->explained[r]);
        result_int(&b->g, "mismatches", b->missed);
        result_int(&b->g, "mismatches_explained", b->explained_missed[r]);
        result_end(&b->g);
        printf("  %-40s %lld, %lld\n", rules[r].name, (long long)b->explained[r],
               (long long)b->explained_missed[r]);
    }
    if (b->unlike == 0) return;
    fprintf(stderr, "tensor_core: the first rule differs from src/fp8/tensorcore.c in %lld results\n",
            (long long)b->unlike);
    b->failed = true;
}

/* ---- contractions ---- */

static float expected_dot(const products *p, int64_t i) {
    return (p->split ? tensorcore_fp8_dot_split : tensorcore_fp8_dot_fast)(row_of_a(p, i), p->da,
                                                                           row_of_b(p, i), p->db, p->k);
}

static double exact_dot(const products *p, int64_t i) {
    const uint8_t *a = row_of_a(p, i), *b = row_of_b(p, i);
    double sum = 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += (double)cast_from_fp8(a[k], p->da) * (double)cast_from_fp8(b[k], p->db);
    return sum;
}

static void chain_case(bench *b, products *p, const char *data) {
    gpu *g = &b->g;
    run(g, b->layout, p);
    gpu_error measured = {0}, model = {0};
    int64_t wrong = 0;
    for (int64_t i = 0; i < outputs(p); i++) {
        float expected = expected_dot(p, i);
        double exact = exact_dot(p, i);
        gpu_error_add(&measured, (double)p->d[i], exact);
        gpu_error_add(&model, (double)expected, exact);
        if (!same(p->d[i], expected) && wrong++ < SHOWN) report_mismatch(g, data, p, i, expected);
    }
    const char *mode = p->split ? "split" : "fast";
    result_begin(g);
    result_text(g, "case", "contraction");
    result_text(g, "data", data);
    result_formats(g, p);
    result_text(g, "mode", mode);
    result_int(g, "K", p->k);
    result_int(g, "vectors", outputs(p));
    result_int(g, "mismatches", wrong);
    result_number(g, "rms_error", gpu_error_rms(&measured));
    result_number(g, "worst_error", gpu_error_worst(&measured));
    result_number(g, "model_rms_error", gpu_error_rms(&model));
    result_number(g, "model_worst_error", gpu_error_worst(&model));
    result_end(g);
    printf("%s x %s, %s, K %lld, %s: %lld of %lld differ from the model; rms error %.2e, worst %.2e\n",
           dtype_name(p->da), dtype_name(p->db), data, (long long)p->k, mode, (long long)wrong,
           (long long)outputs(p), gpu_error_rms(&measured), gpu_error_worst(&measured));
    b->failed |= wrong > 0;
}

static void all_chains(bench *b, ott_dtype da, ott_dtype db) {
    static const int64_t lengths[] = {32, 64, 96, 128, 160, 256, 512, 1024, 2048, 4096};
    for (size_t n = 0; n < (b->g.tiny ? 6 : sizeof lengths / sizeof *lengths); n++)
        for (int one_sign = 0; one_sign < 2; one_sign++) {
            products p = open_products(da, db, lengths[n], b->g.tiny ? 1 : CHAIN_TILES);
            case_normal(1, one_sign, da, bytes_of_a(&p), p.a);
            case_normal(2, one_sign, db, bytes_of_b(&p), p.b);
            for (int split = 0; split < 2; split++) {
                p.split = split;
                chain_case(b, &p, one_sign ? "one sign" : "normal");
            }
            close_products(&p);
        }
}

/* ---- the program ---- */

static FILE *open_vectors(const char *out) {
    if (!out) return NULL;
    char name[4096];
    if (snprintf(name, sizeof name, "%s.vectors", out) >= (int)sizeof name) {
        fprintf(stderr, "tensor_core: --out's name is longer than 4087 characters\n");
        exit(2);
    }
    FILE *f = fopen(name, "wb");
    if (!f) {
        perror(name);
        exit(2);
    }
    fwrite("OTTTCV01", 8, 1, f);
    return f;
}

static void close_vectors(FILE *f) {
    if (!f) return;
    bool failed = ferror(f);
    if (!fclose(f) && !failed) return;
    fprintf(stderr, "tensor_core: the vectors could not be written: is the disk full?\n");
    exit(1);
}

int main(int argc, char **argv) {
    bench b = {.failed = false};
    gpu_open(&b.g, "tensor_core", argc, argv);
    if (!find_layout(&b)) {
        gpu_close(&b.g);
        return 1;
    }
    b.vectors = open_vectors(b.g.out);
    for (int pair = 0; pair < 4; pair++) all_instructions(&b, formats[pair / 2], formats[pair % 2]);
    close_vectors(b.vectors);
    report_rules(&b);
    for (int pair = 0; pair < 4; pair++) all_chains(&b, formats[pair / 2], formats[pair % 2]);
    gpu_close(&b.g);
    return b.failed ? 1 : 0;
}
