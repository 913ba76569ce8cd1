/*
 * Compares every op of ops.def on every backend with the scalar reference, bit for bit: in each activation
 * format, with odd shapes, and with values from subnormal to NaN. The CPU backend is tested with each
 * instruction set of this machine, on one to three threads, and inside a fence. If the environment names a
 * device (backend/open.h), only this device is tested. The test uses device memory only through copies, and
 * skips ops that a backend does not have. The cases come from the op table. So a new op is tested without
 * further code, or the test names the fixture that the op needs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/op_case.h"
#include "backend/open.h"
#include "cpu/cpu.h"
#include "reference/reference_ops.h"

/* REPEATS: number of cases with different random choices, for each format, shape and kind of values. Slow
   builds (OTT_TEST_PART) and the emulated GPU run every nth case. n has no common factor with the numbers of
   formats, shapes and kinds, so that each format, shape and kind is still tested. */
#ifdef OTT_TEST_PART
static const int thread_counts[] = {3}; /* several threads; one thread count suffices to find memory errors */
enum { EVERY = 5, EVERY_EMULATED = 5 };
#else
static const int thread_counts[] = {1, 3}; /* the device inside the fence has 2 threads */
enum { EVERY = 1, EVERY_EMULATED = 3 };
#endif
enum { THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts, REPEATS = 2 };

static const ott_dtype act_dtypes[] = {OTT_F32, OTT_BF16, OTT_F16};

static struct {
    mem *account;
    case_device reference, devices[CPU_ISAS_MAX * THREAD_COUNTS + 2];
    /* The CPU with ISA "amx_emulated", which runs GEMM cases only. NULL: the CPU cannot emulate it. */
    const case_device *tiles;
    int count;
    op_case c;
} all;

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static void open_device(const char *name, int threads, const char *isa) {
    device *d;
    succeed(test_device_open_named(name, all.account, threads, isa, &d));
    succeed(case_device_open(d, &all.devices[all.count++]));
}

static void open_tiles(void) {
    device *d;
    if (cpu_open(all.account, 3, "amx_emulated", &d) == OTT_ERR_UNSUPPORTED) return;
    if (!d || !cpu_has_tiles(d)) fail_msg("%s", d ? cpu_warning(d) : status_text());
    all.tiles = &all.devices[all.count];
    succeed(case_device_open(d, &all.devices[all.count++]));
}

static int open_devices(void **state) {
    (void)state;
    const char *isas[CPU_ISAS_MAX];
    device *reference;
    succeed(mem_open(&all.account));
    succeed(reference_device_open(all.account, &reference));
    succeed(case_device_open(reference, &all.reference));
    succeed(case_memory_open(all.account, &all.c));
    const char *named = getenv(TEST_DEVICE_VARIABLE);
    if (named && *named) {
        open_device(named, 2, NULL);
        return 0;
    }
    int count = cpu_isas(isas);
    assert_in_range(count, 1, CPU_ISAS_MAX);
    for (int i = 0; i < count; i++)
        for (int t = 0; t < THREAD_COUNTS; t++) open_device(NULL, thread_counts[t], isas[i]);
    open_device("fenced", 2, NULL);
    open_tiles();
    return 0;
}

static int close_devices(void **state) {
    (void)state;
    for (int i = 0; i < all.count; i++) case_device_close(&all.devices[i]);
    case_memory_close(all.account, &all.c);
    case_device_close(&all.reference);
    assert_int_equal(mem_read(all.account).now, 0);
    mem_close(all.account);
    return 0;
}

/* ---- the generated test ---- */

/* Counts launches on the emulated GPU (tests/cuda). NULL in programs that do not link it. */
extern int64_t cudart_launches __attribute__((weak));

static bool is_emulated(void) {
    return &cudart_launches != NULL;
}

static int64_t launches(void) {
    return is_emulated() ? cudart_launches : 0;
}

/* Compares with the reference. GEMMs and attention of a GPU's library are compared with a tolerance, and only
   if the inputs are normal values or zeros. */
static bool compare(op_case *c, const device *d) {
    bool library = strcmp(c->op->name, "gemm") == 0 || strncmp(c->op->name, "attention", 9) == 0;
    if (!library || !test_device_has_own_sums(d)) return case_compare(c);
    return case_compare_within(c, c->values <= VALUES_ZEROS ? 1e-2 : INFINITY);
}

static void run_everywhere(op_case *c) {
    char text[1500];
    case_describe(c, text, sizeof text);
    if (case_expect(c, &all.reference) != OTT_OK) fail_msg("reference: %s: %s", text, status_text());
    for (int i = 0; i < all.count; i++) {
        const case_device *d = &all.devices[i];
        if (case_is_impossible(c, d->device) || (d == all.tiles && !strstr(c->op->name, "gemm"))) continue;
        if (case_run(c, d) != OTT_OK) fail_msg("%s: %s: %s", d->device->name, text, status_text());
        if (!compare(c, d->device)) fail_msg("%s: %s: %s", d->device->name, text, c->message);
    }
}

static bool has_op(const device *d, const op_info *op) {
    for (int i = 0; i < op_count(); i++)
        if (op_at(i) == op) return op_is_there(d->ops, (enum op_index)i);
    return false;
}

static void test_op(void **state) {
    const op_info *op = *state;
    if (fixture_find(op)->opaque) return;
    if (all.count == 1 && !has_op(all.devices[0].device, op)) {
        print_message("SKIPPED: %s has no op %s\n", all.devices[0].device->name, op->name);
        skip();
    }
    const op_field *missing = fixture_missing(op);
    if (missing)
        fail_msg("op %s: field %s needs more than the text \"%s\": set the field in a fixture in "
                 "tests/backend/op_fixture.c",
                 op->name, missing->name, missing->text);
    uint64_t number = 0;
    for (int d = 0; d < case_dtypes(op); d++)
        for (int shape = 0; shape < case_shapes(op); shape++)
            for (int kind = 0; kind < VALUE_KINDS; kind++)
                for (int repeat = 0; repeat < REPEATS; repeat++, number++) {
                    if (number % (is_emulated() ? EVERY_EMULATED : EVERY) != 0) continue;
                    if (!case_make(&all.c, op, act_dtypes[d], shape, (value_kind)kind, number))
                        fail_msg(
                            "op %s, shape %d: the case does not fit the arrays of tests/backend/op_case.h",
                            op->name, shape);
                    run_everywhere(&all.c);
                }
}

/* ---- a list of calls equals single calls ---- */

static void test_lists(void **state) {
    (void)state;
    op_case *c = &all.c;
    for (int n = 0; n < op_count() * all.count; n++) {
        const op_info *op = op_at(n / all.count);
        const case_device *d = &all.devices[n % all.count];
        if (!op_is_for_lists(op)) continue;
        int64_t before = launches();
        if (case_run_list(c, op, d) != OTT_OK)
            fail_msg("%s: %s: %s", d->device->name, op->name, status_text());
        assert_true(launches() - before < CASE_LIST_CALLS / 2);
        if (case_compare_list(c, op, d, &all.reference) != OTT_OK)
            fail_msg("%s: %s", d->device->name, status_text());
    }
}

/* ---- ops that are equal by definition ---- */

/* The ops amax, scale and cast, one after the other, must equal the op quantize. */
static void test_quantize_is_its_three_parts(void **state) {
    (void)state;
    op_case *c = &all.c;
    exec cx = {.device = all.reference.device};
    for (uint64_t number = 0; number < 200; number++) {
        assert_true(case_make(c, op_find("quantize"), act_dtypes[number % 3], (int)(number % 8),
                              (value_kind)(number % VALUE_KINDS), number));
        succeed(case_expect(c, &all.reference));
        succeed(case_load(c, &all.reference, &c->loaded));
        const quantize_args *a = (const quantize_args *)(void *)c->loaded.args;
        succeed(reference_ops.amax(&cx, &(amax_args){.x = a->x, .q = a->q}));
        succeed(reference_ops.scale(&cx, &(scale_args){.q = a->q}));
        succeed(reference_ops.cast(&cx, &(cast_args){.x = a->x, .q = a->q}));
        succeed(case_store(c, &all.reference));
        if (!case_compare(c)) fail_msg("%s", c->message);
    }
}

/* ---- refused calls ---- */

static void expect_refused(op_case *c, const case_device *d, ott_status status) {
    if (case_run(c, d) != status)
        fail_msg("%s: %s: not refused as it should be", d->device->name, c->op->name);
}

static void make_case_with(op_case *c, const char *op, const char *field) {
    uint64_t number = 0;
    do assert_true(case_make(c, op_find(op), OTT_BF16, 4, VALUES_NORMAL, number++));
    while (!case_present(c, field));
}

static void test_arguments_are_refused(void **state) {
    (void)state;
    op_case *c = &all.c;
    for (int i = 0; i < all.count; i++) {
        const case_device *d = &all.devices[i];
        make_case_with(c, "quantize", "q");
        quant_spec *spec = &case_at(c, "q")->qtensor.spec;
        spec->rowwise.rounding = spec->columnwise.rounding = ROUND_STOCHASTIC;
        expect_refused(c, d, OTT_ERR_UNSUPPORTED);
        make_case_with(c, "rmsnorm_forward", "delta");
        ((rmsnorm_forward_args *)(void *)c->args)->h = NULL;
        expect_refused(c, d, OTT_ERR_ARGUMENT);
        make_case_with(c, "amax_update", "seen");
        delayed_callbacks own = {.user = NULL};
        ((amax_update_args *)(void *)c->args)->spec.callbacks = &own;
        if (d->device->threads == 0) expect_refused(c, d, OTT_ERR_UNSUPPORTED);
        make_case_with(c, "rope", "position");
        ((rope_args *)(void *)c->args)->first += 1 << 20;
        expect_refused(c, d, OTT_ERR_SHAPE);
        make_case_with(c, "join_heads", "tail");
        ((join_heads_args *)(void *)c->args)->count += 1 << 20;
        expect_refused(c, d, OTT_ERR_SHAPE);
        make_case_with(c, "sum_heads", "x");
        ((sum_heads_args *)(void *)c->args)->first += 1 << 20;
        expect_refused(c, d, OTT_ERR_SHAPE);
    }
}

static bool has_nan(op_case *c, const char *field) {
    const tensor *t = &case_at(c, field)->tensor;
    bool found = false;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->columns; j++) found |= isnan(cast_load(t->data, t->dtype, i * t->ld + j));
    return found;
}

/* For an index out of range, a CPU returns an error that names the index. A GPU cannot return this error. It
   writes NaN, so that the step fails. */
static void test_indices_out_of_range_are_seen(void **state) {
    static const char *const ops[][3] = {{"embedding_forward", "token", "y"},
                                         {"rope", "position", "x"},
                                         {"cross_entropy", "target", "loss"},
                                         {"cross_entropy_part", "target", "part"}};
    (void)state;
    op_case *c = &all.c;
    for (int i = 0; i < all.count; i++)
        for (int n = 0; n < 4; n++) {
            const case_device *d = &all.devices[i];
            make_case_with(c, ops[n][0], ops[n][1]);
            const region *r = &c->regions[case_at(c, ops[n][1])->region];
            *(int32_t *)(void *)(c->pristine + r->offset) = 1 << 20;
            if (d->device->threads > 0) {
                expect_refused(c, d, OTT_ERR_INTERNAL);
                continue;
            }
            succeed(case_run(c, d));
            if (!has_nan(c, ops[n][2])) fail_msg("%s: %s: no NaN", d->device->name, ops[n][0]);
        }
}

/* ---- the comparison finds errors ---- */

static void make_swiglu(op_case *c) {
    /* makes cases until one has a quantized copy, and an output y with padding after its columns */
    uint64_t number = 0;
    do assert_true(case_make(c, op_find("swiglu_forward"), OTT_BF16, 4, VALUES_NORMAL, number++));
    while (!case_present(c, "q") || case_at(c, "y")->tensor.ld == case_at(c, "y")->tensor.columns);
    succeed(case_expect(c, &all.reference));
    memcpy(c->live, c->expected, (size_t)c->bytes);
}

static void expect_difference(op_case *c, const char *message) {
    assert_false(case_compare(c));
    if (!strstr(c->message, message)) fail_msg("\"%s\" does not contain \"%s\"", c->message, message);
}

static void test_comparison_sees_damage(void **state) {
    (void)state;
    op_case *c = &all.c;
    make_swiglu(c);
    assert_true(case_compare(c));
    make_swiglu(c);
    const tensor *y = &case_at(c, "y")->tensor;
    ((uint16_t *)y->data)[y->ld + 2] ^= 1;
    expect_difference(c, "y[1,2]");
    make_swiglu(c);
    ((uint16_t *)y->data)[y->columns] = 0;
    expect_difference(c, "of y changed");
    make_swiglu(c);
    ((uint8_t *)case_at(c, "gate")->tensor.data)[1] ^= 1;
    expect_difference(c, "of gate changed");
    make_swiglu(c);
    const region *last = &c->regions[c->region_count - 1]; /* an inverse scale of a quantized copy */
    c->live[last->offset] ^= 1;
    expect_difference(c, last->label);
    make_swiglu(c);
    ((uint16_t *)y->data)[1] ^= 1;
    assert_true(case_compare_within(c, 1e-2));
    make_swiglu(c);
    ((uint16_t *)y->data)[1] ^= 1;
    assert_false(case_compare_within(c, 1e-9));
    make_swiglu(c);
    ((uint16_t *)y->data)[y->columns] = 0;
    assert_false(case_compare_within(c, 1e-2));
}

/* ---- one cmocka test for each op ---- */

/* An argument selects one test by name. */
int main(int argc, char **argv) {
    int count = op_count();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    struct CMUnitTest *tests = calloc((size_t)count + 5, sizeof *tests);
    if (!tests) return 1;
    for (int i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){
            .name = op_at(i)->name, .test_func = test_op, .initial_state = (void *)(uintptr_t)op_at(i)};
    tests[count] = (struct CMUnitTest)cmocka_unit_test(test_quantize_is_its_three_parts);
    tests[count + 1] = (struct CMUnitTest)cmocka_unit_test(test_comparison_sees_damage);
    tests[count + 2] = (struct CMUnitTest)cmocka_unit_test(test_arguments_are_refused);
    tests[count + 3] = (struct CMUnitTest)cmocka_unit_test(test_indices_out_of_range_are_seen);
    tests[count + 4] = (struct CMUnitTest)cmocka_unit_test(test_lists);
    int failed = _cmocka_run_group_tests("ops", tests, (size_t)count + 5, open_devices, close_devices);
    free(tests);
    return failed;
}
