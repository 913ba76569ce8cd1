/*
 * Which rows of a parameter each rank owns. Compares store_divide with a simple implementation of the rule.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/text/size.h"
#include "base/status.h"
#include "parallel/store.h"
#include "tensor/dry_run.h"

enum { MOST_RANKS = 4096 };

static const int64_t shapes[][2] = {{1000, 64},  {5, 4096}, {257, 24}, {1, 4096},
                                    {4099, 128}, {3, 3},    {4096, 64}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The rule: all ranks get the same number of pieces. Each remaining piece goes to the rank with the fewest
   elements so far. If several ranks have the fewest, the lowest rank gets the piece. */
static void divide_plainly(int64_t *held, int ranks, int64_t row_count, int64_t elements,
                           int64_t *rows_per_rank) {
    int64_t unit = REDUCE_BLOCK / size_common_divisor(REDUCE_BLOCK, elements),
            units = (row_count + unit - 1) / unit;
    for (int r = 0; r < ranks; r++) {
        rows_per_rank[r] = units / ranks * unit;
        held[r] += rows_per_rank[r] * elements;
    }
    for (int64_t i = 0; i < units % ranks; i++) {
        int least = 0;
        for (int r = 1; r < ranks; r++)
            if (held[r] < held[least]) least = r;
        rows_per_rank[least] += unit;
        held[least] += unit * elements;
    }
    int last = ranks - 1;
    while (last > 0 && rows_per_rank[last] == 0) last--;
    rows_per_rank[last] -= units * unit - row_count;
    held[last] -= (units * unit - row_count) * elements;
}

static void check(int ranks, int rounds) {
    static int64_t held[MOST_RANKS], rows_per_rank[MOST_RANKS];
    mem *account;
    arena *memory;
    group *g;
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(arena_open(account, MEM_OTHER, &memory), OTT_OK);
    assert_int_equal(dry_run_group_open(account, ranks / 2, ranks, &g), OTT_OK);
    parameter_store s = {.ranks = g};
    memset(held, 0, sizeof held);
    for (int i = 0; i < rounds * SHAPES; i++) {
        parameter p = parameter_of_shape(2, shapes[i % SHAPES]);
        p.shard.value.dtype = OTT_F32;
        divide_plainly(held, ranks, p.rows, p.columns, rows_per_rank);
        assert_int_equal(store_divide(&s, memory, &p), OTT_OK);
        assert_memory_equal(p.shard.rows_per_rank, rows_per_rank, (size_t)ranks * sizeof *rows_per_rank);
        assert_memory_equal(s.shard_elements, held, (size_t)ranks * sizeof *held);
        assert_int_equal(store_count_at(&p, ranks / 2), tensor_count(p.shard.value));
        assert_int_equal(store_first_at(&p, ranks / 2), p.shard.first * p.columns);
    }
    group_close(g);
    arena_close(memory);
    mem_close(account);
}

static void shards_follow_the_rule(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 40; ranks++) check(ranks, 5);
    check(MOST_RANKS, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shards_follow_the_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
