/*
 * Delayed scaling over ranks. The amaxes of some tensors are reduced: one collective takes their maximum over
 * all ranks. The amaxes of all other tensors stay different on each rank.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/ranks.h"
#include "nn/linear/delayed.h"
#include "nn/layer_harness.h"

enum { RANKS = 3, STATES = 5 };

static const cast_spec reduced = {
    .format = OTT_E4M3, .scale = {.rule = SCALE_TE}, .policy = AMAX_DELAYED, .history = 4, .reduce = true};
static const cast_spec own = {
    .format = OTT_E5M2, .scale = {.rule = SCALE_TE}, .policy = AMAX_DELAYED, .history = 2};

/* A group that forwards all collectives to another group and counts them. */
typedef struct counting_group {
    group group; /* must be first: functions cast a pointer to it to counting_group */
    group *inner;
    int started;
    int64_t elements;
} counting_group;

static ott_status counting_start(group *g, exec *cx, group_request *request) {
    counting_group *c = (counting_group *)g;
    c->started++;
    c->elements += tensor_count(request->call.input);
    return c->inner->table->start(c->inner, cx, request);
}

static ott_status counting_wait(group *g, exec *cx, group_request *request) {
    counting_group *c = (counting_group *)g;
    return c->inner->table->wait(c->inner, cx, request);
}

static const group_table counting_table = {.start = counting_start, .wait = counting_wait};

typedef struct rank_run {
    harness h;
    counting_group ranks;
    delayed_store store;
    delayed_state states[STATES];
} rank_run;

static ott_status reduce(void *argument) {
    rank_run *r = argument;
    return delayed_reduce(&r->h.cx, &r->store, &r->ranks.group);
}

static const cast_spec *spec_of(int state) {
    const cast_spec *specs[STATES] = {&own, &reduced, NULL, &own, &reduced};
    return specs[state];
}

/* Returns the amax of delayed-scaling state number `state` on a rank. It differs between ranks. */
static float seen_on(int rank, int state) {
    return (float)((rank + state) % RANKS + 10 * state);
}

static void open_rank(rank_run *r, group *inner) {
    delayed_request wanted[STATES];
    harness_open(&r->h, 1, NULL);
    plan_immediate(r->h.plan);
    r->ranks = (counting_group){.group = *inner, .inner = inner};
    r->ranks.group.table = &counting_table;
    for (int i = 0; i < STATES; i++)
        wanted[i] = (delayed_request){.state = &r->states[i], .spec = spec_of(i)};
    HARNESS_OK(delayed_store_set(&r->store, r->h.device, wanted, STATES));
    for (int i = 0; i < STATES; i++) {
        float seen = seen_on(inner->rank, i);
        if (spec_of(i)) HARNESS_OK(device_copy_in(r->h.device, r->states[i].seen.data, &seen, sizeof seen));
    }
}

static void what_asks_for_it_is_reduced_at_once(void **state) {
    (void)state;
    static rank_run ranks[RANKS];
    group *groups[RANKS];
    thread_groups opened = {0};
    ranks_groups(&opened, RANKS, 1, RANKS, groups);
    for (int r = 0; r < RANKS; r++) open_rank(&ranks[r], groups[r]);
    ranks_run("states", RANKS, ranks, sizeof *ranks, reduce);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].ranks.started, 1);
        assert_int_equal(ranks[r].ranks.elements, 2);
        assert_null(ranks[r].states[2].seen.data);
        for (int i = 0; i < STATES; i++) {
            float seen;
            if (!spec_of(i)) continue;
            HARNESS_OK(device_copy_out(ranks[r].h.device, &seen, ranks[r].states[i].seen.data, sizeof seen));
            assert_true(seen == (spec_of(i)->reduce ? (float)(RANKS - 1 + 10 * i) : seen_on(r, i)));
        }
        delayed_store_release(&ranks[r].store, ranks[r].h.device);
    }
    for (int r = 0; r < RANKS; r++) harness_close(&ranks[r].h);
    ranks_close(&opened);
}

/* States with reduced amaxes are stored together. If the recipe reduces the amaxes of more states, the
   remaining states move in memory, but keep their values. */
static void moved_states_keep_their_values(void **state) {
    (void)state;
    static rank_run r;
    group single_rank = {.size = 1};
    delayed_request wanted[STATES];
    float scale = 0.25f, found;
    open_rank(&r, &single_rank);
    harness_put(&r.h, &r.states[3].scale, &scale);
    for (int i = 0; i < STATES; i++)
        wanted[i] = (delayed_request){
            .state = &r.states[i], .spec = i == 3 ? &own : &reduced, .is_input = i % 2 == 0};
    HARNESS_OK(delayed_store_set(&r.store, r.h.device, wanted, STATES));
    assert_int_equal(r.store.reduced, STATES - 1);
    harness_get(&r.h, &r.states[3].scale, &found);
    assert_true(found == scale);
    delayed_store_release(&r.store, r.h.device);
    harness_close(&r.h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_asks_for_it_is_reduced_at_once),
        cmocka_unit_test(moved_states_keep_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
