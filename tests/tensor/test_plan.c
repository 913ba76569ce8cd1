/* The memory plan: how buffers are recorded, packed and replayed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "reference/reference_ops.h"
#include "tensor/plan.h"

#define UNIT    64 /* test sizes are multiples of UNIT, so that alignment does not change them */
#define BUFFERS 200

static mem *account;
static device *d;
static plan *p;

static int setup(void **state) {
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(reference_device_open(account, &d), OTT_OK);
    assert_int_equal(plan_create(d, &p), OTT_OK);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    plan_destroy(p);
    device_close(d);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return 0;
}

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static plan_buffer open_buffer(const char *what, int64_t bytes) {
    plan_buffer b;
    succeed(plan_open(p, what, bytes, &b));
    return b;
}

static void refused(ott_status status, const char *word) {
    assert_int_equal(status, OTT_ERR_INTERNAL);
    if (!strstr(status_text(), word)) fail_msg("\"%s\" does not contain \"%s\"", status_text(), word);
}

/* ---- a small step ---- */

/* A step in which buffer x stays open. Buffer a is closed before buffer b is opened. */
static void small_step(char **x, char **a, char **b) {
    plan_buffer bx = open_buffer("x", 10 * UNIT);
    *x = bx.data;
    plan_buffer ba = open_buffer("a", 5 * UNIT);
    *a = ba.data;
    succeed(plan_close(p, &ba));
    assert_int_equal(ba.id, PLAN_NONE.id);
    assert_null(ba.data);
    plan_buffer bb = open_buffer("b", 7 * UNIT);
    *b = bb.data;
    succeed(plan_close(p, &bb));
    succeed(plan_close(p, &bx));
    succeed(plan_close(p, &bx)); /* bx is now PLAN_NONE: closing it has no effect */
}

static void test_closed_buffers_are_reused(void **state) {
    (void)state;
    char *x, *a, *b, *again[3], arena[17 * UNIT];
    plan_record(p);
    assert_true(plan_recording(p));
    small_step(&x, &a, &b);
    succeed(plan_seal(p));
    assert_false(plan_recording(p));
    assert_int_equal(plan_live_peak(p), 17 * UNIT);
    assert_int_equal(plan_bytes(p), 17 * UNIT);
    plan_bind(p, arena);
    plan_replay(p);
    small_step(&x, &a, &b);
    assert_true(a >= arena && a + 5 * UNIT <= arena + sizeof arena);
    assert_true(a < b + 7 * UNIT && b < a + 5 * UNIT); /* a and b share at least some bytes */
    assert_true(x + 10 * UNIT <= b || b + 7 * UNIT <= x);
    assert_true(x + 10 * UNIT <= a || a + 5 * UNIT <= x);
    plan_replay(p);
    small_step(&again[0], &again[1], &again[2]);
    assert_true(again[0] == x && again[1] == a && again[2] == b);
    plan_record(p); /* plan_record forgets the recorded buffers */
    succeed(plan_seal(p));
    assert_int_equal(plan_bytes(p), 0);
}

static void test_odd_sizes_keep_alignment(void **state) {
    (void)state;
    _Alignas(MEM_ALIGNMENT) static char arena[4 * MEM_ALIGNMENT];
    for (int replay = 0; replay < 2; replay++) {
        if (replay)
            plan_replay(p);
        else
            plan_record(p);
        plan_buffer a = open_buffer("a", 1), b = open_buffer("b", MEM_ALIGNMENT + 1),
                    none = open_buffer("none", 0);
        if (replay) {
            assert_int_equal((uintptr_t)a.data % MEM_ALIGNMENT, 0);
            assert_int_equal((uintptr_t)b.data % MEM_ALIGNMENT, 0);
        }
        succeed(plan_close(p, &a));
        succeed(plan_close(p, &b));
        succeed(plan_close(p, &none));
        if (!replay) succeed(plan_seal(p));
        assert_true(plan_bytes(p) <= (int64_t)sizeof arena);
        plan_bind(p, arena);
    }
}

/* ---- errors ---- */

static void record_small_step(char *arena) {
    char *x, *a, *b;
    plan_record(p);
    small_step(&x, &a, &b);
    succeed(plan_seal(p));
    plan_bind(p, arena);
    plan_replay(p);
}

static void test_replay_must_follow_the_recording(void **state) {
    (void)state;
    static char arena[17 * UNIT];
    plan_buffer b;
    char *x, *y, *z;
    record_small_step(arena);
    refused(plan_open(p, "y", 10 * UNIT, &b), "\"x\"");
    assert_int_equal(b.id, PLAN_NONE.id);
    record_small_step(arena);
    refused(plan_open(p, "x", 11 * UNIT, &b), "\"x\"");
    record_small_step(arena);
    small_step(&x, &y, &z);
    refused(plan_open(p, "more", UNIT, &b), "\"more\"");
    plan_replay(p); /* after a failed replay, the next one succeeds */
    small_step(&x, &y, &z);
}

static void test_seal_needs_every_buffer_closed(void **state) {
    (void)state;
    plan_record(p);
    plan_buffer a = open_buffer("first", UNIT), b = open_buffer("forgotten", UNIT);
    succeed(plan_close(p, &a));
    refused(plan_seal(p), "forgotten");
    (void)b;
}

static void test_misuse(void **state) {
    (void)state;
    static char arena[17 * UNIT];
    plan_buffer b, copy;
    /* the plan is neither recording nor sealed */
    assert_int_not_equal(plan_open(p, "early", UNIT, &b), OTT_OK);
    assert_int_not_equal(plan_seal(p), OTT_OK);
    plan_record(p);
    assert_int_not_equal(plan_open(p, "negative", -1, &b), OTT_OK);
    b = open_buffer("twice", UNIT);
    copy = b;
    succeed(plan_close(p, &b));
    refused(plan_close(p, &copy), "twice");
    succeed(plan_seal(p));
    assert_int_not_equal(plan_open(p, "twice", UNIT, &b), OTT_OK); /* the plan has no arena */
    record_small_step(arena);
    plan_destroy(NULL);
}

static void test_out_of_memory_is_an_error(void **state) {
    (void)state;
    plan_buffer b;
    plan_record(p);
    mem_fail_after(account, 1);
    assert_int_equal(plan_open(p, "x", UNIT, &b), OTT_ERR_MEMORY);
    b = open_buffer("x", UNIT);
    succeed(plan_close(p, &b));
    mem_fail_after(account, 1);
    assert_int_equal(plan_seal(p), OTT_ERR_MEMORY);
    mem_fail_after(account, 0);
}

/* ---- the immediate mode ---- */

/* Buffers begin and end at multiples of the device's alignment. */
static void test_buffers_are_aligned_as_the_device_needs(void **state) {
    (void)state;
    enum { WANTED = 1024 };
    const backend_capabilities *own = d->can;
    backend_capabilities coarse = {.alignment = WANTED};
    _Alignas(WANTED) static char arena[4 * WANTED];
    d->can = &coarse;
    for (int round = 0; round < 2; round++) {
        if (round == 0) plan_record(p);
        plan_buffer a = open_buffer("a", 1), b = open_buffer("b", WANTED + 1), c = open_buffer("c", WANTED);
        if (round == 1)
            assert_int_equal(((uintptr_t)a.data | (uintptr_t)b.data | (uintptr_t)c.data) % WANTED, 0);
        succeed(plan_close(p, &a));
        succeed(plan_close(p, &b));
        succeed(plan_close(p, &c));
        if (round == 1) break;
        succeed(plan_seal(p));
        assert_int_equal(plan_bytes(p), 4 * WANTED);
        plan_bind(p, arena);
        plan_replay(p);
    }
    d->can = own;
}

static void test_immediate_buffers_come_and_go(void **state) {
    (void)state;
    int64_t before = mem_read(account).now;
    plan_immediate(p);
    assert_false(plan_recording(p));
    plan_buffer a = open_buffer("a", 3 * UNIT), b = open_buffer("b", 5 * UNIT), none = open_buffer("none", 0);
    memset(a.data, 1, 3 * UNIT);
    memset(b.data, 2, 5 * UNIT);
    assert_int_equal(((char *)a.data)[3 * UNIT - 1], 1);
    assert_non_null(none.data);
    assert_int_equal(mem_read(account).now_of[MEM_STEP], 9 * UNIT);
    succeed(plan_close(p, &a));
    assert_int_equal(a.id, PLAN_NONE.id);
    assert_int_equal(mem_read(account).now_of[MEM_STEP], 6 * UNIT);
    /* in immediate mode buffers of any size are opened and closed in any order */
    plan_buffer c = open_buffer("c", UNIT);
    assert_int_equal(((char *)c.data)[0], 0);
    assert_int_equal(((char *)b.data)[5 * UNIT - 1], 2);
    succeed(plan_close(p, &b));
    succeed(plan_close(p, &c));
    succeed(plan_close(p, &none));
    succeed(plan_close(p, &none)); /* none is PLAN_NONE: closing it has no effect */
    assert_int_equal(mem_read(account).now_of[MEM_STEP], 0);
    assert_true(mem_read(account).now >= before);
    plan_destroy(p);
    succeed(plan_create(d, &p));
}

static void test_immediate_misuse(void **state) {
    (void)state;
    plan_buffer b, copy;
    plan_immediate(p);
    b = open_buffer("twice", UNIT);
    copy = b;
    succeed(plan_close(p, &b));
    refused(plan_close(p, &copy), "twice");
    assert_int_equal(plan_open(p, "negative", -1, &b), OTT_ERR_INTERNAL);
    mem_fail_after(account, 1);
    assert_int_equal(plan_open(p, "x", UNIT, &b), OTT_ERR_MEMORY);
    assert_int_equal(b.id, PLAN_NONE.id);
    mem_fail_after(account, 0);
    b = open_buffer("x", UNIT);
    assert_int_equal(b.id, 1); /* the failed plan_open call has not used the id 1 */
    assert_int_not_equal(plan_seal(p), OTT_OK);
    plan_destroy(p);
    succeed(plan_create(d, &p));
}

/* Open buffers of immediate mode are freed when the plan is destroyed, when it records, and when immediate
   mode begins again. */
static void test_immediate_gives_back(void **state) {
    (void)state;
    plan_immediate(p);
    for (int i = 0; i < 9; i++) open_buffer("left", UNIT);
    plan_immediate(p);
    assert_int_equal(mem_read(account).now_of[MEM_STEP], 0);
    open_buffer("left", UNIT);
    plan_record(p);
    assert_int_equal(mem_read(account).now_of[MEM_STEP], 0);
    plan_immediate(p);
    open_buffer("left", UNIT);
    plan_destroy(p);
    assert_int_equal(mem_read(account).now_of[MEM_STEP], 0);
    succeed(plan_create(d, &p));
}

/* ---- properties, over random lifetimes ---- */

/* A list of events. Event i opens a new buffer of bytes[i] bytes if bytes[i] is positive. Otherwise it closes
   buffer number victim[i]. */
typedef struct script {
    int events, buffers;
    int64_t bytes[2 * BUFFERS];
    int victim[2 * BUFFERS];
} script;

/* Makes a random list of events. nested: the buffer that was opened last is closed first. */
static script random_script(uint64_t seed, bool nested) {
    script s = {0};
    int alive[BUFFERS], count = 0;
    uint64_t draw = 0;
    while (s.buffers < BUFFERS || count) {
        bool opens = s.buffers < BUFFERS && (!count || rng_u32(seed, 1, draw++) % 5 < 3);
        if (opens) {
            s.bytes[s.events++] = UNIT * (int64_t)(1 + rng_u32(seed, 1, draw++) % 50);
            alive[count++] = s.buffers++;
        } else {
            int i = nested ? count - 1 : (int)(rng_u32(seed, 1, draw++) % (uint32_t)count);
            s.victim[s.events++] = alive[i];
            alive[i] = alive[--count];
        }
    }
    return s;
}

static int64_t script_peak(const script *s) {
    int64_t live = 0, peak = 0, bytes[BUFFERS];
    int opened = 0;
    for (int i = 0; i < s->events; i++) {
        if (s->bytes[i])
            live += bytes[opened++] = s->bytes[i];
        else
            live -= bytes[s->victim[i]];
        if (live > peak) peak = live;
    }
    return peak;
}

static void record_script(const script *s) {
    plan_buffer b[BUFFERS];
    int opened = 0;
    plan_record(p);
    for (int i = 0; i < s->events; i++) {
        if (s->bytes[i])
            b[opened++] = open_buffer("buffer", s->bytes[i]);
        else
            succeed(plan_close(p, &b[s->victim[i]]));
    }
    succeed(plan_seal(p));
}

/* Expects that every byte of the buffer is `value`. */
static void expect_bytes(const unsigned char *data, int64_t bytes, int value) {
    for (int64_t i = 0; i < bytes; i++)
        if (data[i] != value) fail_msg("byte %lld of buffer %d was overwritten", (long long)i, value);
}

/* Replays the events. Each buffer is filled when it opens, and must be unchanged when it closes. */
static void replay_script(const script *s, unsigned char *arena) {
    plan_buffer b[BUFFERS];
    int64_t bytes[BUFFERS];
    int opened = 0;
    plan_replay(p);
    for (int i = 0; i < s->events; i++) {
        if (s->bytes[i]) {
            b[opened] = open_buffer("buffer", s->bytes[i]);
            unsigned char *data = b[opened].data;
            assert_true(data >= arena && data + s->bytes[i] <= arena + plan_bytes(p));
            bytes[opened] = s->bytes[i];
            memset(data, opened, (size_t)s->bytes[i]);
            opened++;
        } else {
            int k = s->victim[i];
            expect_bytes(b[k].data, bytes[k], k);
            succeed(plan_close(p, &b[k]));
        }
    }
}

static void check_script(const script *s) {
    record_script(s);
    assert_int_equal(plan_live_peak(p), script_peak(s));
    assert_true(plan_bytes(p) >= plan_live_peak(p));
    unsigned char *arena = malloc((size_t)plan_bytes(p));
    assert_non_null(arena);
    plan_bind(p, arena);
    for (int run = 0; run < 2; run++) replay_script(s, arena);
    free(arena);
}

static void test_random_lifetimes(void **state) {
    (void)state;
    _Static_assert(BUFFERS <= 256, "a buffer's number is the byte it is filled with");
    for (uint64_t seed = 0; seed < 50; seed++) {
        script s = random_script(seed, false);
        check_script(&s);
        if (plan_bytes(p) * 4 >
            plan_live_peak(p) * 5) /* 5/4 is no proven bound, but more would be wasteful */
            fail_msg("seed %d: %lld bytes for a live peak of %lld", (int)seed, (long long)plan_bytes(p),
                     (long long)plan_live_peak(p));
    }
}

/* If buffers are closed in the opposite order of opening, packing must waste no memory. */
static void test_nested_lifetimes_pack_perfectly(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        script s = random_script(seed, true);
        check_script(&s);
        if (plan_bytes(p) != plan_live_peak(p))
            fail_msg("seed %d: %lld bytes for a live peak of %lld", (int)seed, (long long)plan_bytes(p),
                     (long long)plan_live_peak(p));
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_closed_buffers_are_reused),
        TEST(test_odd_sizes_keep_alignment),
        TEST(test_replay_must_follow_the_recording),
        TEST(test_seal_needs_every_buffer_closed),
        TEST(test_misuse),
        TEST(test_out_of_memory_is_an_error),
        TEST(test_buffers_are_aligned_as_the_device_needs),
        TEST(test_immediate_buffers_come_and_go),
        TEST(test_immediate_misuse),
        TEST(test_immediate_gives_back),
        TEST(test_random_lifetimes),
        TEST(test_nested_lifetimes_pack_perfectly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
