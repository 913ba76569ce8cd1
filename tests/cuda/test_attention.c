/*
 * Attention on the emulated GPU, with a stand-in for cuDNN that interprets the graphs. The results must match
 * Ottava's kernels, which match the reference (test cuda.ops). If cuDNN cannot run a call, Ottava's kernels
 * run it, and the log gives the reason once.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "attention_shim.h"
#include "backend/open.h"
#include "base/rng.h"
#include "cudart.h"
#include "fp8/cast.h"
#include "tensor/exec.h"
#include "tensor/ops.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 90, WIDTH_MOST = 64, BLOCK = TOKENS * 3 * WIDTH_MOST, STARTS = 7, NEW = 92600, OLD = 91900 };
/* allowed relative root-mean-square error: values are rounded to bf16 several times */
static const double bound = 1e-2;

/* Documents of 30, 0, 41, 1, 18 and 0 tokens. */
static const int32_t packed[STARTS] = {0, 30, 30, 71, 72, 90, 90}, dense[2] = {0, TOKENS};

typedef struct problem {
    ott_dtype dtype;
    int64_t heads, kv_heads, head_dim, window;
    bool packed, fused; /* fused: q, k, v and their gradients are columns of one matrix */
    /* a fault in the second run of cuDNN's stand-in; the backend checks only the first run */
    attention_fault fault;
} problem;

typedef enum part { Q, K, V, O, DOUT, DQ, DK, DV, PARTS } part;

/* The tensors of a problem, in a device's memory. */
typedef struct bench {
    device *gpu;
    exec cx;
    void *blocks[PARTS + 5];
    int block_count;
    tensor parts[PARTS], lse, starts;
} bench;

static mem *account;
static int warnings;

static void note(void *user, ott_log_level level, const char *text) {
    (void)user, (void)level, (void)text;
    warnings++;
}

static const logger lg = {.callback = note, .level = OTT_LOG_WARNING};

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

/* ---- memory ---- */

static void *allocate_copy(bench *b, int64_t bytes, const void *from) {
    void *block;
    succeed(device_allocate(b->gpu, MEM_OTHER, bytes, "a test's tensor", &block));
    if (from) succeed(device_copy_in(b->gpu, block, from, bytes));
    b->blocks[b->block_count++] = block;
    return block;
}

/* Allocates a matrix of normally distributed values. */
static tensor take_matrix(bench *b, ott_dtype dtype, int64_t columns, uint64_t seed) {
    static uint16_t values[BLOCK];
    for (int64_t i = 0; i < TOKENS * columns; i++)
        cast_store(values, dtype, i, rng_normal(1, seed, (uint64_t)i));
    void *block = allocate_copy(b, TOKENS * columns * 2, values);
    return tensor_matrix(block, dtype, TOKENS, columns);
}

/* Creates three tensors, as columns of one matrix or separately. */
static void take_three(bench *b, const problem *p, part first, uint64_t seed) {
    int64_t q = p->heads * p->head_dim, k = p->kv_heads * p->head_dim;
    tensor all = take_matrix(b, p->dtype, q + 2 * k, seed);
    b->parts[first] = tensor_columns(all, 0, q);
    b->parts[first + 1] = tensor_columns(all, q, k);
    b->parts[first + 2] = tensor_columns(all, q + k, k);
    if (p->fused) return;
    for (int i = 0; i < 3; i++) {
        tensor *t = &b->parts[(int)first + i];
        *t = take_matrix(b, p->dtype, t->columns, seed + (uint64_t)i);
    }
}

static void open_bench(bench *b, const problem *p) {
    *b = (bench){0};
    succeed(test_device_open_named("cuda", account, 0, NULL, &b->gpu));
    b->cx = (exec){.device = b->gpu, .log = &lg};
    take_three(b, p, Q, 1);
    b->parts[O] = take_matrix(b, p->dtype, p->heads * p->head_dim, 5);
    b->parts[DOUT] = take_matrix(b, p->dtype, p->heads * p->head_dim, 6);
    take_three(b, p, DQ, 7);
    b->lse = tensor_matrix(allocate_copy(b, p->heads * TOKENS * 4, NULL), OTT_F32, p->heads, TOKENS);
    int64_t count = p->packed ? STARTS : 2;
    b->starts = tensor_matrix(allocate_copy(b, count * 4, p->packed ? packed : dense), OTT_I32, 1, count);
}

static void close_bench(bench *b) {
    while (b->block_count > 0) device_release(b->gpu, b->blocks[--b->block_count]);
    device_close(b->gpu);
}

/* ---- forward and backward ---- */

static float scale_of(const problem *p) {
    return 1.0f / sqrtf((float)p->head_dim);
}

static ott_status run_forward(bench *b, const problem *p) {
    tensor *t = b->parts;
    return op_attention_forward(&b->cx, &(attention_forward_args){.q = &t[Q],
                                                                  .k = &t[K],
                                                                  .v = &t[V],
                                                                  .cu_seqlens = &b->starts,
                                                                  .o = &t[O],
                                                                  .lse = &b->lse,
                                                                  .head_dim = p->head_dim,
                                                                  .window = p->window,
                                                                  .softmax_scale = scale_of(p)});
}

static ott_status run_backward(bench *b, const problem *p) {
    tensor *t = b->parts;
    return op_attention_backward(&b->cx, &(attention_backward_args){.dout = &t[DOUT],
                                                                    .q = &t[Q],
                                                                    .k = &t[K],
                                                                    .v = &t[V],
                                                                    .o = &t[O],
                                                                    .lse = &b->lse,
                                                                    .cu_seqlens = &b->starts,
                                                                    .dq = &t[DQ],
                                                                    .dk = &t[DK],
                                                                    .dv = &t[DV],
                                                                    .head_dim = p->head_dim,
                                                                    .window = p->window,
                                                                    .softmax_scale = scale_of(p)});
}

static void run(bench *b, const problem *p) {
    succeed(run_forward(b, p));
    succeed(run_backward(b, p));
    succeed(device_synchronize(b->gpu));
}

static double relative_rms(bench *a, bench *b, const tensor *x, const tensor *y) {
    int64_t size = x->dtype == OTT_F32 ? 4 : 2, bytes = ((x->rows - 1) * x->ld + x->columns) * size;
    void *from = test_device_fetch(a->gpu, x->data, bytes), *to = test_device_fetch(b->gpu, y->data, bytes);
    double error = 0, energy = 0;
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++) {
            double u = (double)cast_load(from, x->dtype, i * x->ld + j);
            double v = (double)cast_load(to, y->dtype, i * y->ld + j);
            error += (u - v) * (u - v);
            energy += v * v;
        }
    free(from);
    free(to);
    return sqrt(error / energy);
}

/* Returns the largest error of all outputs; NaN if an output has a NaN. */
static double largest_error(const problem *p, size_t version) {
    static const part outputs[] = {O, DQ, DK, DV};
    bench own, library;
    attention_shim_version = 0;
    open_bench(&own, p);
    run(&own, p);
    attention_shim_version = version;
    warnings = attention_shim_runs = attention_shim_plans = 0;
    open_bench(&library, p);
    run(&library, p);
    attention_shim_fault = p->fault;
    run(&library, p);
    double most = relative_rms(&library, &own, &library.lse, &own.lse);
    for (int i = 0; i < 4; i++) {
        double error = relative_rms(&library, &own, &library.parts[outputs[i]], &own.parts[outputs[i]]);
        if (isnan(error) || error > most) most = error; /* a NaN counts as the largest error */
    }
    close_bench(&own);
    close_bench(&library);
    return most;
}

/* ---- tests ---- */

static int open_account(void **state) {
    (void)state;
    attention_shim_fault = FAULT_NONE;
    succeed(mem_open(&account));
    return 0;
}

static int close_account(void **state) {
    (void)state;
    int left = mem_read(account).now != 0;
    mem_close(account);
    return left;
}

static const problem grouped = {.dtype = OTT_BF16, .heads = 4, .kv_heads = 2, .head_dim = 8};

static void test_cudnn_agrees_with_our_kernels(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        problem p = grouped;
        p.packed = i & 1;
        p.window = i & 2 ? 7 : 0;
        p.fused = i & 4;
        if (i == 0) p.heads = p.kv_heads = 2, p.head_dim = 24;
        if (i == 5) p.dtype = OTT_F16;
        double error = largest_error(&p, NEW);
        if (!(error < bound)) fail_msg("case %d: the relative error is %g", i, error);
        assert_int_equal(attention_shim_runs, 4); /* two forward and two backward runs */
        assert_int_equal(attention_shim_plans, 2);
        assert_int_equal(warnings, 0);
    }
}

static void test_wrong_graphs_are_seen(void **state) {
    (void)state;
    problem p = grouped;
    p.packed = true;
    for (int fault = FAULT_OFFSETS; fault <= FAULT_MASKS; fault++) {
        attention_shim_fault = FAULT_NONE;
        p.fault = (attention_fault)fault;
        if (largest_error(&p, NEW) < bound) fail_msg("fault %d is not detected", fault);
    }
}

static void expect_refusal(ott_status status, const char *direction) {
    assert_int_equal(status, OTT_ERR_DEVICE);
    assert_non_null(strstr(status_text(), "cuDNN 9.26.0's attention"));
    assert_non_null(strstr(status_text(), direction));
    assert_non_null(strstr(status_text(), "OTTAVA_CUDA_ATTENTION=own"));
}

/* A plan's first run with samples that are not all zero is compared with the host. Later runs are not. */
static void test_a_wrong_library_is_found(void **state) {
    (void)state;
    static const uint16_t zeros[BLOCK];
    problem p = grouped;
    p.packed = true;
    attention_shim_version = NEW;
    for (int fault = FAULT_OFFSETS; fault <= FAULT_MASKS; fault++) {
        bench b;
        open_bench(&b, &p);
        tensor dout = b.parts[DOUT];
        if (fault != FAULT_OFFSETS) { /* wrong offsets only affect backward */
            attention_shim_fault = (attention_fault)fault;
            expect_refusal(run_forward(&b, &p), "forward of 90 tokens in 6 documents (bf16, 4 heads");
        }
        attention_shim_fault = FAULT_NONE;
        succeed(run_forward(&b, &p));
        b.parts[DOUT] =
            tensor_matrix(allocate_copy(&b, (int64_t)sizeof zeros, zeros), p.dtype, TOKENS, dout.columns);
        succeed(run_backward(&b, &p));
        b.parts[DOUT] = dout;
        attention_shim_fault = (attention_fault)fault;
        expect_refusal(run_backward(&b, &p), "backward");
        attention_shim_fault = FAULT_NONE;
        succeed(run_backward(&b, &p));
        attention_shim_fault = (attention_fault)fault;
        succeed(run_backward(&b, &p));
        close_bench(&b);
    }
}

/* Expects correct results with this cuDNN version, `runs` runs of the stand-in, and `warned` warnings. */
static void expect_own(const problem *p, size_t version, int runs, int warned) {
    assert_true(largest_error(p, version) < bound);
    assert_int_equal(attention_shim_runs, runs);
    assert_int_equal(warnings, warned);
}

static void test_the_rest_goes_to_our_kernels(void **state) {
    (void)state;
    problem p = grouped;
    expect_own(&p, 0, 0, 1);
    expect_own(&p, 91800, 0, 1);
    expect_own(&p, OLD, 2, 1); /* this version of cuDNN runs forward only */
    setenv(CUDART_CAPABILITY, "100", 1);
    expect_own(&p, NEW, 2, 1); /* and so does every version on Blackwell */
    unsetenv(CUDART_CAPABILITY);
    p.packed = true;
    expect_own(&p, OLD, 0, 1);
    p.head_dim = 12;
    expect_own(&p, NEW, 0, 1);
}

static void test_an_environment_variable_says_who(void **state) {
    (void)state;
    device *gpu;
    setenv("OTTAVA_CUDA_ATTENTION", "own", 1);
    expect_own(&grouped, NEW, 0, 1);
    setenv("OTTAVA_CUDA_ATTENTION", "cudnn", 1);
    assert_int_equal(test_device_open_named("cuda", account, 0, NULL, &gpu), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "OTTAVA_CUDA_ATTENTION=cudnn: give own"));
    unsetenv("OTTAVA_CUDA_ATTENTION");
}

/* An argument selects one test by name. */
int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cudnn_agrees_with_our_kernels, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_wrong_graphs_are_seen, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_a_wrong_library_is_found, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_the_rest_goes_to_our_kernels, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_an_environment_variable_says_who, open_account, close_account),
    };
    if (count > 1) cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
