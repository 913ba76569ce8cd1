/*
 * Runs the tests of collectives.c with four processes of mpirun as ranks (tests/CMakeLists.txt). A second
 * group sends the results to all ranks, which check them. Some tests are only for processes: in one, two
 * groups are used at the same time, in different orders on the ranks. With the argument "give-up", each rank
 * calls mpi_give_up while a collective runs, which ends the processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "comm/collectives.h"
#include "comm/mpi.h"
#include "cpu/cpu.h"

static int own_rank, rank_count;
static mem *group_account; /* memory account of the groups */

static void open_group(int first, int step, int size, double timeout, group **out) {
    int members[RANKS_MAX] = {0};
    for (int i = 0; i < size; i++) members[i] = first + i * step;
    if (mpi_group_open(group_account, members, size, "", timeout, out) != OTT_OK)
        fail_msg("%s", status_text());
}

/* Gathers the results of every rank on all ranks. */
static void share_results(void) {
    group *all_ranks;
    rank_run own = collectives_ranks[own_rank], *every = collectives_ranks;
    exec cx = {0};
    mem *account;
    open_group(0, 1, rank_count, 30, &all_ranks);
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(cpu_open(account, 1, "scalar", &cx.device), OTT_OK);
    collective gather = {.kind = COLLECTIVE_ALL_GATHER,
                         .input = tensor_matrix(&own, OTT_E4M3, 1, sizeof own),
                         .output = tensor_matrix(every, OTT_E4M3, RANKS_MAX, sizeof own)};
    if (group_run(all_ranks, &cx, &gather) != OTT_OK) fail_msg("%s", status_text());
    group_close(all_ranks);
    device_close(cx.device);
    mem_close(account);
}

void collectives_run(int size, double timeout, rank_body body) {
    bool member = own_rank < size;
    rank_run *own = &collectives_ranks[own_rank];
    memset(collectives_ranks, 0, sizeof collectives_ranks);
    open_group(member ? 0 : own_rank, 1, member ? size : 1, timeout, &own->group);
    own->body = body;
    if (member)
        collectives_run_rank(own);
    else
        group_close(own->group);
    share_results();
}

/* ---- crossing groups ---- */

enum { ROUNDS = 300, MOST_BITS = 18, MOST = 2 << MOST_BITS };

/* Each of four ranks is in two groups, as in a mesh of dp_shard 2 and tp 2. pair: ranks 0 and 1, or 2 and 3.
   across: ranks 0 and 2, or 1 and 3. */
typedef struct crossing {
    exec cx;
    group *pair, *across;
    float *sum, *parts;
    uint64_t seed; /* equal on all ranks */
} crossing;

/* Draws a number of elements. Most are small. */
static int64_t draw_count(crossing *c) {
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    int64_t limit = INT64_C(1) << (1 + (c->seed >> 33) % MOST_BITS);
    return (int64_t)(c->seed >> 40) % limit;
}

static float cell(int rank, int64_t i) {
    return (float)((i * 7 + rank * 13) % 1001);
}

static collective draw_sum(crossing *c) {
    tensor t = tensor_vector(c->sum, OTT_F32, draw_count(c));
    for (int64_t i = 0; i < t.columns; i++) c->sum[i] = cell(own_rank, i);
    return (collective){.kind = COLLECTIVE_ALL_REDUCE, .input = t, .output = t};
}

static collective draw_gather(crossing *c, int64_t rows[2]) {
    for (int k = 0; k < 2; k++) rows[k] = draw_count(c);
    tensor all_ranks = tensor_matrix(c->parts, OTT_F32, rows[0] + rows[1], 1);
    tensor own = tensor_rows(all_ranks, c->across->rank * rows[0], rows[c->across->rank]);
    for (int64_t i = 0; i < own.rows; i++) ((float *)own.data)[i] = cell(own_rank, i);
    return (collective){
        .kind = COLLECTIVE_ALL_GATHER, .input = own, .output = all_ranks, .output_rows = rows};
}

static void check_sum(const crossing *c, const collective *call) {
    int first = own_rank / 2 * 2;
    for (int64_t i = 0; i < call->output.columns; i++)
        if (c->sum[i] != cell(first, i) + cell(first + 1, i)) fail_msg("sum of %lld", (long long)i);
}

static void check_gather(const crossing *c, const int64_t rows[2]) {
    const float *at = c->parts;
    for (int k = 0; k < 2; at += rows[k++])
        for (int64_t i = 0; i < rows[k]; i++)
            if (at[i] != cell(own_rank % 2 + 2 * k, i)) fail_msg("part %d, %lld", k, (long long)i);
}

/* Runs a gather in one group and sums in the other at the same time. Some ranks start the gather first, the
   others a sum. */
static ott_status cross(crossing *c) {
    int64_t rows[2];
    group_request gathering, summing;
    collective gather = draw_gather(c, rows), sum = draw_sum(c);
    bool sum_first = own_rank % 3 == 0;
    if (sum_first) TRY(group_start(c->pair, &c->cx, &sum, &summing));
    TRY(group_start(c->across, &c->cx, &gather, &gathering));
    if (!sum_first) TRY(group_start(c->pair, &c->cx, &sum, &summing));
    TRY(group_wait(&c->cx, &summing));
    check_sum(c, &sum);
    for (int64_t more = draw_count(c) % 4; more > 0; more--) {
        sum = draw_sum(c);
        TRY(group_run(c->pair, &c->cx, &sum));
        check_sum(c, &sum);
    }
    TRY(group_wait(&c->cx, &gathering));
    check_gather(c, rows);
    return OTT_OK;
}

static void crossing_groups_do_not_wait_for_each_other(void **state) {
    crossing c = {.seed = 1};
    mem *account;
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(cpu_open(account, 1, "scalar", &c.cx.device), OTT_OK);
    c.sum = malloc(MOST * sizeof *c.sum);
    c.parts = malloc(2 * MOST * sizeof *c.parts);
    assert_true(c.sum && c.parts);
    open_group(own_rank / 2 * 2, 1, 2, 60, &c.pair);
    open_group(own_rank % 2, 2, 2, 60, &c.across);
    for (int i = 0; i < ROUNDS; i++)
        if (cross(&c) != OTT_OK) fail_msg("round %d: %s", i, status_text());
    group_close(c.across);
    group_close(c.pair);
    free(c.sum);
    free(c.parts);
    device_close(c.cx.device);
    mem_close(account);
}

/* ---- giving up ---- */

static atomic_bool moving;

/* Replaces the device's copy. It is slow, so that another rank calls mpi_give_up while it runs. */
static ott_status copy_slowly(device *d, void *to, const void *from, int64_t bytes) {
    (void)d;
    moving = true;
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    memcpy(to, from, (size_t)bytes);
    return OTT_OK;
}

static int give_up_while_data_move(void) {
    float value = 1;
    tensor t = tensor_vector(&value, OTT_F32, 1);
    exec cx = {0};
    group *all;
    group_request request;
    mem *account;
    open_group(0, 1, rank_count, 30, &all);
    if (mem_open(&account) != OTT_OK || cpu_open(account, 1, "scalar", &cx.device) != OTT_OK) return 1;
    device_table slow = *cx.device->table;
    slow.copy_in = copy_slowly;
    cx.device->table = &slow;
    collective sum = {.kind = COLLECTIVE_ALL_REDUCE, .input = t, .output = t};
    if (group_start(all, &cx, &sum, &request) != OTT_OK) return 1;
    while (!moving) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    bool reports = mpi_give_up(OTT_ERR_RANK, "enough");
    (void)group_wait(&cx, &request); /* returns when the request is done or has failed */
    if (reports && group_run(all, &cx, &sum) == OTT_ERR_RANK) printf("gave up: %s\n", status_text());
    fflush(stdout);
    return 0;
}

/* ---- memory ---- */

static void a_group_takes_what_it_says_and_gives_it_back(void **state) {
    group *g;
    (void)state;
    int64_t before = mem_read(group_account).now;
    for (int size = 1; size <= rank_count; size += rank_count - 1) {
        open_group(size == 1 ? own_rank : 0, 1, size, 30, &g);
        assert_int_equal(mem_read(group_account).now - before, mpi_group_bytes(size));
        assert_int_equal(mem_read(group_account).now_of[MEM_COMM], mem_read(group_account).now);
        group_close(g);
        assert_int_equal(mem_read(group_account).now, before);
    }
}

/* A failed group's memory is not freed, because MPI may still write to it. Such memory is not counted in the
   account in which the group was opened. */
static void what_a_failed_group_took_stays_on_another_account(void **state) {
    (void)state;
    assert_int_equal(mem_read(group_account).now, 0); /* this test runs after those in which groups fail */
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_failed_group_took_stays_on_another_account),
        cmocka_unit_test(a_group_takes_what_it_says_and_gives_it_back),
        cmocka_unit_test(crossing_groups_do_not_wait_for_each_other),
    };
    if (mpi_join(&own_rank, &rank_count) != OTT_OK || rank_count != RANKS_MAX) {
        fprintf(stderr, "comm.mpi needs %d ranks: mpirun -np %d: %s\n", RANKS_MAX, RANKS_MAX, status_text());
        return 1;
    }
    if (mem_open(&group_account) != OTT_OK) return 1;
    if (count > 1 && strcmp(arguments[1], "give-up") == 0) return give_up_while_data_move();
    return collectives_test() + cmocka_run_group_tests(tests, NULL, NULL);
}
