/*
 * Tests the device table on the CPU and inside a fence: staging memory, copies, events, elapsed time, free
 * memory.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/fenced.h"
#include "base/clock.h"
#include "cpu/cpu.h"
#include <stdint.h>
#include <string.h>

static mem *account;
static device *d;

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static int open_cpu(void **state) {
    (void)state;
    return mem_open(&account) == OTT_OK && cpu_open(account, 2, NULL, &d) == OTT_OK ? 0 : -1;
}

static int open_fenced(void **state) {
    return open_cpu(state) == 0 && fenced_open(d, false, &d) == OTT_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    device_close(d);
    int left = mem_read(account).now != 0;
    mem_close(account);
    return left;
}

/* bytes of a copy: enough that several threads share it, and no multiple of a block */
enum { BYTES = (1 << 20) + 13 };

static void bytes_go_in_within_and_out(void **state) {
    (void)state;
    void *staging, *a, *b, *out;
    device_event *sent;
    succeed(device_allocate_host(d, MEM_DATA, BYTES, "staging", &staging));
    succeed(device_allocate_host(d, MEM_DATA, BYTES, "copied bytes", &out));
    succeed(device_allocate(d, MEM_DATA, BYTES, "a", &a));
    succeed(device_allocate(d, MEM_DATA, BYTES, "b", &b));
    succeed(device_event_open(d, &sent));
    succeed(device_event_wait(d, sent)); /* returns without waiting: the event was never recorded */
    for (int i = 0; i < BYTES; i++) ((unsigned char *)staging)[i] = (unsigned char)(i * 31 >> 3);
    succeed(device_copy_in_async(d, a, staging, BYTES));
    succeed(device_event_record(d, sent));
    succeed(device_copy(d, b, a, BYTES));
    succeed(device_copy_out(d, out, b, BYTES));
    assert_memory_equal(out, staging, BYTES);
    succeed(device_event_wait(d, sent));
    /* the copy to device memory is done, so a change of staging memory must not change device memory */
    memset(staging, 7, BYTES);
    succeed(device_copy_out(d, out, a, BYTES));
    assert_int_equal(((unsigned char *)out)[BYTES - 1], (unsigned char)((BYTES - 1) * 31 >> 3));
    device_event_close(d, sent);
    device_release(d, a);
    device_release(d, b);
    device_release_host(d, staging);
    device_release_host(d, out);
    device_release_host(d, NULL);
    device_event_close(d, NULL);
}

/* This device has mapped host memory: host memory that ops can use, separate from device memory. */
static void memory_of_the_host_is_worked_in(void **state) {
    (void)state;
    void *mapped, *own;
    int64_t before = device_taken(d).now_of[MEM_PARAM];
    unsigned char in[] = {1, 2, 3}, out[3];
    succeed(device_allocate_mapped(d, MEM_PARAM, sizeof in, "mapped", &mapped));
    assert_int_equal(device_taken(d).now_of[MEM_PARAM], before + 3);
    succeed(device_allocate(d, MEM_PARAM, sizeof in, "its own", &own));
    succeed(device_copy_in(d, mapped, in, sizeof in));
    succeed(device_copy(d, own, mapped, sizeof in));
    succeed(device_copy_out(d, out, own, sizeof in));
    assert_memory_equal(out, in, sizeof in);
    device_release(d, mapped);
    device_release(d, own);
}

static void time_passes_between_events(void **state) {
    (void)state;
    device_event *from, *to;
    double seconds, began = clock_seconds();
    succeed(device_event_open(d, &from));
    succeed(device_event_open(d, &to));
    succeed(device_event_record(d, from));
    while (clock_seconds() - began < 2e-3) {
    }
    succeed(device_event_record(d, to));
    succeed(device_event_seconds(d, from, to, &seconds));
    assert_true(seconds > 1e-3 && seconds <= clock_seconds() - began);
    succeed(device_event_seconds(d, to, from, &seconds));
    assert_true(seconds < -1e-3);
    succeed(device_event_record(d, from)); /* an event may be recorded again */
    succeed(device_event_seconds(d, to, from, &seconds));
    assert_true(seconds >= 0);
    device_event_close(d, from);
    device_event_close(d, to);
}

static void it_says_what_memory_it_has(void **state) {
    (void)state;
    device_memory memory;
    void *block;
    int64_t before = device_taken(d).now_of[MEM_PARAM];
    succeed(device_allocate(d, MEM_PARAM, BYTES, "a block", &block));
    assert_int_equal(device_taken(d).now_of[MEM_PARAM], before + BYTES);
    device_release(d, block);
    assert_int_equal(device_taken(d).now_of[MEM_PARAM], before);
    assert_true(device_taken(d).peak >= BYTES);
    device_read_memory(d, &memory);
    assert_true(memory.total > BYTES);
    assert_true(memory.limit.left > 0 && memory.limit.owner[0]);
}

#define BOTH(name)                                                                                           \
    cmocka_unit_test_setup_teardown(name, open_cpu, close_all),                                              \
        cmocka_unit_test_setup_teardown(name, open_fenced, close_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH(bytes_go_in_within_and_out),
        BOTH(memory_of_the_host_is_worked_in),
        BOTH(time_passes_between_events),
        BOTH(it_says_what_memory_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
