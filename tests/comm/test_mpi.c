/*
 * Ranks as processes: the tests of collectives.c, with four of them started by mpirun (tests/CMakeLists.txt). What each rank
 * found goes to all, through a group of its own, and all judge it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "comm/collectives.h"
#include "comm/mpi.h"
#include "cpu/cpu.h"

static group *all;

static void open_group(int first, int size, double timeout, group **out) {
    int members[RANKS_MAX];
    for (int i = 0; i < size; i++) members[i] = first + i;
    if (mpi_group_open(members, size, "", timeout, out) != OTT_OK) fail_msg("%s", status_text());
}

/* Ranks that are not asked are each in a group of one. */
static void share_results(void) {
    group *whole;
    rank_run own = collectives_ranks[all->rank], *every = collectives_ranks;
    exec cx = {0};
    mem *account;
    open_group(0, all->size, 30, &whole);
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(cpu_open(account, 1, "scalar", &cx.device), OTT_OK);
    collective gather = {.kind = COLLECTIVE_ALL_GATHER,
                         .input = tensor_matrix(&own, OTT_E4M3, 1, sizeof own),
                         .output = tensor_matrix(every, OTT_E4M3, RANKS_MAX, sizeof own)};
    if (group_run(whole, &cx, &gather) != OTT_OK) fail_msg("%s", status_text());
    group_close(whole);
    device_close(cx.device);
    mem_close(account);
}

void collectives_run(int size, double timeout, rank_body body) {
    bool member = all->rank < size;
    rank_run *own = &collectives_ranks[all->rank];
    memset(collectives_ranks, 0, sizeof collectives_ranks);
    open_group(member ? 0 : all->rank, member ? size : 1, timeout, &own->group);
    own->body = body;
    if (member)
        collectives_run_rank(own);
    else
        group_close(own->group);
    share_results();
}

int main(void) {
    if (mpi_join(30, &all) != OTT_OK || all->size != RANKS_MAX) {
        fprintf(stderr, "comm.mpi wants %d ranks: mpirun -np %d: %s\n", RANKS_MAX, RANKS_MAX, status_text());
        return 1;
    }
    return collectives_test();
}
