/*
 * Communication of ranks that shard a model's parameters: how many bytes are gathered in each format, how
 * many blocks are gathered at a time, and which ops run during a gather. Time is simulated: a GEMM takes time
 * in proportion to its output, a collective in proportion to its bytes. So the results are the same on any
 * machine. One test uses real time, in which GEMMs and messages only sleep.
 */
#include <setjmp.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "comm/ranks.h"
#include "model/init.h"
#include "model/tiny_model.h"
#include "tensor/rules/statistics.h"

enum { RANKS = 2, SEQUENCES = 2, LENGTH = 16, TOKENS = SEQUENCES * LENGTH };

/* ---- a transport with simulated time ---- */

typedef struct slow_group {
    group group; /* must be first: functions cast a pointer to it to slow_group */
    group *inner;
    const model *m;
    /* per_byte: time to send a byte; now: current time; free_from: when the network is free again */
    double per_byte, now, free_from;
    double second; /* simulated units of time in a real second; 0: all time is simulated */
    /* gathering: time of all-gathers on the network; waited: time in which this rank waited for them */
    double gathering, waited;
    double done[64]; /* completion time of each started collective */
    int started;
    int gathers, amaxes; /* number of collectives of each kind */
    int units_held;      /* largest number of gathered units at a time */
    int64_t gathered_bytes;
    int weights_seen;
    /* product: end times of GEMMs; overlapped: gathers during which a GEMM ended; traced: all gathers */
    double product[512];
    int products, overlapped, traced;
} slow_group;

static int units_held(const model *m) {
    int held = 0;
    for (int i = 0; i < m->store.unit_count; i++) held += m->store.units[i].uses != 0;
    return held;
}

/* Sets the current time of a rank: simulated or real. */
static void look_at_clock(slow_group *s) {
    if (s->second > 0) s->now = clock_seconds() * s->second;
}

static void pass_until(slow_group *s, double end) {
    double left = (end - s->now) / (s->second > 0 ? s->second : 1);
    if (s->second > 0) nanosleep(&(struct timespec){(time_t)left, (long)(fmod(left, 1) * 1e9)}, NULL);
    s->now = end;
}

static ott_status slow_start(group *g, exec *cx, group_request *request) {
    slow_group *s = (slow_group *)g;
    const collective *call = &request->call;
    bool gather = call->kind == COLLECTIVE_ALL_GATHER;
    look_at_clock(s);
    double seconds = (double)tensor_bytes(gather ? call->output : call->input) * s->per_byte;
    s->amaxes += call->kind == COLLECTIVE_ALL_REDUCE && call->reduce == REDUCE_MAX;
    double begin = s->now > s->free_from ? s->now : s->free_from;
    s->free_from = begin + seconds;
    if (gather) {
        s->gathering += seconds;
        s->gathered_bytes += tensor_bytes(call->output);
        s->gathers++;
    }
    int held = units_held(s->m);
    if (held > s->units_held) s->units_held = held;
    TRY(s->inner->table->start(s->inner, cx, request));
    for (int i = 0; i < 64; i++)
        if (s->done[i] == 0) {
            s->done[i] = s->free_from;
            request->call.peer = i; /* these collectives have no peer, so this field can hold i */
            break;
        }
    return OTT_OK;
}

static ott_status slow_wait(group *g, exec *cx, group_request *request) {
    slow_group *s = (slow_group *)g;
    double *done = &s->done[request->call.peer];
    request->call.peer = 0;
    look_at_clock(s);
    if (*done > s->now) {
        if (request->call.kind == COLLECTIVE_ALL_GATHER) s->waited += *done - s->now;
        pass_until(s, *done);
    }
    *done = 0;
    return s->inner->table->wait(s->inner, cx, request);
}

static void slow_close(group *g) {
    group_close(((slow_group *)g)->inner);
}

static const group_table slow_table = {.start = slow_start, .wait = slow_wait, .close = slow_close};

/* A hook of each layer, which advances the time by the layer's GEMMs: one GEMM in forward, where the hook
   gets the output, and two in backward, where it gets the output's gradient. */
static ott_status see(void *user, exec *cx, const char *module, const char *what, const tensor *t) {
    (void)cx;
    (void)module;
    slow_group *s = user;
    look_at_clock(s);
    pass_until(s, s->now + (double)tensor_count(*t) * (strcmp(what, "output") == 0 ? 1 : 2));
    return OTT_OK;
}

/* ---- the trace ---- */

static void see_op(void *user, enum op_index op, const void *args, double began, double seconds) {
    (void)args;
    (void)began;
    (void)seconds;
    slow_group *s = user;
    if (op == OP_INDEX_gemm && s->products < 512) s->product[s->products++] = clock_seconds();
}

static void see_collective(void *user, const collective *call, double began, double seconds, double waited) {
    slow_group *s = user;
    bool meanwhile = false;
    if (call->kind != COLLECTIVE_ALL_GATHER) return;
    for (int i = 0; i < s->products; i++)
        meanwhile |= s->product[i] > began && s->product[i] < began + seconds - waited;
    s->overlapped += meanwhile;
    s->traced++;
}

/* ---- ranks ---- */

typedef struct rank_run {
    tiny t;
    slow_group slow;
    hook hook;
    tensor statistics;
    ott_status (*run)(struct rank_run *r);
} rank_run;

static ott_status pass(exec *cx, void *user) {
    tiny *t = user;
    return model_run(cx, t->m, t->slot, &t->batch, &t->grad_scale, &t->losses);
}

/* A hook of each weight: counts weights, and computes cast statistics of the rows that this rank has. */
static ott_status measure_weight(void *user, exec *cx, const char *module, recipe_tensor which,
                                 const tensor *t, const qtensor *q) {
    (void)module;
    slow_group *s = user;
    rank_run *r = (rank_run *)((char *)s - offsetof(rank_run, slow));
    if (which != TENSOR_WEIGHT) return OTT_OK;
    s->weights_seen++;
    return op_quantize_statistics(cx,
                                  &(quantize_statistics_args){.x = t, .q = q, .statistics = &r->statistics});
}

/* Replays a pass that was recorded before. */
static ott_status run_pass(rank_run *r) {
    tiny *t = &r->t;
    exec_times times = {.on_op = see_op, .on_collective = see_collective, .user = &r->slow};
    TRY(exec_times_open(&times, t->h.device));
    plan_replay(t->h.plan);
    t->h.cx.hook = &r->hook;
    t->h.cx.times = &times;
    ott_status status = pass(&t->h.cx, t);
    t->h.cx.hook = NULL;
    t->h.cx.times = NULL;
    exec_times_close(&times, t->h.device);
    return status;
}

/* Gathers each block as in a pass, without computing. */
static ott_status gather_blocks(rank_run *r) {
    exec cx = r->t.h.cx;
    model *m = r->t.m;
    TRY(plan_create(cx.device, &cx.plan));
    plan_immediate(cx.plan);
    ott_status status = OTT_OK;
    for (int64_t i = 0; i < 2 * m->options.layers && status == OTT_OK; i++) {
        int unit = model_block_unit(i % m->options.layers);
        status =
            store_gather(&cx, &m->store, unit, i < m->options.layers ? WEIGHT_ROWWISE : WEIGHT_COLUMNWISE);
        if (status == OTT_OK) status = store_release(&cx, &m->store, unit);
    }
    plan_destroy(cx.plan);
    return status;
}

static ott_status run_rank(void *argument) {
    rank_run *r = argument;
    ott_status status = r->run(r);
    group_close(&r->slow.group);
    return status;
}

/* What rank 0 measured. */
typedef struct outcome {
    store_traffic traffic;
    slow_group slow;
    double seconds;
    int weights_seen; /* number of weights that all ranks reported */
} outcome;

static outcome measure_in(double second, const model_options *o, const char *name, const store_options *store,
                          double per_byte, ott_status (*run)(rank_run *r)) {
    static rank_run ranks[RANKS];
    group *groups[RANKS];
    thread_groups opened = {0};
    ranks_groups(&opened, RANKS, 1, RANKS, groups);
    memset(ranks, 0, sizeof ranks);
    for (int i = 0; i < RANKS; i++) {
        rank_run *r = &ranks[i];
        model_options own = *o;
        r->slow =
            (slow_group){.group = *groups[i], .inner = groups[i], .per_byte = per_byte, .second = second};
        r->slow.group.table = &slow_table;
        r->hook = (hook){.observe = see, .quantized = measure_weight, .user = &r->slow};
        r->run = run;
        own.shard_ranks = &r->slow.group;
        tiny_open(&r->t, &own, 1, NULL);
        r->slow.m = r->t.m;
        r->statistics = harness_tensor(&r->t.h, OTT_F32, 2, STATISTICS_COUNT);
        r->t.m->store.options = *store;
        HARNESS_OK(model_initialize(r->t.m, 5, 1));
        tiny_convert(&r->t, recipe_find(name), NULL, NULL);
        tiny_random_batch(&r->t, SEQUENCES, LENGTH);
        if (run != gather_blocks) harness_record(&r->t.h, pass, &r->t);
    }
    ranks_run(name, RANKS, ranks, sizeof *ranks, run_rank);
    outcome out = {ranks[0].t.m->store.traffic, ranks[0].slow, ranks[0].slow.now, 0};
    for (int i = 0; i < RANKS; i++) out.weights_seen += ranks[i].slow.weights_seen;
    for (int i = 0; i < RANKS; i++) tiny_close(&ranks[i].t);
    ranks_close(&opened);
    return out;
}

static outcome measure(const model_options *o, const char *name, const store_options *store, double per_byte,
                       ott_status (*run)(rank_run *r)) {
    return measure_in(0, o, name, store, per_byte, run);
}

/* ---- bytes ---- */

static int64_t all_bytes(const store_traffic *t) {
    return t->fp8 + t->bf16 + t->f16 + t->fp32 + t->amax;
}

static model_options blocks_of_124m(void) {
    model_options o = tiny_options();
    o.dim = 768;
    o.layers = 1;
    o.heads = o.kv_heads = 12;
    o.head_dim = 64;
    o.hidden = 2048;
    return o;
}

/* FP8 gathers about half as many bytes as bf16, including norms (in fp32) and amaxes. */
static void fp8_halves_what_travels(void **state) {
    (void)state;
    static const char *const recipes[] = {"tensorwise", "rowwise", "rowwise_with_gw_hp",
                                          "delayed",    "current", "block"};
    model_options o = blocks_of_124m();
    const store_options plain = {0}, masters = {.gather_masters = true};
    outcome bf16 = measure(&o, "bf16", &plain, 0, gather_blocks);
    int64_t elements = 4 * 768 * 768 + 3 * 768 * 2048, norms = 2 * 768;
    assert_int_equal(bf16.traffic.bf16, 2 * 2 * elements);
    assert_int_equal(bf16.traffic.fp32, 2 * 4 * norms);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        outcome fp8 = measure(&o, recipes[i], &plain, 0, gather_blocks);
        assert_int_equal(fp8.traffic.fp8, 2 * elements);
        assert_int_equal(fp8.traffic.bf16, 0);
        assert_int_equal(fp8.traffic.fp32, 2 * 4 * norms);
        assert_int_equal(fp8.slow.gathered_bytes, fp8.traffic.fp8 + fp8.traffic.fp32);
        assert_true((double)all_bytes(&fp8.traffic) <= 0.52 * (double)all_bytes(&bf16.traffic));
    }
    outcome full = measure(&o, "tensorwise", &masters, 0, gather_blocks);
    assert_int_equal(full.traffic.fp8, 0);
    assert_int_equal(full.traffic.fp32, 2 * 4 * (elements + norms));
}

/* The parameters of a block, of the embeddings, or of norm and head are gathered in one collective. */
static void a_unit_is_one_collective(void **state) {
    (void)state;
    model_options o = tiny_options();
    o.layers = 6;
    outcome run = measure(&o, "tensorwise", &(store_options){.reshard = STORE_RESHARD_ALWAYS}, 0, run_pass);
    assert_int_equal(run.slow.gathers, 1 + 6 + 1 + 6);
    assert_true(run.weights_seen >= 6 * 7 + 1);
    run = measure(&o, "tensorwise", &(store_options){.reshard = STORE_RESHARD_DEFAULT}, 0, run_pass);
    assert_int_equal(run.slow.gathers, 1 + 6 + 1 + 5);
    run = measure(&o, "tensorwise", &(store_options){.reshard = STORE_RESHARD_NEVER}, 0, run_pass);
    assert_int_equal(run.slow.gathers, 1 + 6 + 1);
}

static ott_status run_two_micro_batches(rank_run *r) {
    TRY(run_pass(r));
    return run_pass(r);
}

/* Runs passes in two steps. Amaxes of weights are reduced once per step, and again after weights may have
   changed. With precompute_scales this takes one collective. Without, it takes one for each block and one for
   the head. */
static ott_status run_two_steps(rank_run *r) {
    TRY(run_two_micro_batches(r));
    r->t.h.cx.step++;
    TRY(run_pass(r));
    model_weights_changed(r->t.m);
    return run_pass(r);
}

static void scales_take_one_collective(void **state) {
    (void)state;
    model_options o = tiny_options();
    const store_options together = {.precompute_scales = true}, apart = {0};
    o.layers = 6;
    assert_int_equal(measure(&o, "tensorwise", &apart, 0, run_two_micro_batches).slow.amaxes, 6 + 1);
    assert_int_equal(measure(&o, "tensorwise", &together, 0, run_two_micro_batches).slow.amaxes, 1);
    assert_int_equal(measure(&o, "tensorwise", &together, 0, run_two_steps).slow.amaxes, 3);
    assert_int_equal(measure(&o, "bf16", &together, 0, run_two_steps).slow.amaxes, 0);
}

/* ---- aborted passes ---- */

static bool after_some(void *user) {
    int *left = user;
    return (*left)-- <= 0;
}

/* Stops a pass at check n for cancellation, while a gather or a reduction may be in flight. */
static ott_status stop_pass(rank_run *r, int n) {
    int left = n;
    const cancellation w = {.stop = after_some, .user = &left};
    r->t.h.cx.cancellation = &w;
    ott_status status = run_pass(r);
    r->t.h.cx.cancellation = NULL;
    STATUS_REQUIRE(status == OTT_ERR_STOPPED);
    for (int i = 0; i < r->t.m->store.unit_count; i++) STATUS_REQUIRE(!r->t.m->store.units[i].uses);
    return OTT_OK;
}

static ott_status run_around_stops(rank_run *r) {
    static const int products[] = {0, 3, 8, 16, 25, 40};
    TRY(run_pass(r));
    float *before = tiny_losses(&r->t);
    ott_status status = OTT_OK;
    for (size_t i = 0; i < sizeof products / sizeof *products && status == OTT_OK; i++)
        status = stop_pass(r, products[i]);
    if (status == OTT_OK) status = run_pass(r);
    float *after = tiny_losses(&r->t);
    bool same = memcmp(before, after, TOKENS * sizeof *after) == 0;
    free(before);
    free(after);
    TRY(status);
    STATUS_REQUIRE(same);
    return OTT_OK;
}

static void a_stopped_pass_leaves_nothing_behind(void **state) {
    (void)state;
    model_options o = tiny_options();
    measure(&o, "tensorwise", &(store_options){0}, 0, run_around_stops);
    measure(&o, "rowwise", &(store_options){.reshard = STORE_RESHARD_NEVER}, 0, run_around_stops);
}

/* ---- time ---- */

static double hidden_share(const outcome *o) {
    return 1 - o->slow.waited / o->slow.gathering;
}

/* The gather of a block's parameters runs during the GEMMs of the block before it. In these models these
   GEMMs take about three quarters of the gather's time. */
static void the_next_gather_runs_under_this_block(void **state) {
    (void)state;
    static const char *const recipes[] = {"bf16", "tensorwise", "rowwise"};
    model_options o = tiny_options();
    o.layers = 12;
    for (int i = 0; i < 3; i++) {
        double per_byte = i == 0 ? 0.2 : 0.4;
        outcome ahead = measure(&o, recipes[i], &(store_options){0}, per_byte, run_pass);
        outcome behind = measure(&o, recipes[i], &(store_options){.no_prefetch = true}, per_byte, run_pass);
        double hidden = hidden_share(&ahead);
        print_message("%s: gathers take %.0f of %.0f; %.0f%% hidden, %.0f%% without prefetch\n", recipes[i],
                      ahead.slow.gathering, ahead.seconds, 100 * hidden, 100 * hidden_share(&behind));
        assert_true(hidden >= 0.7);
        assert_true(behind.slow.waited >= 0.99 * behind.slow.gathering);
        assert_true(ahead.seconds < behind.seconds);
        assert_true(ahead.slow.units_held <= 3); /* two units, and the last unit until the loss is done */
        assert_true(behind.slow.units_held <= 2);
        assert_int_equal(ahead.slow.traced, ahead.slow.gathers);
        /* all gathers overlap, except the token table's and the first block's */
        assert_true(ahead.slow.overlapped >= ahead.slow.gathers - 2);
        assert_int_equal(behind.slow.overlapped, 0);
    }
}

/* Measures in real time how much of the gathers' time overlaps with GEMMs. On a busy machine GEMMs take
   longer, so the overlap is larger. */
static void it_does_so_in_real_time(void **state) {
    (void)state;
    enum { REAL_SECONDS = 1 };
    model_options o = tiny_options();
    const store_options plain = {0}, none = {.no_prefetch = true};
    o.layers = 12;
    double second = measure(&o, "tensorwise", &plain, 0.4, run_pass).seconds / REAL_SECONDS;
    outcome ahead = measure_in(second, &o, "tensorwise", &plain, 0.4, run_pass);
    outcome behind = measure_in(second, &o, "tensorwise", &none, 0.4, run_pass);
    print_message("real time: %.0f%% hidden, %.0f%% without prefetch\n", 100 * hidden_share(&ahead),
                  100 * hidden_share(&behind));
    assert_true(hidden_share(&ahead) >= 0.7);
    assert_true(hidden_share(&behind) < 0.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp8_halves_what_travels),
        cmocka_unit_test(a_unit_is_one_collective),
        cmocka_unit_test(scales_take_one_collective),
        cmocka_unit_test(a_stopped_pass_leaves_nothing_behind),
        cmocka_unit_test(the_next_gather_runs_under_this_block),
        cmocka_unit_test(it_does_so_in_real_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
