/* Runs the tests of collectives.c with threads as ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>

#include "comm/collectives.h"
#include "comm/threads.h"

static void *run_thread(void *r) {
    collectives_run_rank(r);
    return NULL;
}

void collectives_run(int size, double timeout, rank_body body) {
    mem *account;
    threads_group *group_of_threads;
    pthread_t threads[RANKS_MAX];
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(threads_group_open(account, size, timeout, &group_of_threads), OTT_OK);
    memset(collectives_ranks, 0, sizeof collectives_ranks);
    for (int i = 0; i < size; i++) {
        collectives_ranks[i].body = body;
        collectives_ranks[i].group = threads_group_of_rank(group_of_threads, i);
        pthread_create(&threads[i], NULL, run_thread, &collectives_ranks[i]);
    }
    for (int i = 0; i < size; i++) pthread_join(threads[i], NULL);
    threads_group_close(group_of_threads);
    mem_close(account);
}

int main(void) {
    return collectives_test();
}
