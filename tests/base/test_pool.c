/*
 * The thread pool: each thread runs its share once per round. Also tests more threads than cores, rounds
 * after threads slept, failures, and how work is split into shares.
 */
#include "base/pool.h"
#include <sched.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static mem *m;

static int open_account(void **state) {
    (void)state;
    return mem_open(&m) != OTT_OK;
}

static int close_account(void **state) {
    (void)state;
    int64_t left = mem_read(m).now;
    mem_close(m);
    return left != 0;
}

enum { MOST = 64 };

/* The sums are not atomic on purpose: the pool must order the accesses of a round before the next round. */
typedef struct tally {
    int64_t runs[MOST];
    int64_t sum; /* written by thread 0: the sum of all threads' results of the previous round */
    int threads;
} tally;

static void count_run(void *argument, int thread, int threads) {
    tally *t = argument;
    t->threads = threads;
    t->runs[thread]++;
}

static void count_own_run(void *argument, int thread, int threads) {
    tally *t = argument;
    (void)threads;
    t->runs[thread]++;
}

static void test_every_share_runs_once_a_round(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 5, 16, MOST};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        pool *p;
        tally t = {0};
        int rounds = sizes[s] > 8 ? 60 : 1000;
        assert_int_equal(pool_open(m, sizes[s], &p), OTT_OK);
        assert_int_equal(pool_threads(p), sizes[s]);
        for (int round = 1; round <= rounds; round++) {
            pool_run(p, count_own_run, &t);
            for (int i = 0; i < sizes[s]; i++) assert_int_equal(t.runs[i], round);
        }
        pool_close(p);
    }
}

/* Each thread reads the result that its neighbor wrote in the previous round. */
static void pass_on(void *argument, int thread, int threads) {
    int64_t(*cell)[MOST] = argument;
    int64_t round = cell[2][0];
    cell[(round + 1) % 2][thread] = cell[round % 2][(thread + 1) % threads] + 1;
}

static void test_rounds_are_ordered(void **state) {
    (void)state;
    enum { THREADS = 4, ROUNDS = 2000 };
    static int64_t cell[3][MOST];
    pool *p;
    memset(cell, 0, sizeof cell);
    assert_int_equal(pool_open(m, THREADS, &p), OTT_OK);
    for (int64_t round = 0; round < ROUNDS; round++) {
        cell[2][0] = round;
        pool_run(p, pass_on, cell);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(cell[ROUNDS % 2][i], ROUNDS);
    pool_close(p);
}

static void sleep_unevenly(void *argument, int thread, int threads) {
    if (thread == threads - 1) usleep(2000);
    count_own_run(argument, thread, threads);
}

static void test_sleepers_wake(void **state) {
    (void)state;
    pool *p;
    tally t = {0};
    assert_int_equal(pool_open(m, 2, &p), OTT_OK);
    for (int round = 0; round < 20; round++) {
        /* workers spin for less than 2 ms and then sleep, so pool_run must wake them */
        usleep(2000);
        pool_run(p, sleep_unevenly, &t);
    }
    assert_int_equal(t.runs[0], 20);
    assert_int_equal(t.runs[1], 20);
    pool_close(p);
}

static void test_two_pools_side_by_side(void **state) {
    (void)state;
    pool *p, *q;
    tally t = {0}, u = {0};
    assert_int_equal(pool_open(m, 3, &p), OTT_OK);
    assert_int_equal(pool_open(m, 2, &q), OTT_OK);
    for (int i = 0; i < 100; i++) {
        pool_run(p, count_own_run, &t);
        pool_run(q, count_own_run, &u);
    }
    assert_int_equal(t.runs[2], 100);
    assert_int_equal(u.runs[1], 100);
    assert_int_equal(u.runs[2], 0);
    pool_close(p);
    pool_close(q);
}

static void test_thread_counts(void **state) {
    (void)state;
    pool *p = NULL;
    tally t = {0};
    assert_int_equal(pool_open(m, 0, &p), OTT_OK);
    int cores = pool_threads(p);
    assert_in_range(cores, 1, sysconf(_SC_NPROCESSORS_CONF));
    pool_close(p);
    assert_int_equal(pool_open(m, 1, &p), OTT_OK);
    pool_run(p, count_run, &t);
    assert_int_equal(t.threads, 1);
    assert_int_equal(t.runs[0], 1);
    pool_close(p);
    assert_int_equal(pool_open(m, -3, &p), OTT_ERR_ARGUMENT);
    assert_null(p);
    assert_non_null(strstr(status_text(), "-3"));
    assert_int_equal(pool_open(m, 1000000, &p), OTT_ERR_ARGUMENT);
    pool_close(NULL);
}

static void test_failure_frees_everything(void **state) {
    (void)state;
    for (int n = 1; n <= 2; n++) {
        pool *p = (pool *)&p;
        mem_fail_after(m, n);
        assert_int_equal(pool_open(m, 3, &p), OTT_ERR_MEMORY);
        assert_null(p);
        assert_int_equal(mem_read(m).now, 0);
    }
}

static void test_shares_cover_the_work_once(void **state) {
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 7, 63, 64, 65, 1000, 4097};
    static const int64_t grains[] = {1, 2, 3, 16, 64, 5000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++)
            for (int threads = 1; threads <= 9; threads++) {
                int64_t at = 0, begin, end, least = INT64_MAX, most = 0;
                for (int t = 0; t < threads; t++) {
                    pool_share(counts[c], grains[g], t, threads, &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(end >= begin && end <= counts[c]);
                    assert_true(begin % grains[g] == 0 || begin == counts[c]);
                    int64_t taken = (end - begin + grains[g] - 1) / grains[g];
                    least = taken < least ? taken : least;
                    most = taken > most ? taken : most;
                    at = end;
                }
                assert_int_equal(at, counts[c]);
                assert_true(most - least <= 1);
            }
    int64_t begin, end;
    pool_share(INT64_MAX / 2, 64, 6, 7, &begin, &end);
    assert_int_equal(end, INT64_MAX / 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_account, close_account)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_every_share_runs_once_a_round),
        TEST(test_rounds_are_ordered),
        TEST(test_sleepers_wake),
        TEST(test_two_pools_side_by_side),
        TEST(test_thread_counts),
        TEST(test_failure_frees_everything),
        TEST(test_shares_cover_the_work_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
