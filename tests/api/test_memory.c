/* Lets each allocation fail once. The call must return an error and leak nothing; the context still works. */
#include "api/api_case.h"
#include "api/handle.h"

/* Stores the status of `call`. If the status is an error, jumps to the label `out`. */
#define STEP(call)                                                                                           \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (status != OTT_OK) goto out;                                                                      \
    } while (0)

static void ignore(void *user, const char *text) {
    (void)user, (void)text;
}

/* Opens and uses objects of every kind, then closes them. */
static ott_status use(ott_context *context) {
    ott_status status;
    ott_tensor *x = NULL, *w = NULL, *y = NULL, *back = NULL;
    ott_recipe *r = NULL;
    ott_qtensor *qx = NULL, *qw = NULL;
    ott_group *g = NULL;
    ott_statistics s;
    ott_group_options single;
    ott_statistics_init(&s);
    ott_group_options_init(&single);
    STEP(ott_recipe_open(context, "delayed", &r));
    STEP(ott_recipe_set(r, "amax_history_len", "3"));
    STEP(ott_recipe_describe(r, ignore, NULL));
    STEP(ott_tensor_open(context, OTT_BF16, 16, 32, &x));
    STEP(ott_tensor_open(context, OTT_F32, 48, 32, &w));
    STEP(ott_tensor_open(context, OTT_BF16, 16, 48, &y));
    STEP(ott_tensor_open(context, OTT_F32, 16, 32, &back));
    STEP(ott_tensor_fill_normal(x, 1, 1.0));
    STEP(ott_tensor_fill_normal(w, 2, 1.0));
    STEP(ott_qtensor_open(context, 16, 32, r, OTT_INPUT, &qx));
    STEP(ott_qtensor_open(context, 48, 32, r, OTT_WEIGHT, &qw));
    STEP(ott_quantize(qx, x));
    STEP(ott_quantize(qw, w));
    STEP(ott_quantize_statistics(qx, x, OTT_ROWWISE, &s));
    STEP(ott_dequantize(qx, OTT_COLUMNWISE, back));
    STEP(ott_gemm(r, OTT_GEMM_OUTPUT, &(ott_operand){x, qx}, &(ott_operand){w, qw}, NULL, 0, y));
    STEP(ott_group_open(context, &single, &g));
    STEP(ott_qtensor_update_scale(qx, g));
    STEP(ott_recipe_table(context, 1, ignore, NULL));
    STEP(ott_recipe_table(context, 0, ignore, NULL));
out:
    ott_group_close(g);
    ott_qtensor_close(qw);
    ott_qtensor_close(qx);
    ott_tensor_close(back);
    ott_tensor_close(y);
    ott_tensor_close(w);
    ott_tensor_close(x);
    ott_recipe_close(r);
    return status;
}

static void test_every_allocation_fails_once(void **state) {
    (void)state;
    ott_context *context = open_context();
    succeed(use(context));
    int64_t allocations = mem_read(context->account).allocations, failures = 0;
    ott_context_close(context);
    for (int64_t n = 1; n <= allocations; n++) {
        context = open_context();
        mem_fail_after(context->account, n);
        /* succeeds if the failed allocation was for a text that the library can do without */
        ott_status status = use(context);
        mem_fail_after(context->account, 0);
        if (status != OTT_OK && status != OTT_ERR_MEMORY)
            fail_msg("allocation %lld: %s", (long long)n, ott_error_text());
        failures += status == OTT_ERR_MEMORY;
        succeed(use(context));
        assert_int_equal(context->open_handles, 0);
        ott_context_close(context); /* debug builds abort on a leak */
    }
    if (failures < allocations / 2)
        fail_msg("only %lld of %lld failed allocations give an error", (long long)failures,
                 (long long)allocations);
}

/* Opening and closing objects in a loop needs no additional memory, except for the closed handles. */
static void test_memory_does_not_grow(void **state) {
    (void)state;
    ott_context *context = open_context();
    for (int i = 0; i < 3; i++) succeed(use(context));
    mem_stats before = mem_read(context->account);
    for (int i = 0; i < 10; i++) succeed(use(context));
    mem_stats after = mem_read(context->account);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        if (kind != MEM_OTHER) assert_int_equal(after.now_of[kind], before.now_of[kind]);
    assert_int_equal(after.peak_of[MEM_WEIGHT], before.peak_of[MEM_WEIGHT]);
    ott_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_memory_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
