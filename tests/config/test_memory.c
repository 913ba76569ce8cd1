/* If memory runs out inside the TOML reader, parsing returns an error and the process continues. */
#define _GNU_SOURCE
#include "config/config.h"
#include <limits.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

enum { BLOCK = 112, BLOCKS = 1 << 19, LIMITS = 450, UNLIMITED = -1 };

/* Allocates all memory that this process can get, then frees `blocks` blocks of BLOCK bytes. */
static int leave_free(int64_t blocks) {
    static void *block[BLOCKS];
    const struct rlimit limit = {0, 0}; /* the address space may not grow */
    int64_t count = 0;
    mallopt(M_TRIM_THRESHOLD, INT_MAX); /* the process keeps memory that it frees */
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
    while (count < BLOCKS && (block[count] = malloc(BLOCK))) count++;
    while (malloc(16)) {
    }
    while (count > 0 && blocks-- > 0) free(block[--count]);
    return 0;
}

/* Parses with `blocks` blocks of free memory, in a child process. Returns 0 if the file was read, 1 if memory
   ran out. Any other value fails the test. */
static int read_with(const char *path, int64_t blocks) {
    mem *account;
    config *cfg = NULL;
    const char *arguments[] = {path};
    if (mem_open(&account) != OTT_OK || (blocks != UNLIMITED && leave_free(blocks) != 0)) return 3;
    ott_status status = config_parse(account, NULL, 1, arguments, &cfg);
    if (status == OTT_ERR_CONFIG) return strstr(status_text(), "nobody") ? 0 : 4;

    return status == OTT_ERR_MEMORY && strstr(status_text(), "out of memory") ? 1 : 2;
}

static int outcome(const char *path, int64_t blocks) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(read_with(path, blocks));
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status)) fail_msg("%d blocks: signal %d", (int)blocks, WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void out_of_memory_is_reported(void **state) {
    (void)state;
#ifdef SANITIZED
    print_message("SKIPPED: this test limits the address space, which a sanitizer needs\n");
    skip();
#endif
    char path[] = "/tmp/ottava-memory-XXXXXX.toml";
    FILE *text = fdopen(mkstemps(path, 5), "w");
    assert_non_null(text);
    for (int i = 0; i < 40; i++) fprintf(text, "[nobody.k%d]\nv = [%d, \"a longer text %d\"]\n", i, i, i);
    assert_int_equal(fclose(text), 0);
    assert_int_equal(outcome(path, UNLIMITED), 0);
    for (int64_t blocks = 0; blocks < LIMITS; blocks++) assert_int_equal(outcome(path, blocks), 1);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(out_of_memory_is_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
