/* Limits of memory: free memory of the machine, of cgroups (versions 1 and 2) and of address limits. Also
   tests checked arithmetic. */
#include "base/limit.h"
#include "base/mem.h"
#include "base/text/size.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { MIB = 1 << 20 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* the sanitizer's shadow memory exceeds any limit of the address space */
#else
enum { SANITIZED = 0 };
#endif

/* ---- a machine's files in a folder ---- */

static char root[64];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/ottava-limit-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state) {
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* Writes the file root/path, and creates its parent folders. */
static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(full, 0700);
        *at = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static memory_limit read_root(int64_t counted) {
    memory_limit l;
    limit_read_in(root, counted, &l);
    return l;
}

static void put_machine(void) {
    put("/proc/meminfo", "MemTotal:       4194304 kB\nMemFree:  1000 kB\nMemAvailable:   2097152 kB\n");
}

static void check(const memory_limit *l, int64_t left_mib, int64_t total_mib, const char *owner) {
    assert_int_equal(l->left, left_mib * MIB);
    assert_int_equal(l->total, total_mib * MIB);
    assert_string_equal(l->owner, owner);
}

static void test_nothing_known(void **state) {
    (void)state;
    char text[LIMIT_TEXT];
    memory_limit l = read_root(0);
    assert_int_equal(l.left, INT64_MAX);
    assert_non_null(strstr(limit_text(&l, text), "memory is unknown"));
}

static void test_machine(void **state) {
    (void)state;
    char text[LIMIT_TEXT], statm[64];
    put_machine();
    memory_limit l = read_root(0);
    check(&l, 2048, 4096, "this machine");
    assert_string_equal(limit_text(&l, text), "2.00 GiB of the 4.00 GiB of this machine are left");
    /* 100 MiB are allocated and 40 MiB are resident, so the process is expected to use 60 MiB more */
    snprintf(statm, sizeof statm, "100000 %ld 1 1 0 100 0\n", 40L * MIB / sysconf(_SC_PAGESIZE));
    put("/proc/self/statm", statm);
    l = read_root((int64_t)100 * MIB);
    check(&l, 2048 - 60, 4096, "this machine");
}

static void put_version_2(void) {
    put_machine();
    put("/proc/self/mounts", "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n");
    put("/proc/self/cgroup", "0::/user/job\n");
    put("/sys/fs/cgroup/user/job/memory.max", "max\n");
    put("/sys/fs/cgroup/user/job/memory.current", "20971520\n");
}

static void test_cgroup_2(void **state) {
    (void)state;
    put_version_2();
    memory_limit l = read_root(0);
    check(&l, 2048, 4096, "this machine"); /* in memory.max, "max" means no limit */
    put("/sys/fs/cgroup/user/job/memory.max", "62914560\n");
    l = read_root(0);
    check(&l, 40, 60, "the cgroup /sys/fs/cgroup/user/job");
    put("/sys/fs/cgroup/user/job/memory.stat", "anon 5\ninactive_file 3145728\nactive_file 2097152\n");
    l = read_root(0);
    check(&l, 45, 60, "the cgroup /sys/fs/cgroup/user/job");
    /* the parent cgroup has a lower limit */
    put("/sys/fs/cgroup/user/memory.max", "104857600\n");
    put("/sys/fs/cgroup/user/memory.current", "94371840\n");
    l = read_root(0);
    check(&l, 10, 100, "the cgroup /sys/fs/cgroup/user");
    put("/sys/fs/cgroup/user/memory.current", "204857600\n");
    l = read_root(0);
    /* the cgroup uses more than its limit: 0 bytes are left */
    check(&l, 0, 100, "the cgroup /sys/fs/cgroup/user");
}

static void put_version_1(const char *folder, const char *most) {
    char path[128];
    put_machine();
    put("/proc/self/mounts",
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"
        "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n");
    put("/proc/self/cgroup", "5:cpuset,memory:/docker/abc\n1:cpu:/other\n0::/\n");
    snprintf(path, sizeof path, "%s/memory.limit_in_bytes", folder);
    put(path, most);
    snprintf(path, sizeof path, "%s/memory.usage_in_bytes", folder);
    put(path, "10485760\n");
}

static void test_cgroup_1(void **state) {
    (void)state;
    put_version_1("/sys/fs/cgroup/memory/docker/abc", "9223372036854771712\n");
    memory_limit l = read_root(0);
    check(&l, 2048, 4096, "this machine");
    put_version_1("/sys/fs/cgroup/memory/docker/abc", "62914560\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.stat",
        "inactive_file 99999999\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    l = read_root(0);
    check(&l, 51, 60, "the cgroup /sys/fs/cgroup/memory/docker/abc");
}

/* In a container, /proc gives the cgroup's path on the host. The container has no such path. The root of its
   cgroup mount is its cgroup. */
static void test_cgroup_of_a_container(void **state) {
    (void)state;
    put_version_1("/sys/fs/cgroup/memory", "62914560\n");
    memory_limit l = read_root(0);
    check(&l, 50, 60, "the cgroup /sys/fs/cgroup/memory");
}

static void test_damaged_files(void **state) {
    (void)state;
    put_version_2();
    put("/sys/fs/cgroup/user/job/memory.max", "");
    put("/sys/fs/cgroup/user/job/memory.stat", "\xff\xfe no numbers");
    put("/proc/self/statm", "none");
    put("/proc/self/cgroup", "no colon\n0:\n::\n0::/user/job/../../../../..\n\n");
    memory_limit l = read_root(INT64_MAX);
    check(&l, 2048, 4096, "this machine");
}

/* ---- this process ---- */

/* Runs `act` in a child process and returns its exit code. */
static int in_a_child(int (*act)(void)) {
    int result = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(act());
    assert_int_equal(waitpid(child, &result, 0), child);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static int limited(int resource, const char *name) {
    memory_limit l;
    mem *m;
    void *block;
    struct rlimit most = {.rlim_cur = (rlim_t)1 << 30, .rlim_max = (rlim_t)1 << 30};
    if (setrlimit(resource, &most) != 0) return 1;
    limit_read(0, &l);
    if (l.left > 1 << 30 || l.left < 900 * MIB || !strstr(l.owner, name)) return 2;
    if (mem_open(&m) != OTT_OK || mem_alloc(m, MEM_PARAM, (int64_t)2 << 30, "parameters", &block) == OTT_OK)
        return 3;
    if (!strstr(status_text(), "parameters needs 2.00 GiB, with 0 bytes in use") ||
        !strstr(status_text(), name) || !strstr(status_text(), "of the 1.00 GiB of"))
        return 4;
    mem_close(m);
    return 0;
}

static int limited_addresses(void) {
    return limited(RLIMIT_AS, "ulimit -v");
}
static int limited_data(void) {
    return limited(RLIMIT_DATA, "ulimit -d");
}

static void test_address_limits(void **state) {
    (void)state;
    if (SANITIZED) skip();
    assert_int_equal(in_a_child(limited_addresses), 0);
    assert_int_equal(in_a_child(limited_data), 0);
}

/* Blocks that together exceed the memory are refused, although malloc would return them. */
static void test_blocks_that_do_not_fit_together(void **state) {
    (void)state;
    mem *m;
    memory_limit l;
    void *first, *second = NULL;
    limit_read(0, &l);
    if (SANITIZED || l.left == INT64_MAX) skip();
    assert_int_equal(mem_open(&m), OTT_OK);
    assert_int_equal(mem_alloc(m, MEM_GRAD, l.left / 10 * 6, "gradients", &first), OTT_OK);
    assert_int_equal(mem_alloc(m, MEM_OPTIMIZER, l.left / 10 * 6, "moments", &second), OTT_ERR_MEMORY);
    assert_null(second);
    assert_non_null(strstr(status_text(), "moments (optimizer state) needs"));
    assert_non_null(strstr(status_text(), "GiB"));
    mem_free(m, first);
    assert_int_equal(mem_alloc(m, MEM_OPTIMIZER, l.left / 10 * 6, "moments", &second), OTT_OK);
    mem_free(m, second);
    mem_close(m);
}

/* ---- sizes ---- */

static void test_checked_arithmetic(void **state) {
    (void)state;
    int64_t x = 7;
    assert_true(size_multiply(3, 4, &x) && x == 12);
    assert_true(size_multiply(INT64_MAX, 1, &x) && x == INT64_MAX);
    assert_false(size_multiply(INT64_C(1) << 32, INT64_C(1) << 31, &x));
    assert_false(size_multiply(-1, 4, &x) || size_multiply(4, -1, &x) || size_add(-1, 4, &x));
    assert_false(size_add(INT64_MAX, 1, &x));
    assert_int_equal(x, INT64_MAX);
    assert_true(size_add(INT64_MAX, 0, &x) && size_add(2, 3, &x) && x == 5);
    assert_int_equal(size_product("tokens", (int64_t[]){2, 3, 4}, 3, &x), OTT_OK);
    assert_int_equal(x, 24);
    assert_int_equal(size_product("tokens", (int64_t[]){INT64_C(1) << 55, 2048}, 2, &x), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "tokens = 36028797018963968 x 2048"));
    assert_int_equal(x, 24);
}

static void test_sizes_as_text(void **state) {
    (void)state;
    char text[SIZE_TEXT];
    assert_string_equal(size_text(0, text), "0 bytes");
    assert_string_equal(size_text(123456, text), "123456 bytes");
    assert_string_equal(size_text(60 * MIB, text), "60.0 MiB");
    assert_string_equal(size_text(INT64_C(32121044992), text), "29.92 GiB");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_known),
        TEST(test_machine),
        TEST(test_cgroup_2),
        TEST(test_cgroup_1),
        TEST(test_cgroup_of_a_container),
        TEST(test_damaged_files),
        cmocka_unit_test(test_address_limits),
        cmocka_unit_test(test_blocks_that_do_not_fit_together),
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_sizes_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
