#include "comm/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <pthread.h>

void ranks_group(thread_groups *w, const int *ranks, int size, group **out) {
    threads_group *opened;
    assert_in_range(w->count, 0, THREAD_GROUPS_MAX - 1);
    if (!w->account) assert_int_equal(mem_open(&w->account), OTT_OK);
    assert_int_equal(threads_group_open(w->account, size, 60, &opened), OTT_OK);
    w->opened[w->count++] = opened;
    for (int i = 0; i < size; i++) out[ranks[i]] = threads_group_of_rank(opened, i);
}

void ranks_groups(thread_groups *w, int count, int stride, int size, group **out) {
    int *ranks = calloc((size_t)size, sizeof *ranks);
    assert_non_null(ranks);
    for (int r = 0; r < count; r++) {
        if (r / stride % size != 0) continue;
        for (int i = 0; i < size; i++) ranks[i] = r + i * stride;
        ranks_group(w, ranks, size, out);
    }
    free(ranks);
}

void ranks_close(thread_groups *w) {
    for (int i = 0; i < w->count; i++) threads_group_close(w->opened[i]);
    mem_close(w->account);
}

typedef struct rank_thread {
    pthread_t handle;
    ott_status (*job)(void *rank);
    void *rank;
    ranks_end *end;
} rank_thread;

static void *run_rank(void *argument) {
    rank_thread *t = argument;
    t->end->status = t->job(t->rank);
    if (t->end->status != OTT_OK) snprintf(t->end->text, sizeof t->end->text, "%s", status_text());
    return NULL;
}

void ranks_try(int count, void *ranks, size_t bytes, ott_status (*job)(void *rank), ranks_end *ends) {
    rank_thread *threads = calloc((size_t)count, sizeof *threads);
    assert_non_null(threads);
    for (int r = 0; r < count; r++) {
        threads[r] = (rank_thread){.job = job, .rank = (char *)ranks + (size_t)r * bytes, .end = &ends[r]};
        ends[r] = (ranks_end){0};
        assert_int_equal(pthread_create(&threads[r].handle, NULL, run_rank, &threads[r]), 0);
    }
    for (int r = 0; r < count; r++) pthread_join(threads[r].handle, NULL);
    free(threads);
}

void ranks_run(const char *what, int count, void *ranks, size_t bytes, ott_status (*job)(void *rank)) {
    ranks_end *ends = calloc((size_t)count, sizeof *ends);
    assert_non_null(ends);
    ranks_try(count, ranks, bytes, job, ends);
    for (int r = 0; r < count; r++)
        if (ends[r].status != OTT_OK) fail_msg("%s, rank %d of %d: %s", what, r, count, ends[r].text);
    free(ends);
}
