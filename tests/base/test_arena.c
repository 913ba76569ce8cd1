/* Arenas: zero-filled blocks, alignment, chunks, formatted text, failures, guards around blocks. */
#include "base/arena.h"
#include "dies.h"
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static mem *m;
static arena *a;

static int open_arena(void **state) {
    (void)state;
    return mem_open(&m) != OTT_OK || arena_open(m, MEM_DATA, &a) != OTT_OK;
}

static int close_arena(void **state) {
    (void)state;
    arena_close(a);
    int64_t left = mem_read(m).now;
    mem_close(m);
    return left != 0;
}

static void test_blocks_are_zero_aligned_and_apart(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    static unsigned char *block[COUNT];
    for (int i = 0; i < COUNT; i++) {
        void *p;
        int64_t bytes = i * 37 % 601;
        assert_int_equal(arena_alloc(a, bytes, &p), OTT_OK);
        block[i] = p;
        assert_int_equal((uintptr_t)p % 16, 0);
        for (int64_t j = 0; j < bytes; j++) assert_int_equal(block[i][j], 0);
        memset(p, i % 255 + 1, (size_t)bytes);
    }
    for (int i = 0; i < COUNT; i++)
        for (int64_t j = 0; j < i * 37 % 601; j++) assert_int_equal(block[i][j], i % 255 + 1);
    assert_int_equal(arena_check(a), 0);
    assert_in_range(mem_read(m).allocations, 10, COUNT / 10); /* one allocation for many blocks */
}

static void test_empty_blocks_differ(void **state) {
    (void)state;
    void *p, *q;
    assert_int_equal(arena_alloc(a, 0, &p), OTT_OK);
    assert_int_equal(arena_alloc(a, 0, &q), OTT_OK);
    assert_non_null(p);
    assert_ptr_not_equal(p, q);
}

static void test_large_blocks_do_not_waste_the_chunk(void **state) {
    (void)state;
    void *small, *large, *next;
    assert_int_equal(arena_alloc(a, 16, &small), OTT_OK);
    assert_int_equal(arena_alloc(a, 1000000, &large), OTT_OK);
    memset(large, 1, 1000000);
    int64_t allocations = mem_read(m).allocations;
    assert_int_equal(arena_alloc(a, 16, &next), OTT_OK);
    assert_int_equal(mem_read(m).allocations, allocations);
    assert_in_range((char *)next - (char *)small, 16, 256);
    assert_int_equal(mem_read(m).now_of[MEM_DATA], mem_read(m).now);
}

static void test_strings(void **state) {
    (void)state;
    char original[] = "model.layers.0";
    const char *copy, *text;
    assert_int_equal(arena_strdup(a, original, &copy), OTT_OK);
    original[0] = 'x';
    assert_string_equal(copy, "model.layers.0");
    assert_int_equal(arena_printf(a, &text, "%s.%s:%d", copy, "q_proj", 12), OTT_OK);
    assert_string_equal(text, "model.layers.0.q_proj:12");
    assert_int_equal(arena_printf(a, &text, "%30000d", 5), OTT_OK);
    assert_int_equal(strlen(text), 30000);
    assert_int_equal(arena_printf(a, &text, "%s", ""), OTT_OK);
    assert_string_equal(text, "");
}

static void test_failure_leaves_the_arena_usable(void **state) {
    (void)state;
    void *p = &p;
    const char *text = "";
    mem_fail_after(m, 1);
    assert_int_equal(arena_alloc(a, 64, &p), OTT_ERR_MEMORY);
    assert_null(p);
    mem_fail_after(m, 1);
    assert_int_equal(arena_printf(a, &text, "%d", 1), OTT_ERR_MEMORY);
    assert_null(text);
    assert_int_equal(arena_alloc(a, INT64_MAX, &p), OTT_ERR_MEMORY);
    assert_int_equal(arena_alloc(a, -1, &p), OTT_ERR_INTERNAL);
    assert_int_equal(arena_alloc(a, 64, &p), OTT_OK);
    mem_fail_after(m, 1);
    arena *other = a;
    assert_int_equal(arena_open(m, MEM_DATA, &other), OTT_ERR_MEMORY);
    assert_null(other);
}

static void test_nothing_to_close(void **state) {
    (void)state;
    arena_close(NULL);
}

#ifdef OTT_DEBUG
/* Writes a byte just outside of a block, which another block follows, and closes the arena. */
static void damage(int at) {
    void *p, *q;
    if (arena_alloc(a, 20, &p) != OTT_OK || arena_alloc(a, 20, &q) != OTT_OK) return;
    ((volatile char *)q)[at]++;
    if (arena_check(a) == 1) arena_close(a);
}

static void write_behind(void) {
    damage(20);
}
static void write_in_front(void) {
    damage(-1);
}
static void write_far_in_front(void) {
    damage(-24);
}
static void write_inside(void) {
    damage(0);
    damage(19);
    arena_close(a);
}

static void test_writes_outside_are_found(void **state) {
    (void)state;
    assert_true(dies(write_behind));
    assert_true(dies(write_in_front));
    assert_true(dies(write_far_in_front));
    assert_false(dies(write_inside));
}
#endif

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_arena, close_arena)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_blocks_are_zero_aligned_and_apart),
        TEST(test_empty_blocks_differ),
        TEST(test_large_blocks_do_not_waste_the_chunk),
        TEST(test_strings),
        TEST(test_failure_leaves_the_arena_usable),
        TEST(test_nothing_to_close),
#ifdef OTT_DEBUG
        TEST(test_writes_outside_are_found),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
