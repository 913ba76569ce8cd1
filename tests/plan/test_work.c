/* Compares the work (FLOPs and bytes) that is counted for operations with expected values, and checks the
   time that a machine takes for the work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "plan/machine.h"
#include "train/train_fixture.h"

static mem *account;
static device *cpu;

static int open_all(void **state) {
    (void)state;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(test_device_open(account, 1, NULL, &cpu));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    device_close(cpu);
    mem_close(account);
    return 0;
}

/* ---- work ---- */

static tensor shape(ott_dtype d, int64_t rows, int64_t columns) {
    return tensor_matrix((void *)(uintptr_t)64, d, rows, columns);
}

static void a_product(void **state) {
    exec cx = {.device = cpu};
    operand a = {.t = shape(OTT_E4M3, 6, 4)}, b = {.t = shape(OTT_E5M2, 4, 10), .transposed = true};
    tensor c = shape(OTT_BF16, 6, 10);
    (void)state;
    work w = work_of(&cx, OP_INDEX_gemm, &(gemm_args){.a = &a, .b = &b, .c = &c});
    assert_int_equal(w.format, WORK_FP8);
    assert_true(w.m == 6 && w.n == 10 && w.k == 4);
    assert_true(w.flops == 2 * 6 * 10 * 4);
    assert_true(w.bytes == 6 * 4 + 4 * 10 + 2 * (2 * 6 * 10)); /* with accumulate, the GEMM also reads C */
    b.t = shape(OTT_BF16, 4, 10);
    assert_int_equal(work_of(&cx, OP_INDEX_gemm, &(gemm_args){.a = &a, .b = &b, .c = &c}).format, WORK_BF16);
    work separate_product = work_of_product(WORK_FP8, 6, 10, 4, 2);
    assert_true(separate_product.flops == w.flops && separate_product.bytes == 6 * 4 + 4 * 10 + 2 * 6 * 10);
}

/* In a document of four tokens, the queries read 1 + 2 + 3 + 4 keys. With a window of two they read 1 + 2 + 2
   + 2. There are two documents. */
static void attention_counts(void **state) {
    exec cx = {.device = cpu};
    tensor q = shape(OTT_BF16, 8, 16), k = shape(OTT_BF16, 8, 8), lse = shape(OTT_F32, 2, 8);
    tensor starts = shape(OTT_I32, 1, 3);
    attention_forward_args a = {.q = &q, .k = &k, .v = &k, .cu_seqlens = &starts, .o = &q, .lse = &lse};
    (void)state;
    assert_true(work_of(&cx, OP_INDEX_attention_forward, &a).flops == 2.0 * 2 * 16 * 20);
    a.window = 2;
    assert_true(work_of(&cx, OP_INDEX_attention_forward, &a).flops == 2.0 * 2 * 16 * 14);
    attention_backward_args b = {.dout = &q,
                                 .q = &q,
                                 .k = &k,
                                 .v = &k,
                                 .o = &q,
                                 .lse = &lse,
                                 .cu_seqlens = &starts,
                                 .dq = &q,
                                 .dk = &k,
                                 .dv = &k};
    assert_true(work_of(&cx, OP_INDEX_attention_backward, &b).flops == 5.0 * 2 * 16 * 20);
}

/* Returns the bytes per element that quantizing an 8 x 4 tensor of 2-byte elements reads and writes.
   contiguous: the device needs transposed columnwise codes. separate: a separate op quantizes. */
static double cast_bytes(const char *name, bool contiguous, bool separate) {
    backend_capabilities can = {.contiguous_contraction = contiguous};
    return work_cast_bytes(&can, &recipe_find(name)->input, 8, 4, 2, separate) / 32;
}

static void casts(void **state) {
    (void)state;
    assert_true(cast_bytes("tensorwise", false, false) ==
                1 + 2); /* 1 byte of codes, shared by both copies; 2 bytes read again, after the amax */
    /* writes a second, transposed set of codes */
    assert_true(cast_bytes("tensorwise", true, false) == 2 + 2);
    /* reads the tensor twice: for the amax and for the codes */
    assert_true(cast_bytes("tensorwise", true, true) == 2 + 4);
    assert_true(cast_bytes("delayed", true, false) == 2);     /* the scale is known in advance */
    assert_true(cast_bytes("rowwise", true, false) == 2 + 2); /* the columnwise scales depend on all rows */
    assert_true(cast_bytes("block", true, false) == 2);
    assert_true(cast_bytes("rowwise_with_gw_hp", true, false) == 1 + 2);
    assert_true(cast_bytes("bf16", true, true) == 0);
}

/* Returns the bytes per element that an op moves additionally when it quantizes its bf16 output. */
static double quantized_bytes(enum op_index op, const char *name) {
    backend_capabilities can = {.contiguous_contraction = true};
    device gpu = {.can = &can};
    exec cx = {.device = &gpu};
    tensor x = shape(OTT_BF16, 8, 4), weight = shape(OTT_F32, 1, 4), rstd = shape(OTT_F32, 1, 8);
    const qlist list = {.count = 1, .item = {{.rows = 8, .columns = 4, .spec = recipe_find(name)->input}}};
    const rmsnorm_forward_args after = {.x = &x, .weight = &weight, .y = &x, .rstd = &rstd, .q = &list};
    const swiglu_forward_args swiglu = {.gate = &x, .up = &x, .y = &x, .q = &list};
    if (op == OP_INDEX_swiglu_forward) return (work_of(&cx, op, &swiglu).bytes - 3 * 64) / 32;
    return (work_of(&cx, op, &after).bytes - 2 * 64 - 4 * 4 - 4 * 8) / 32;
}

/* An op that writes its output in tiles knows only amaxes of blocks. An op that writes full rows knows only
   each row's amax and, at its end, the tensor's. */
static void casts_in_their_producers(void **state) {
    static const struct {
        const char *recipe;
        /* sets of codes written; extra reads of the output if an op writes it by tiles; if by rows */
        int codes, by_tiles, by_rows;
    } rows[] = {
        {"tensorwise", 2, 1, 1}, {"current", 2, 1, 1}, {"rowwise", 2, 1, 2}, {"rowwise_with_gw_hp", 1, 1, 0},
        {"delayed", 2, 0, 1},    {"block", 2, 0, 1},   {"mxfp8", 2, 0, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(quantized_bytes(OP_INDEX_swiglu_forward, rows[i].recipe) ==
                    rows[i].codes + 2 * rows[i].by_tiles);
        assert_true(quantized_bytes(OP_INDEX_rmsnorm_forward, rows[i].recipe) ==
                    rows[i].codes + 2 * rows[i].by_rows);
    }
}

static void bytes_of_others(void **state) {
    exec cx = {.device = cpu};
    tensor p = shape(OTT_F32, 3, 5), s = shape(OTT_F32, 1, 16), x = shape(OTT_BF16, 3, 5),
           rstd = shape(OTT_F32, 1, 3);
    tensor w = shape(OTT_F32, 1, 5), token = shape(OTT_I32, 1, 3), table = shape(OTT_F32, 1000, 5);
    (void)state;
    adamw_args a = {.param = &p, .grad = &p, .moment1 = &p, .moment2 = &p, .state = &s};
    assert_true(work_of(&cx, OP_INDEX_adamw, &a).bytes == 7 * 60 + 64);
    qtensor q = {.rows = 3, .columns = 5, .spec = recipe_find("tensorwise")->input};
    assert_true(work_of(&cx, OP_INDEX_amax, &(amax_args){.x = &x, .q = &q}).bytes == 30);
    assert_true(work_of(&cx, OP_INDEX_scale, &(scale_args){.q = &q}).bytes < 30);
    assert_true(work_of(&cx, OP_INDEX_amax_record, &(amax_record_args){.q = &q, .seen = &w}).bytes < 30);
    rmsnorm_forward_args n = {.x = &x, .weight = &w, .y = &x, .rstd = &rstd};
    assert_true(work_of(&cx, OP_INDEX_rmsnorm_forward, &n).bytes == 30 + 20 + 30 + 12);
    /* the tokens read only three rows of the table */
    embedding_forward_args e = {.token = &token, .table = &table, .y = &x};
    assert_true(work_of(&cx, OP_INDEX_embedding_forward, &e).bytes == 12 + 30 + 60);
}

/* The CUDA kernels read logits three times, and a norm's dy and h twice if its weight is trained. */
static void second_reads_on_a_gpu(void **state) {
    backend_capabilities can = {.contiguous_contraction = true};
    device gpu = {.can = &can};
    exec cx = {.device = &gpu};
    tensor x = shape(OTT_BF16, 3, 5), w = shape(OTT_F32, 1, 5), rstd = shape(OTT_F32, 1, 3),
           token = shape(OTT_I32, 1, 3);
    const cross_entropy_args loss = {.logits = &x, .target = &token, .loss = &rstd};
    rmsnorm_backward_args back = {.dy = &x, .h = &x, .weight = &w, .rstd = &rstd, .dx = &x};
    (void)state;
    assert_true(work_of(&cx, OP_INDEX_cross_entropy, &loss).bytes == 4 * 30 + 12 + 12);
    assert_true(work_of(&cx, OP_INDEX_rmsnorm_backward, &back).bytes == 3 * 30 + 20 + 12);
    back.dweight = &w;
    assert_true(work_of(&cx, OP_INDEX_rmsnorm_backward, &back).bytes == 5 * 30 + 20 + 12 + 2 * 20);
}

/* ---- machines ---- */

static double gemm_seconds(const machine *m, work_format f, int64_t rows, int64_t columns, int64_t depth) {
    work w = work_of_product(f, rows, columns, depth, 2);
    return machine_seconds(m, &w);
}

static void products_on_a_gpu(void **state) {
    static machine m;
    (void)state;
    FIXTURE_OK(machine_open("h100", cpu, &m));
    double bf16 = gemm_seconds(&m, WORK_BF16, 8192, 8192, 8192),
           fp8 = gemm_seconds(&m, WORK_FP8, 8192, 8192, 8192);
    assert_true(bf16 > 2 * 8192.0 * 8192 * 8192 / 720e12 && bf16 < 1.1 * 2 * 8192.0 * 8192 * 8192 / 720e12);
    assert_true(bf16 / fp8 > 1.7 && bf16 / fp8 < 1250.0 / 720);
    /* a single tile takes as long as a hundred tiles, which run at the same time */
    assert_true(gemm_seconds(&m, WORK_BF16, 128, 128, 8192) >
                0.9 * gemm_seconds(&m, WORK_BF16, 1280, 1280, 8192));
    /* with a large output and a short contraction, the GEMM takes the time to write the output */
    assert_true(gemm_seconds(&m, WORK_FP8, 8192, 8192, 16) > 2 * 8192.0 * 8192 / m.rate.bandwidth);
}

static double flops_per_second(const char *name, work w) {
    static machine m;
    FIXTURE_OK(machine_open(name, cpu, &m));
    w.flops = 1e15;
    return w.flops / (machine_seconds(&m, &w) - m.rate.launch);
}

/* What Ottava's kernels compute without tensor cores takes a hundred times as long. */
static void own_kernels_on_a_gpu(void **state) {
    const work grouped = {.op = OP_INDEX_grouped_gemm}, backward = {.op = OP_INDEX_attention_backward},
               forward = {.op = OP_INDEX_attention_forward};
    work own = forward;
    own.by_own_kernel = true;
    (void)state;
    assert_true(flops_per_second("h200", grouped) < 1e12 && flops_per_second("h200", own) < 5e12);
    assert_true(flops_per_second("h200", backward) > 339e12 && flops_per_second("h200", forward) > 599e12);
    /* only on Hopper does cuDNN have a backward with a fixed order of sums that Ottava uses */
    assert_true(flops_per_second("b200", backward) < 5e12 && flops_per_second("a100", backward) < 5e12);
    assert_true(flops_per_second("b200", forward) > 1e15 && flops_per_second("a100", forward) > 189e12);
}

static double seconds_without_launch(const machine *m, const work *w) {
    return machine_seconds(m, w) - m->rate.launch;
}

/* AdamW takes as long as its bytes need to move. With FP8 moments it takes longer, because of its
   instructions. */
static void instructions_on_a_gpu(void **state) {
    static machine m;
    exec cx = {.device = cpu};
    tensor s = shape(OTT_F32, 1, 16), codes = shape(OTT_E4M3, 1 << 14, 1 << 14),
           scales = shape(OTT_F32, 1 << 14, 256), p;
    (void)state;
    FIXTURE_OK(machine_open("h200", cpu, &m));
    for (int narrow = 0; narrow < 2; narrow++) {
        p = shape(narrow ? OTT_BF16 : OTT_F32, 1 << 14, 1 << 14);
        const adamw_args a = {.param = &p, .grad = &p, .moment1 = &p, .moment2 = &p, .state = &s};
        work w = work_of(&cx, OP_INDEX_adamw, &a);
        double seconds = seconds_without_launch(&m, &w), moving = w.bytes / m.rate.bandwidth;
        assert_true(seconds > 0.99 * moving && seconds < 1.01 * moving);
    }
    const adamw_fp8_args a = {.param = &p,
                              .grad = &p,
                              .moment1 = &codes,
                              .moment2 = &codes,
                              .group_scales1 = &scales,
                              .group_scales2 = &scales,
                              .state = &s};
    work w = work_of(&cx, OP_INDEX_adamw_fp8, &a);
    assert_true(seconds_without_launch(&m, &w) > 2 * w.bytes / m.rate.bandwidth);
}

static void rings(void **state) {
    static machine m;
    (void)state;
    FIXTURE_OK(machine_open("h100", cpu, &m));
    assert_true(machine_ring_seconds(&m, (machine_group){1, 1}, 1e9) == 0);
    assert_true(machine_ring_seconds(&m, (machine_group){8, 1}, 360e9) == 1); /* all ranks are in one node */
    assert_true(machine_ring_seconds(&m, (machine_group){16, 1}, 320e9) ==
                1); /* nodes have eight network adapters of 40 GB/s */
    assert_true(machine_ring_delay(&m, (machine_group){1, 1}) == 0 &&
                machine_ring_delay(&m, (machine_group){512, 1}) >
                    machine_ring_delay(&m, (machine_group){8, 1}));
}

static void refusals(void **state) {
    static machine m;
    (void)state;
    assert_int_equal(machine_open("h10", cpu, &m), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "did you mean \"h100\"?"));
    FIXTURE_OK(machine_open("h200", cpu, &m));
    FIXTURE_OK(machine_set_rates(&m, "gib=100,fp8_tflops=1500"));
    assert_true(m.rate.gib == 100 && m.rate.gemm[WORK_FP8] == 1500e12);
    assert_int_equal(machine_set_rates(&m, "gib=100,fp9_tflops=1"), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "\"fp9_tflops=1\" is not KEY=NUMBER"));
    assert_int_equal(machine_set_rates(&m, "gib=0"), OTT_ERR_ARGUMENT);
    assert_int_equal(machine_set_rates(&m, "gib=1x"), OTT_ERR_ARGUMENT);
    static const char *const absurd[] = {"gib=1e308",       "gib=1e-308",       "gib=nan",
                                         "fp8_tflops=inf",  "memory_gbs=1e300", "network_gbs=1e-300",
                                         "launch_us=1e200", "node=0.5",         "latency_us=1e10"};
    for (int i = 0; i < 9; i++) {
        assert_int_equal(machine_set_rates(&m, absurd[i]), OTT_ERR_ARGUMENT);
        assert_non_null(strstr(status_text(), "give a number from "));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product),
        cmocka_unit_test(attention_counts),
        cmocka_unit_test(casts),
        cmocka_unit_test(casts_in_their_producers),
        cmocka_unit_test(bytes_of_others),
        cmocka_unit_test(rings),
        cmocka_unit_test(refusals),
        cmocka_unit_test(products_on_a_gpu),
        cmocka_unit_test(own_kernels_on_a_gpu),
        cmocka_unit_test(instructions_on_a_gpu),
        cmocka_unit_test(second_reads_on_a_gpu),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
