/*
 * CUDA graphs on the emulated GPU. Recorded work runs only at replay, and recording refuses the calls that
 * CUDA refuses. Training with train.compile_mode=reduce-overhead gives the same bits as training without it,
 * with far fewer launches. This is tested for all ways to cast and scale, with an evaluation, a changed
 * weight and a hook between steps. `cuda_test_graphs --write` makes a table for docs/explanation/gpu.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/text/str.h"
#include "cudart.h"
#include "support/page.h"
#include "tensor/exec.h"
#include "train/train_fixture.h"

/* ---- a single graph ---- */

enum { SIDE = 10, NUMBERS = SIDE * SIDE, WORKSPACE = 1 << 12 };

typedef struct bench {
    mem *account;
    device *device;
    tensor x, y, z;
    void *workspace;
} bench;

static bench open_bench(void) {
    float ones[NUMBERS];
    void *data;
    bench b;
    for (int i = 0; i < NUMBERS; i++) ones[i] = 1;
    FIXTURE_OK(mem_open(&b.account));
    FIXTURE_OK(test_device_open(b.account, 1, NULL, &b.device));
    FIXTURE_OK(device_allocate(b.device, MEM_OTHER, WORKSPACE + 3 * sizeof ones, "numbers", &data));
    b.workspace = data;
    tensor *const all[] = {&b.x, &b.y, &b.z};
    for (int i = 0; i < 3; i++)
        *all[i] = tensor_vector((float *)(void *)((char *)data + WORKSPACE) + i * NUMBERS, OTT_F32, NUMBERS);
    FIXTURE_OK(device_copy_in(b.device, b.x.data, ones, sizeof ones));
    return b;
}

static void close_bench(bench *b) {
    device_release(b->device, b->workspace);
    device_close(b->device);
    mem_close(b->account);
}

static void add_one(bench *b) {
    exec cx = {.device = b->device};
    FIXTURE_OK(op_add(&cx, &(add_args){.x = &b->x, .delta = &b->y, .y = &b->y}));
}

static void expect_numbers(const bench *b, const tensor *t, float number) {
    float at[NUMBERS];
    FIXTURE_OK(device_copy_out(b->device, at, t->data, sizeof at));
    for (int i = 0; i < NUMBERS; i++) assert_true(at[i] == number);
}

static void expect_sum(const bench *b, float sum) {
    expect_numbers(b, &b->y, sum);
}

static void a_graph_is_done_when_it_is_replayed(void **state) {
    (void)state;
    bench b = open_bench();
    device_graph *g;
    FIXTURE_OK(device_capture_begin(b.device));
    add_one(&b);
    add_one(&b);
    FIXTURE_OK(device_capture_end(b.device, &g));
    expect_sum(&b, 0);
    for (int i = 0; i < 3; i++) FIXTURE_OK(device_graph_run(b.device, g));
    expect_sum(&b, 6);
    FIXTURE_OK(device_graph_run(b.device, g));
    device_graph_close(b.device, g); /* the graph may still be running */
    expect_sum(&b, 8);
    close_bench(&b);
}

static ott_status take_memory(bench *b) {
    void *data;
    return device_allocate(b->device, MEM_OTHER, 16, "allocation during a capture", &data);
}

static ott_status wait_for_it(bench *b) {
    return device_synchronize(b->device);
}

static ott_status read_it(bench *b) {
    float y;
    return device_copy_out(b->device, &y, b->y.data, sizeof y);
}

static void what_cannot_be_recorded_is_refused(void **state) {
    static ott_status (*const refused[])(bench * b) = {take_memory, wait_for_it, read_it};
    (void)state;
    bench b = open_bench();
    device_graph *g;
    for (int i = 0; i < 3; i++) {
        FIXTURE_OK(device_capture_begin(b.device));
        add_one(&b);
        assert_int_equal(refused[i](&b), OTT_ERR_DEVICE);
        assert_int_equal(device_capture_end(b.device, &g), OTT_ERR_DEVICE);
        assert_null(g);
        expect_sum(&b, (float)i);
        add_one(&b); /* after the refusals the device can still be used */
    }
    FIXTURE_OK(device_capture_begin(b.device));
    add_one(&b);
    FIXTURE_OK(device_capture_end(b.device, NULL));
    expect_sum(&b, 3);
    close_bench(&b);
}

/* z = x y for square matrices. The GEMM uses b->workspace, which was allocated in advance. */
static void multiply(bench *b) {
    exec cx = {.device = b->device, .workspace = b->workspace};
    operand x = {.t = tensor_matrix(b->x.data, OTT_F32, SIDE, SIDE)},
            y = {.t = tensor_matrix(b->y.data, OTT_F32, SIDE, SIDE)};
    tensor z = tensor_matrix(b->z.data, OTT_F32, SIDE, SIDE);
    FIXTURE_OK(b->device->ops->gemm(&cx, &(gemm_args){.a = &x, .b = &y, .c = &z}));
}

/* The backend compares the first product of each matmul_spec with the host. It cannot compare products of
   zeros, nor products that are recorded. */
static void a_product_nobody_has_checked_is_recorded(void **state) {
    (void)state;
    bench b = open_bench();
    device_graph *g;
    multiply(&b);
    FIXTURE_OK(device_capture_begin(b.device));
    multiply(&b);
    FIXTURE_OK(device_capture_end(b.device, &g));
    add_one(&b);
    FIXTURE_OK(device_graph_run(b.device, g));
    expect_numbers(&b, &b.z, SIDE);
    device_graph_close(b.device, g);
    close_bench(&b);
}

/* ---- training ---- */

enum {
    STEPS = 6,
    EVALUATED = 3,
    CHANGED = 3,
    LOOKED_AT = 4
}; /* steps (counted from 0) before which the test evaluates, changes a weight, or sets a hook */

static ott_status look(void *user, exec *cx, const char *module, const char *what, const tensor *t) {
    (void)cx, (void)module, (void)what, (void)t;
    ++*(int *)user;
    return OTT_OK;
}

typedef struct outcome {
    double losses[STEPS], evaluation;
    int64_t launches[STEPS], gemms[2], replayed;
    int looked;
    snapshot weights;
} outcome;

static outcome train(const fixture *f, const precision *p, const char *mode, const char *offload,
                     const char *optimizer) {
    const char *const more[] = {"--train.grad_accum_steps=3", mode, offload, optimizer, NULL};
    outcome o = {.looked = 0};
    const hook looks = {.observe = look, .user = &o.looked};
    rig r;
    rig_open(&r, f, &(rig_options){.precision = p, .more = more});
    for (int i = 0; i < STEPS; i++) {
        if (i == EVALUATED) o.evaluation = rig_validate(&r);
        if (i == CHANGED) rig_poke(&r, "model.layers.0.mlp.up_proj.weight", 5, 0.75f);
        r.t->hook = i == LOOKED_AT ? &looks : NULL;
        int64_t before = cudart_queued, waits = cudart_waits;
        o.losses[i] = rig_step(&r).loss;
        o.launches[i] = cudart_queued - before;
        if (i > 0) assert_int_equal(cudart_waits - waits, 1); /* step 0 also waits to check products */
    }
    o.replayed = r.t->replay.replayed;
    trainer_gemms(r.t, &o.gemms[0], &o.gemms[1]);
    o.weights = snapshot_take(&r);
    rig_close(&r);
    return o;
}

static void expect_same(const precision *p, const outcome *plain, const outcome *graphs) {
    for (int i = 0; i < STEPS; i++)
        if (plain->losses[i] != graphs->losses[i])
            fail_msg("%s: the loss of step %d is %.17g with graphs and %.17g without", p->name, i + 1,
                     graphs->losses[i], plain->losses[i]);
    assert_true(plain->evaluation == graphs->evaluation);
    assert_true(snapshot_equal(&plain->weights, &graphs->weights));
    for (int i = 0; i < 2; i++) assert_int_equal(plain->gemms[i], graphs->gemms[i]);
    assert_true(graphs->looked > 0);
    assert_int_equal(plain->looked, graphs->looked);
}

/* Micro-batches after a step's first share one graph. Step 0 runs the second micro-batch and records the
   third. Step 1 records the first micro-batch and the update. In the FP8 recipes, masters and moments are in
   host memory. */
static void training_with_graphs_is_the_same(void **state) {
    const fixture *f = *state;
    static const int precisions[] = {BF16, TENSORWISE, DELAYED};
    for (int i = 0; i < 3; i++) {
        const precision *p = &fixture_precisions[precisions[i]];
        const char *offload = precisions[i] == BF16 ? "--train.offload=none" : "--train.offload=state";
        const char *optimizer = precisions[i] == DELAYED ? "--optimizer.name=lion" : "--optimizer.name=adamw";
        outcome plain = train(f, p, "--train.compile_mode=default", offload, optimizer),
                graphs = train(f, p, "--train.compile_mode=reduce-overhead", offload, optimizer);
        expect_same(p, &plain, &graphs);
        assert_int_equal(plain.replayed, 0);
        assert_int_equal(graphs.replayed, 1 + 4 * (STEPS - 1) - 1);
        assert_in_range(graphs.launches[STEPS - 1], 4, plain.launches[STEPS - 1] / 10);
        snapshot_free(&plain.weights);
        snapshot_free(&graphs.weights);
    }
}

/* ---- stopping ---- */

static bool stop_later(void *user) {
    return (*(int *)user)-- <= 0;
}

static void *copy_delayed(const rig *r) {
    return test_device_fetch(r->device, r->t->m->delayed.block, r->t->m->delayed.block_bytes);
}

/* Repeats a step, and requests a stop later in the step each time. The step is either completed or undone. */
static void a_stopped_step_is_undone(void **state) {
    const char *const more[] = {"--train.compile_mode=reduce-overhead", "--train.grad_accum_steps=3", NULL};
    ott_status status = OTT_ERR_STOPPED;
    rig r;
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[DELAYED], .more = more});
    for (int i = 0; i < 3; i++) rig_step(&r);
    int64_t steps = r.t->run.step;
    for (int checks = 0; status == OTT_ERR_STOPPED; checks++) {
        int left = checks;
        const cancellation c = {.stop = stop_later, .user = &left};
        void *before = copy_delayed(&r);
        r.t->cx.cancellation = &c;
        status = trainer_step(r.t, 1e-3, &(step_result){0});
        r.t->cx.cancellation = NULL;
        if (status != OTT_OK) assert_int_equal(status, OTT_ERR_STOPPED);
        void *after = copy_delayed(&r);
        bool same = memcmp(before, after, (size_t)r.t->m->delayed.block_bytes) == 0;
        assert_true(r.t->is_consistent);
        assert_int_equal(same, status != OTT_OK);
        assert_int_equal(r.t->run.step, steps + (status == OTT_OK));
        free(before);
        free(after);
    }
    rig_close(&r);
}

/* ---- table of a step's GPU work ---- */

#define PAGE  TEST_SOURCE_DIR "/docs/explanation/gpu.md"
#define TITLE "| a step's |"

static const int counted[] = {BF16, TENSORWISE, DELAYED};
enum { COUNTED = sizeof counted / sizeof *counted };

/* GPU work of the third step. This step replays the graph that the second step recorded. */
typedef struct step_work {
    long long kernels, queued; /* number of Ottava's kernels; number of all queued jobs */
} step_work;

static step_work count_work(const fixture *f, int precision_index, const char *mode) {
    const char *const more[] = {"--train.grad_accum_steps=2", mode, NULL};
    int64_t kernels = 0, queued = 0;
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[precision_index], .more = more});
    for (int i = 0; i < 3; i++) {
        kernels = cudart_launches;
        queued = cudart_queued;
        rig_step(&r);
    }
    const step_work w = {cudart_launches - kernels, cudart_queued - queued};
    rig_close(&r);
    return w;
}

static void make_table(const fixture *f, str *out) {
    step_work plain[COUNTED], graphs[COUNTED];
    for (int i = 0; i < COUNTED; i++) {
        plain[i] = count_work(f, counted[i], "--train.compile_mode=default");
        graphs[i] = count_work(f, counted[i], "--train.compile_mode=reduce-overhead");
    }
    str_append(out, TITLE);
    for (int i = 0; i < COUNTED; i++) str_printf(out, " %s |", fixture_precisions[counted[i]].name);
    str_append(out, "\n|---|---:|---:|---:|\n| launches of Ottava's kernels |");
    for (int i = 0; i < COUNTED; i++) str_printf(out, " %lld |", plain[i].kernels);
    str_append(out, "\n| the same, plus GEMMs, copies and memsets |");
    for (int i = 0; i < COUNTED; i++) str_printf(out, " %lld |", plain[i].queued);
    str_append(out, "\n| the same with CUDA graphs, each graph counted once |");
    for (int i = 0; i < COUNTED; i++) str_printf(out, " %lld |", graphs[i].queued);
    str_append(out, "\n");
    FIXTURE_OK(str_finish(out));
}

static bool writes;

static void the_page_has_the_table(void **state) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    str table = {.account = account};
    make_table(*state, &table);
    page_table_expect(PAGE, TITLE, table.text, writes, "cuda_test_graphs");
    str_free(&table);
    mem_close(account);
}

int main(int count, char **arguments) {
    writes = count == 2 && strcmp(arguments[1], "--write") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_done_when_it_is_replayed),
        cmocka_unit_test(what_cannot_be_recorded_is_refused),
        cmocka_unit_test(a_product_nobody_has_checked_is_recorded),
        cmocka_unit_test(training_with_graphs_is_the_same),
        cmocka_unit_test(a_stopped_step_is_undone),
        cmocka_unit_test(the_page_has_the_table),
    };
    return cmocka_run_group_tests_name("graphs", tests, fixture_setup, fixture_teardown);
}
