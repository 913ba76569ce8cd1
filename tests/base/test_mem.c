/* Memory accounts: counting, zero-filled blocks, alignment, growth, failures, wrong calls, threads, pages
   that were not written. */
#include "base/mem.h"
#include "dies.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Under sanitizers too, malloc must return NULL for a size that is too large, as the tests expect. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void) {
    return "allocator_may_return_null=1";
}

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

static void test_counts_by_kind(void **state) {
    (void)state;
    void *a, *b, *c;
    assert_int_equal(mem_alloc(m, MEM_PARAM, 1000, "a", &a), OTT_OK);
    assert_int_equal(mem_alloc(m, MEM_PARAM, 500, "b", &b), OTT_OK);
    mem_free(m, a);
    assert_int_equal(mem_alloc(m, MEM_STEP, 200, "c", &c), OTT_OK);
    mem_stats s = mem_read(m);
    assert_int_equal(s.now, 700);
    assert_int_equal(s.peak, 1500);
    assert_int_equal(s.now_of[MEM_PARAM], 500);
    assert_int_equal(s.peak_of[MEM_PARAM], 1500);
    assert_int_equal(s.now_of[MEM_STEP], 200);
    assert_int_equal(s.allocations, 3);
    mem_free(m, c);
    mem_free(m, b);
    mem_free(m, NULL);
    assert_int_equal(mem_read(m).now, 0);
    assert_string_equal(mem_kind_name(MEM_OPTIMIZER), "optimizer state");
    assert_string_equal(mem_kind_name(MEM_KIND_COUNT), "?");
}

static int all_zero(const unsigned char *p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        if (p[i]) return 0;
    return 1;
}

static void test_blocks_are_zero_and_aligned(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 15, 63, 64, 65, 4096, 100003, 3000000};
    for (int again = 0; again < 3; again++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *p;
            assert_int_equal(mem_alloc(m, MEM_OTHER, sizes[i], "p", &p), OTT_OK);
            assert_int_equal((uintptr_t)p % MEM_ALIGNMENT, 0);
            assert_true(all_zero(p, sizes[i]));
            /* if a later block reuses this memory without clearing it, the check above fails */
            memset(p, 0xff, (size_t)sizes[i]);
            mem_free(m, p);
        }
}

static void test_empty_blocks_differ(void **state) {
    (void)state;
    void *a, *b;
    assert_int_equal(mem_alloc(m, MEM_OTHER, 0, "a", &a), OTT_OK);
    assert_int_equal(mem_alloc(m, MEM_OTHER, 0, "b", &b), OTT_OK);
    assert_non_null(a);
    assert_ptr_not_equal(a, b);
    mem_free(m, a);
    mem_free(m, b);
}

static void test_grow_keeps_contents_and_zeroes_the_rest(void **state) {
    (void)state;
    void *p = NULL;
    assert_int_equal(mem_grow(m, MEM_DATA, 10, "p", &p), OTT_OK);
    memcpy(p, "0123456789", 10);
    /* a smaller size does not shrink the block */
    assert_int_equal(mem_grow(m, MEM_DATA, 5, "p", &p), OTT_OK);
    assert_int_equal(mem_read(m).now, 10);
    for (int64_t bytes = 20; bytes < 3000000; bytes *= 7) {
        assert_int_equal(mem_grow(m, MEM_DATA, bytes, "p", &p), OTT_OK);
        assert_memory_equal(p, "0123456789", 10);
        assert_true(all_zero((unsigned char *)p + 10, bytes - 10));
        assert_int_equal((uintptr_t)p % MEM_ALIGNMENT, 0);
        assert_int_equal(mem_read(m).now_of[MEM_DATA], bytes);
    }
    void *before = p;
    mem_fail_after(m, 1);
    assert_int_equal(mem_grow(m, MEM_DATA, 1 << 24, "p", &p), OTT_ERR_MEMORY);
    assert_ptr_equal(p, before);
    assert_memory_equal(p, "0123456789", 10);
    mem_free(m, p);
}

static void test_failure_hook(void **state) {
    (void)state;
    void *p = NULL, *q = &p;
    mem_fail_after(m, 2);
    assert_int_equal(mem_alloc(m, MEM_GRAD, 8, "first", &p), OTT_OK);
    assert_int_equal(mem_alloc(m, MEM_GRAD, 123456, "dW of q_proj", &q), OTT_ERR_MEMORY);
    assert_null(q);
    assert_non_null(strstr(status_text(), "dW of q_proj"));
    assert_non_null(strstr(status_text(), "gradients"));
    assert_non_null(strstr(status_text(), "123456"));
    assert_int_equal(mem_read(m).now, 8);
    assert_int_equal(mem_alloc(m, MEM_GRAD, 8, "third", &q), OTT_OK); /* only the one allocation failed */
    mem_free(m, p);
    mem_free(m, q);
    char *copy;
    mem_fail_after(m, 1);
    assert_int_equal(mem_strdup(m, "text", &copy), OTT_ERR_MEMORY);
    assert_null(copy);
    mem_fail_after(m, 1);
    mem_fail_after(m, 0);
    assert_int_equal(mem_strdup(m, "text", &copy), OTT_OK);
    assert_string_equal(copy, "text");
    mem_free(m, copy);
}

static void test_give_all(void **state) {
    (void)state;
    void *block;
    mem_free_all(m); /* freeing an empty account has no effect */
    for (int i = 0; i < 20; i++)
        assert_int_equal(mem_alloc(m, (mem_kind)(i % MEM_KIND_COUNT), 100, "a", &block), OTT_OK);
    mem_free(m, block);
    mem_free_all(m);
    assert_int_equal(mem_read(m).now, 0);
    assert_int_equal(mem_alloc(m, MEM_OTHER, 10, "b", &block), OTT_OK); /* the account still works */
    mem_free(m, block);
}

static void test_impossible_sizes(void **state) {
    (void)state;
    void *p;
    assert_int_equal(mem_alloc(m, MEM_OTHER, INT64_MAX, "huge", &p), OTT_ERR_MEMORY);
    assert_null(p);
    assert_int_equal(mem_alloc(m, MEM_OTHER, INT64_C(1) << 60, "huge", &p), OTT_ERR_MEMORY);
    assert_int_equal(mem_alloc_array(m, MEM_OTHER, INT64_C(1) << 40, 1 << 30, "table", &p), OTT_ERR_MEMORY);
    assert_non_null(strstr(status_text(), "table"));
    assert_int_equal(mem_alloc(m, MEM_OTHER, -1, "negative", &p), OTT_ERR_INTERNAL);
    assert_int_equal(mem_alloc_array(m, MEM_OTHER, -2, -8, "negative", &p), OTT_ERR_INTERNAL);
    assert_int_equal(mem_alloc(m, MEM_KIND_COUNT, 1, "kind", &p), OTT_ERR_INTERNAL);
    assert_int_equal(mem_read(m).allocations, 0);
    assert_int_equal(mem_alloc_array(m, MEM_OTHER, 12, 8, "table", &p), OTT_OK);
    assert_int_equal(mem_read(m).now, 96);
    mem_free(m, p);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* Returns the resident bytes of this process; -1 if /proc does not have them, or if they include
   ThreadSanitizer's shadow memory. */
static int64_t resident(void) {
#ifdef __SANITIZE_THREAD__
    return -1;
#endif
    long long pages = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return -1;
    if (fscanf(f, "%*s %lld", &pages) != 1) pages = -1;
    fclose(f);
    return pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
}

static void test_untouched_pages_cost_nothing(void **state) {
    (void)state;
    void *p;
    int64_t before = resident();
    if (before < 0) skip();
    assert_int_equal(mem_alloc(m, MEM_STEP, INT64_C(512) << 20, "arena", &p), OTT_OK);
    assert_in_range(resident() - before + (64 << 20), 0, 128 << 20);
    mem_free(m, p);
}

static void *take_and_give(void *argument) {
    void *kept[16] = {0};
    for (int i = 0; i < 4000; i++) {
        void **slot = &kept[i * 7 % 16];
        mem_free(m, *slot);
        if (mem_alloc(m, (mem_kind)(i % MEM_KIND_COUNT), i % 300, "threaded", slot) != OTT_OK)
            return argument;
    }
    for (int i = 0; i < 16; i++) mem_free(m, kept[i]);
    return NULL;
}

static void test_threads_share_an_account(void **state) {
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, m), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    mem_stats s = mem_read(m);
    assert_int_equal(s.now, 0);
    assert_int_equal(s.allocations, 16000);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++) assert_int_equal(s.now_of[kind], 0);
}

#ifdef OTT_DEBUG
static void leak(void) {
    void *p;
    mem *other;
    if (mem_open(&other) != OTT_OK || mem_alloc(other, MEM_OTHER, 8, "lost", &p) != OTT_OK) return;
    mem_close(other);
}

static void give_twice(void) {
    void *p;
    if (mem_alloc(m, MEM_OTHER, 100, "p", &p) != OTT_OK) return;
    mem_free(m, p);
    mem_free(m, p);
}

static void give_a_stranger(void) {
    static _Alignas(MEM_ALIGNMENT) char block[256];
    mem_free(m, block + 128);
}

static void test_debug_builds_stop_at_misuse(void **state) {
    (void)state;
    assert_true(dies(leak));
    assert_true(dies(give_twice));
    assert_true(dies(give_a_stranger));
}
#endif

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_account, close_account)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_counts_by_kind),
        TEST(test_blocks_are_zero_and_aligned),
        TEST(test_empty_blocks_differ),
        TEST(test_grow_keeps_contents_and_zeroes_the_rest),
        TEST(test_failure_hook),
        TEST(test_give_all),
        TEST(test_impossible_sizes),
        TEST(test_untouched_pages_cost_nothing),
        TEST(test_threads_share_an_account),
#ifdef OTT_DEBUG
        TEST(test_debug_builds_stop_at_misuse),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
