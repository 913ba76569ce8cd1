/*
 * Attention on the emulated GPU, with a stand-in for cuDNN that interprets the graphs. The results must match
 * Ottava's exact kernels, which match the reference (test cuda.ops). If cuDNN cannot run a call, Ottava's
 * tensor-core kernels or exact kernels run it, and the log gives the reason once.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The thread sanitizer needs few cases, because races do not depend on values. */
#ifdef SANITIZE_ORDER
enum { EVERY = 5 };
#else
enum { EVERY = 1 };
#endif
enum { TOKENS = 90, WIDTH_MOST = 512, BLOCK = TOKENS * 3 * WIDTH_MOST, STARTS = 7, NEW = 92600, OLD = 91900 };
/* allowed relative root-mean-square error: values are rounded to bf16 several times */
static const double bound = 1e-2;

/* Documents of 30, 0, 41, 1, 18 and 0 tokens. */
static const int32_t packed[STARTS] = {0, 30, 30, 71, 72, 90, 90}, dense[2] = {0, TOKENS},
                     sequences[] = {0, TOKENS / 2, TOKENS};

typedef struct problem {
    ott_dtype dtype;
    int64_t heads, kv_heads, head_dim, window;
    int64_t sequences; /* more than 1: the documents are sequences of equal length */
    float softcap;
    device_order order;
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
static tensor take_matrix(bench *b, ott_dtype dtype, int64_t rows, int64_t columns, uint64_t seed) {
    int64_t bytes = rows * columns * dtype_bytes(dtype);
    void *values = malloc((size_t)bytes);
    assert_non_null(values);
    for (int64_t i = 0; i < rows * columns; i++)
        cast_store(values, dtype, i, rng_normal(1, seed, (uint64_t)i));
    void *block = allocate_copy(b, bytes, values);
    free(values);
    return tensor_matrix(block, dtype, rows, columns);
}

/* Creates three tensors, as columns of one matrix or separately. */
static void take_three(bench *b, const problem *p, part first, uint64_t seed) {
    int64_t q = p->heads * p->head_dim, k = p->kv_heads * p->head_dim;
    tensor all = take_matrix(b, p->dtype, TOKENS, q + 2 * k, seed);
    b->parts[first] = tensor_columns(all, 0, q);
    b->parts[first + 1] = tensor_columns(all, q, k);
    b->parts[first + 2] = tensor_columns(all, q + k, k);
    if (p->fused) return;
    for (int i = 0; i < 3; i++) {
        tensor *t = &b->parts[(int)first + i];
        *t = take_matrix(b, p->dtype, TOKENS, t->columns, seed + (uint64_t)i);
    }
}

static void open_bench(bench *b, const problem *p) {
    *b = (bench){0};
    succeed(test_device_open_named("cuda", account, 0, NULL, &b->gpu));
    b->gpu->order = p->order;
    b->cx = (exec){.device = b->gpu, .log = &lg};
    take_three(b, p, Q, 1);
    b->parts[O] = take_matrix(b, p->dtype, TOKENS, p->heads * p->head_dim, 5);
    b->parts[DOUT] = take_matrix(b, p->dtype, TOKENS, p->heads * p->head_dim, 6);
    take_three(b, p, DQ, 7);
    b->lse = tensor_matrix(allocate_copy(b, p->heads * TOKENS * 4, NULL), OTT_F32, p->heads, TOKENS);
    static const int32_t *const starts[] = {dense, packed, sequences};
    int64_t count = p->packed ? STARTS : p->sequences > 1 ? p->sequences + 1 : 2;
    const int32_t *from = starts[p->packed ? 1 : p->sequences > 1 ? 2 : 0];
    b->starts = tensor_matrix(allocate_copy(b, count * 4, from), OTT_I32, 1, count);
}

/* Opens a bench that only uses the exact kernels. */
static void open_own(bench *b, const problem *p) {
    bool was_set = getenv("OTTAVA_CUDA_ATTENTION");
    setenv("OTTAVA_CUDA_ATTENTION", "own", 1);
    open_bench(b, p);
    if (!was_set) unsetenv("OTTAVA_CUDA_ATTENTION");
}

static void close_bench(bench *b) {
    while (b->block_count > 0) device_release(b->gpu, b->blocks[--b->block_count]);
    device_close(b->gpu);
}

/* ---- forward and backward ---- */

static float scale_of(const problem *p) {
    return 1.0f / sqrtf((float)p->head_dim);
}

static int64_t longest_of(const problem *p) {
    return p->sequences > 1 ? TOKENS / p->sequences : p->packed ? 41 : 0;
}

static attention_forward_args forward_of(bench *b, const problem *p) {
    tensor *t = b->parts;
    return (attention_forward_args){.q = &t[Q],
                                    .k = &t[K],
                                    .v = &t[V],
                                    .cu_seqlens = &b->starts,
                                    .o = &t[O],
                                    .lse = &b->lse,
                                    .head_dim = p->head_dim,
                                    .window = p->window,
                                    .longest = longest_of(p),
                                    .softmax_scale = scale_of(p),
                                    .softcap = p->softcap};
}

static ott_status run_forward(bench *b, const problem *p) {
    attention_forward_args args = forward_of(b, p);
    return op_attention_forward(&b->cx, &args);
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
                                                                    .longest = longest_of(p),
                                                                    .softmax_scale = scale_of(p),
                                                                    .softcap = p->softcap});
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
    open_own(&own, p);
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

/* Expects correct results with this cuDNN version, `runs` runs of the stand-in, and `warned` warnings. */
static void expect(const problem *p, size_t version, int runs, int warned) {
    double error = largest_error(p, version);
    if (!(error < bound)) fail_msg("the relative error is %g", error);
    assert_int_equal(attention_shim_runs, runs);
    assert_int_equal(warnings, warned);
}

/* Two forward and two backward runs. A dense backward on Hopper runs once for each key head. */
static void test_cudnn(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        problem p = grouped;
        p.packed = i & 1;
        p.window = i & 2 ? 7 : 0;
        p.fused = i & 4;
        p.sequences = i == 8 ? 2 : 1;
        if (i == 8) p.heads = 2;
        if (i == 9) p.order = DEVICE_UNORDERED;
        if (i == 0) p.heads = p.kv_heads = 2, p.head_dim = 24;
        if (i == 5) p.dtype = OTT_F16;
        bool split = !p.packed && i != 0;
        expect(&p, NEW, split ? 6 : 4, 0);
        assert_int_equal(attention_shim_plans, 2);
    }
}

/* Ottava's tensor-core kernels replace a cuDNN that is missing. */
static void test_tensor_cores(void **state) {
    (void)state;
    static const int64_t dims[] = {8, 64, 72, 128, 136, 256};
    for (int i = 0; i < 12; i += EVERY) {
        problem p = grouped;
        p.head_dim = dims[i % 6];
        p.kv_heads = p.head_dim > 128 ? 1 : 2;
        p.heads = p.head_dim > 64 ? p.kv_heads : 4;
        p.packed = i & 1;
        p.window = i & 4 ? 37 : 0;
        p.fused = i & 2;
        p.softcap = i > 8 ? 0.5f : 0;
        if (i > 5) p.dtype = OTT_F16;
        expect(&p, 0, 0, 1);
    }
}

/* Two runs have the same bits. */
static void test_tensor_cores_repeat(void **state) {
    (void)state;
    problem p = grouped;
    bench b;
    void *before[PARTS];
    p.packed = true;
    attention_shim_version = 0;
    open_bench(&b, &p);
    for (int i = 0; i < 2; i++) {
        run(&b, &p);
        for (int k = O; k < PARTS; k++) {
            const tensor *t = &b.parts[k];
            void *now = test_device_fetch(b.gpu, t->data, TOKENS * t->columns * 2);
            if (i == 0) before[k] = now;
            if (i == 1) {
                assert_memory_equal(before[k], now, (size_t)(TOKENS * t->columns * 2));
                free(before[k]), free(now);
            }
        }
    }
    close_bench(&b);
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

/* Which kernels compute a call, by the version of cuDNN and the GPU. */
static void test_each_gpu_has_a_way(void **state) {
    (void)state;
    problem p = grouped;
    expect(&p, 91800, 0, 1); /* too old: tensor-core kernels */
    expect(&p, OLD, 6, 0);
    for (int gpu = 80; gpu <= 120; gpu += 20) {
        char text[8];
        snprintf(text, sizeof text, "%d", gpu);
        setenv(CUDART_CAPABILITY, text, 1);
        bool is_blackwell = gpu == 100;
        p.packed = false;
        expect(&p, NEW, is_blackwell ? 4 : 6, 0);
        p.packed = true;
        expect(&p, NEW, is_blackwell ? 4 : 2, is_blackwell ? 0 : 1);
        p.order = DEVICE_WARN;
        expect(&p, NEW, 4, is_blackwell ? 0 : 1);
        p.order = DEVICE_UNORDERED;
        expect(&p, NEW, 4, 0);
        p.order = DEVICE_ORDERED;
    }
    setenv(CUDART_CAPABILITY, "100", 1);
    p.packed = false;
    expect(&p, OLD, 4, 0);
    unsetenv(CUDART_CAPABILITY);
    p.packed = true;
    expect(&p, OLD, 0, 1);
    p.head_dim = 12;
    expect(&p, NEW, 0, 1); /* the exact kernels */
}

/* One query with the keys and values of a cache, on the GPU and on the CPU. */
static void decode(const char *device_name, ott_dtype dtype, int64_t keys, int64_t head_dim, int64_t window,
                   float softcap, float *out) {
    enum { HEADS = 4, KV_HEADS = 2 };
    bench b = {0};
    succeed(test_device_open_named(device_name, account, 1, NULL, &b.gpu));
    b.cx = (exec){.device = b.gpu, .log = &lg};
    tensor q = take_matrix(&b, dtype, 1, HEADS * head_dim, 1), o = take_matrix(&b, dtype, 1, q.columns, 2);
    tensor k = take_matrix(&b, dtype, keys, KV_HEADS * head_dim, 3);
    tensor v = take_matrix(&b, dtype, keys, KV_HEADS * head_dim, 4);
    b.lse = tensor_matrix(allocate_copy(&b, HEADS * 4, NULL), OTT_F32, HEADS, 1);
    b.starts = tensor_matrix(allocate_copy(&b, 8, (int32_t[]){0, 1}), OTT_I32, 1, 2);
    succeed(op_attention_forward(&b.cx, &(attention_forward_args){.q = &q,
                                                                  .k = &k,
                                                                  .v = &v,
                                                                  .cu_seqlens = &b.starts,
                                                                  .o = &o,
                                                                  .lse = &b.lse,
                                                                  .head_dim = head_dim,
                                                                  .past = keys - 1,
                                                                  .window = window,
                                                                  .softmax_scale = 0.2f,
                                                                  .softcap = softcap}));
    succeed(device_synchronize(b.gpu));
    void *stored = test_device_fetch(b.gpu, o.data, q.columns * dtype_bytes(dtype));
    for (int64_t i = 0; i < q.columns; i++) out[i] = cast_load(stored, dtype, i);
    free(stored);
    stored = test_device_fetch(b.gpu, b.lse.data, HEADS * 4);
    memcpy(out + q.columns, stored, HEADS * 4);
    free(stored);
    close_bench(&b);
}

/* The CPU's bits up to 1024 keys; beyond, parts of the keys are summed in another order. */
static void test_a_token_with_a_cache(void **state) {
    (void)state;
    static const int64_t keys[] = {1, 64, 65, 255, 257, 1024, 1025, 3000};
    for (int i = 0; i < 8; i++) {
        enum { MOST = 4 * 24 + 4 };
        float gpu[MOST], cpu[MOST];
        ott_dtype dtype = (ott_dtype[]){OTT_F32, OTT_BF16, OTT_F16}[i % 3];
        int64_t head_dim = i % 2 ? 24 : 5, count = 4 * head_dim + 4, window = i % 4 == 3 ? 250 : 0;
        float softcap = i % 3 == 2 ? 0.7f : 0;
        decode("cuda", dtype, keys[i], head_dim, window, softcap, gpu);
        decode("", dtype, keys[i], head_dim, window, softcap, cpu);
        bool exact = keys[i] <= 1024 || window > 0;
        for (int64_t c = 0; c < count; c++) {
            double error = fabs((double)gpu[c] - (double)cpu[c]);
            if (exact ? error != 0 : !(error < 2e-3)) fail_msg("%d keys, column %d", (int)keys[i], (int)c);
        }
    }
}

/* Only what no kernel computes on tensor cores is slow, unless the user asks for the exact kernels. */
static void test_slow_attention_is_reported(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        bench b;
        problem p = grouped;
        p.head_dim = i == 0 ? 8 : 12;
        attention_shim_version = 0;
        (i == 2 ? open_own : open_bench)(&b, &p);
        attention_forward_args args = forward_of(&b, &p);
        op_slowness slow = b.gpu->ops->slowness(b.gpu, OP_INDEX_attention_forward, &args);
        assert_true(i == 1 ? slow.what && slow.times > 100 : !slow.what);
        close_bench(&b);
    }
}

static void test_an_environment_variable_says_who(void **state) {
    (void)state;
    device *gpu;
    setenv("OTTAVA_CUDA_ATTENTION", "own", 1);
    expect(&grouped, NEW, 0, 1);
    setenv("OTTAVA_CUDA_ATTENTION", "cudnn", 1);
    assert_int_equal(test_device_open_named("cuda", account, 0, NULL, &gpu), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "OTTAVA_CUDA_ATTENTION=cudnn: give own"));
    unsetenv("OTTAVA_CUDA_ATTENTION");
}

/* An argument selects one test by name. */
int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cudnn, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_wrong_graphs_are_seen, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_a_wrong_library_is_found, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_tensor_cores, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_tensor_cores_repeat, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_each_gpu_has_a_way, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_a_token_with_a_cache, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_slow_attention_is_reported, open_account, close_account),
        cmocka_unit_test_setup_teardown(test_an_environment_variable_says_who, open_account, close_account),
    };
    unsetenv("OTTAVA_CUDA_ATTENTION");
    if (count > 1) cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
