/*
 * Groups of emulated GPUs, one thread per GPU, over the NCCL stand-in (nccl.c). The collectives of tests/comm
 * give the same bits as over any other transport. If a rank leaves or hangs, the ranks that wait for it fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "comm/collectives.h"
#include "comm/links.h"
#include "comm/ranks.h"
#include "cuda/cuda.h"
#include "cudart.h"

/* ---- the transport ---- */

static ott_status refuse_link(device *d, const device_group *own, device_link *out) {
    (void)d, (void)own, (void)out;
    return status_fail(OTT_ERR_UNSUPPORTED, "no library");
}

typedef struct gpu_rank {
    int index;
    bool refuses; /* this rank's GPU cannot communicate with the others */
    group *control;
    double timeout;
} gpu_rank;

static ott_status open_rank(rank_run *r, gpu_rank *k) {
    int ranks[RANKS_MAX];
    device_table refusing;
    TRY(mem_open(&r->account));
    TRY(cuda_open(r->account, k->index, false, &r->cx.device));
    const device_table *original = r->cx.device->table;
    refusing = *original;
    refusing.make_link = refuse_link;
    if (k->refuses) r->cx.device->table = &refusing;
    for (int i = 0; i < k->control->size; i++) ranks[i] = i;
    ott_status status = links_open(r->account,
                                   &(links_options){.device = r->cx.device,
                                                    .control = k->control,
                                                    .ranks = ranks,
                                                    .count = k->control->size,
                                                    .name = "test",
                                                    .timeout = k->timeout,
                                                    .messages = true},
                                   &r->group);
    r->cx.device->table = original;
    return status;
}

static ott_status run_rank(void *argument) {
    gpu_rank *k = argument;
    rank_run *r = &collectives_ranks[k->index];
    TRY(open_rank(r, k));
    collectives_run_rank(r);
    return OTT_OK;
}

/* A group of one GPU does not communicate. */
static ott_status run_single_rank(void *argument) {
    rank_run *r = &collectives_ranks[0];
    r->group = ((gpu_rank *)argument)->control;
    collectives_run_rank(r);
    return OTT_OK;
}

void collectives_run(int size, double timeout, rank_body body) {
    gpu_rank ranks[RANKS_MAX];
    group *control[RANKS_MAX];
    thread_groups opened = {0};
    memset(collectives_ranks, 0, sizeof collectives_ranks);
    ranks_groups(&opened, size, 1, size, control);
    for (int i = 0; i < size; i++) {
        collectives_ranks[i].body = body;
        ranks[i] = (gpu_rank){.index = i, .control = control[i], .timeout = timeout};
    }
    ranks_run("collectives", size, ranks, sizeof *ranks, size == 1 ? run_single_rank : run_rank);
    ranks_close(&opened);
}

/* ---- failures ---- */

static void expect_failure(int size, int rank, const char *text) {
    for (int i = 0; i < size; i++) {
        if (i != rank) continue;
        assert_int_equal(collectives_ranks[i].status, OTT_ERR_RANK);
        if (!strstr(collectives_ranks[i].text, text))
            fail_msg("rank %d: \"%s\" lacks \"%s\"", i, collectives_ranks[i].text, text);
    }
}

/* All ranks but rank 1 reduce a tensor. Rank 1 returns instead, so they must fail to copy the sum out. */
static ott_status reduce_once(rank_run *r) {
    float got;
    tensor t = tensor_vector(r->in, OTT_F32, 1);
    if (r->group->rank == 1) return OTT_OK;
    TRY(group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM));
    return device_copy_out(r->cx.device, &got, r->in, sizeof got);
}

static void a_rank_that_leaves_ends_those_who_wait(void **state) {
    (void)state;
    collectives_run(3, 30, reduce_once);
    expect_failure(3, 0, "NCCL: remote process exited");
    expect_failure(3, 2, "NCCL: remote process exited");
}

/* Each of two ranks waits for a message from the other rank, and no rank sends one. */
static ott_status wait_for_each_other(rank_run *r) {
    collective call = {
        .kind = COLLECTIVE_RECEIVE, .output = tensor_vector(r->out, OTT_F32, 1), .peer = 1 - r->group->rank};
    TRY(group_run(r->group, &r->cx, &call));
    return device_synchronize(r->cx.device);
}

static void a_rank_that_hangs_ends_in_time(void **state) {
    (void)state;
    collectives_run(2, 0.05, wait_for_each_other);
    for (int i = 0; i < 2; i++) assert_int_equal(collectives_ranks[i].status, OTT_ERR_RANK);
    if (!strstr(collectives_ranks[0].text,
                "receive, collective number 0 of test, on rank 0: another rank did not join in time") &&
        !strstr(collectives_ranks[1].text, "on rank 1: another rank did not join in time"))
        fail_msg("\"%s\", \"%s\"", collectives_ranks[0].text, collectives_ranks[1].text);
}

/* Waits for messages on two channels. Messages on different channels do not wait for each other. */
static ott_status wait_on_two_channels(rank_run *r) {
    tensor sum = tensor_vector(r->in, OTT_F32, 1), got = tensor_vector(r->out, OTT_F32, 1);
    group_request reduction, message;
    if (r->group->rank == 1) return OTT_OK;
    TRY(group_start(r->group, &r->cx,
                    &(collective){.kind = COLLECTIVE_ALL_REDUCE, .input = sum, .output = sum}, &reduction));
    TRY(group_start(r->group, &r->cx, &(collective){.kind = COLLECTIVE_RECEIVE, .output = got, .peer = 1},
                    &message));
    ott_status first = group_wait(&r->cx, &reduction), second = group_wait(&r->cx, &message),
               both = device_synchronize(r->cx.device);
    return first != OTT_OK ? first : second != OTT_OK ? second : both;
}

static void all_channels_are_ended_together(void **state) {
    (void)state;
    collectives_run(2, 30, wait_on_two_channels);
    expect_failure(2, 0, "NCCL: remote process exited");
}

static atomic_bool has_left;

static ott_status give_up_or_stay(rank_run *r) {
    if (r->group->rank == 0) {
        while (!has_left) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return OTT_OK;
    }
    group_abandon(r->group);
    group_close(r->group);
    r->group = NULL;
    has_left = true;
    return OTT_OK;
}

static void a_rank_that_gives_up_aborts_only_itself(void **state) {
    (void)state;
    collectives_run(2, 30, give_up_or_stay);
    assert_int_equal(collectives_ranks[0].status, OTT_OK);
    expect_failure(2, 1, "this rank has left the group after an error");
}

/* A rank has channels only to its neighbors, so a send to another rank fails. */
static ott_status send_across(rank_run *r) {
    if (r->group->rank > 0) return OTT_OK;
    return group_run(
        r->group, &r->cx,
        &(collective){.kind = COLLECTIVE_SEND, .input = tensor_vector(r->in, OTT_F32, 1), .peer = 2});
}

static void messages_are_between_neighbours(void **state) {
    (void)state;
    collectives_run(4, 30, send_across);
    assert_int_equal(collectives_ranks[0].status, OTT_ERR_UNSUPPORTED);
}

static ott_status try_open(void *argument) {
    gpu_rank *k = argument;
    rank_run *r = &collectives_ranks[k->index];
    ott_status status = open_rank(r, k);
    device_close(r->cx.device);
    mem_close(r->account);
    return status;
}

static void all_ranks_fail_if_a_gpu_has_no_peer(void **state) {
    (void)state;
    group *control[2];
    thread_groups opened = {0};
    ranks_end ends[2];
    memset(collectives_ranks, 0, sizeof collectives_ranks);
    ranks_groups(&opened, 2, 1, 2, control);
    gpu_rank ranks[] = {{.index = 0, .control = control[0]},
                        {.index = 1, .control = control[1], .refuses = true}};
    ranks_try(2, ranks, sizeof *ranks, try_open, ends);
    assert_int_equal(ends[0].status, OTT_ERR_RANK);
    assert_non_null(strstr(ends[0].text, "rank 1 cannot join the group of devices test"));
    assert_int_equal(ends[1].status, OTT_ERR_UNSUPPORTED);
    assert_string_equal(ends[1].text, "no library");
    ranks_close(&opened);
}

/* Messages use memory that the group allocates. Closing the group frees it. */
static ott_status count_memory(rank_run *r) {
    tensor t = tensor_vector(r->in, OTT_F32, COLLECTIVES_COUNT);
    int64_t before = device_taken(r->cx.device).now_of[MEM_COMM];
    TRY(group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM));
    r->out[0] = (float)(device_taken(r->cx.device).now_of[MEM_COMM] - before);
    for (int i = 0; i < 3; i++) TRY(group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM));
    r->out[1] = (float)(device_taken(r->cx.device).now_of[MEM_COMM] - before);
    return OTT_OK;
}

static void memory_between_ranks_is_counted_and_used_again(void **state) {
    (void)state;
    collectives_run(2, 30, count_memory);
    assert_int_equal(collectives_ranks[0].status, OTT_OK);
    assert_true(collectives_ranks[0].out_after[0] == 2 * COLLECTIVES_COUNT * sizeof(float));
    assert_true(collectives_ranks[0].out_after[1] == collectives_ranks[0].out_after[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_leaves_ends_those_who_wait),
        cmocka_unit_test(a_rank_that_hangs_ends_in_time),
        cmocka_unit_test(all_channels_are_ended_together),
        cmocka_unit_test(a_rank_that_gives_up_aborts_only_itself),
        cmocka_unit_test(messages_are_between_neighbours),
        cmocka_unit_test(all_ranks_fail_if_a_gpu_has_no_peer),
        cmocka_unit_test(memory_between_ranks_is_counted_and_used_again),
    };
    setenv(CUDART_DEVICES, "4", 1);
    int failed = collectives_test_moves();
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
