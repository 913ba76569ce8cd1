/* Runs the scripts of this folder on the program; each prints its checks, and fails as a whole when one does.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void run_script(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/tests/cli/%s", TEST_SOURCE_DIR, name);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", path, OTTAVA_PROGRAM, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: see the lines that begin with FAILED", name);
}

static void test_help(void **state) {
    (void)state;
    run_script("help.sh");
}

static void test_errors(void **state) {
    (void)state;
    run_script("errors.sh");
}

static void test_train(void **state) {
    (void)state;
    run_script("train.sh");
}

static void test_finetune(void **state) {
    (void)state;
    run_script("finetune.sh");
}

static void test_generate(void **state) {
    (void)state;
    run_script("generate.sh");
}

static void test_recipes(void **state) {
    (void)state;
    run_script("recipes.sh");
}

static void test_export(void **state) {
    (void)state;
    run_script("export.sh");
}

static void test_inspect(void **state) {
    (void)state;
    run_script("inspect.sh");
}

static void test_tokenize(void **state) {
    (void)state;
    run_script("tokenize.sh");
}

static void test_eval(void **state) {
    (void)state;
    run_script("eval.sh");
}

static void test_plan(void **state) {
    (void)state;
    run_script("plan.sh");
}

static void test_bench(void **state) {
    (void)state;
    run_script("bench.sh");
}

static void test_install(void **state) {
    (void)state;
    run_script("install.sh");
}

static void test_setup(void **state) {
    (void)state;
    run_script("setup.sh");
}

static void test_ranks(void **state) {
    (void)state;
    run_script("ranks.sh");
}

static void test_layer_ranks(void **state) {
    (void)state;
    run_script("layer_ranks.sh");
}

static void test_doctor(void **state) {
    (void)state;
    run_script("doctor.sh");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),        cmocka_unit_test(test_errors),   cmocka_unit_test(test_recipes),
        cmocka_unit_test(test_train),       cmocka_unit_test(test_tokenize), cmocka_unit_test(test_eval),
        cmocka_unit_test(test_finetune),    cmocka_unit_test(test_generate), cmocka_unit_test(test_export),
        cmocka_unit_test(test_inspect),     cmocka_unit_test(test_bench),    cmocka_unit_test(test_plan),
        cmocka_unit_test(test_install),     cmocka_unit_test(test_setup),    cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_layer_ranks), cmocka_unit_test(test_doctor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
