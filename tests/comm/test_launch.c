/*
 * Tests the detection of launchers by their environment variables. Without MPI, a process that is one of
 * several is refused. A single process is not refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/launch.h"

static const char *const variables[] = {"WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                        "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};
static launch found;
enum { VARIABLES = sizeof variables / sizeof *variables };

static int setup(void **state) {
    (void)state;
    for (int i = 0; i < VARIABLES; i++) unsetenv(variables[i]);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_RANK");
    return 0;
}

static void several_are_refused(void **state) {
    (void)state;
    for (int i = 0; i < VARIABLES; i++) {
        char part[64] = "";
        strcat(strcat(part, variables[i]), " = 2: ");
        setenv(variables[i], "2", 1);
        assert_int_equal(launch_read(&found), OTT_ERR_UNSUPPORTED);
        assert_non_null(strstr(status_text(), part));
        assert_non_null(strstr(status_text(), "each of them would train alone"));
        unsetenv(variables[i]);
    }
}

static void one_is_not(void **state) {
    (void)state;
    static const char *const single[] = {"1", "0", "-1", ""};
    assert_int_equal(launch_read(&found), OTT_OK);
    for (size_t j = 0; j < sizeof single / sizeof *single; j++) {
        for (int i = 0; i < VARIABLES; i++) setenv(variables[i], single[j], 1);
        assert_int_equal(launch_read(&found), OTT_OK);
    }
    setup(NULL);
}

/* In Slurm, a job of two tasks may start a step of one task. The number of tasks of the step is used. */
static void the_step_counts(void **state) {
    (void)state;
    setenv("SLURM_NTASKS", "2", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_int_equal(launch_read(&found), OTT_OK);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_int_equal(launch_read(&found), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "SLURM_STEP_NUM_TASKS = 4: srun"));
    setup(NULL);
}

/* With MPI, other launchers' variables are ignored, but MPI's number of processes must match the number of
   processes that the launcher reports. */
static void what_mpi_joins_is_not_refused(void **state) {
    (void)state;
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("WORLD_SIZE", "8", 1);
    assert_int_equal(launch_read(&found), OTT_OK);
    assert_true(found.uses_mpi && found.size == 4);
    assert_int_equal(found.local_rank, 0);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3", 1);
    assert_int_equal(launch_read(&found), OTT_OK);
    assert_int_equal(found.local_rank, 3);
    unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
    setenv("LOCAL_RANK", "2", 1);
    assert_int_equal(launch_read(&found), OTT_OK);
    assert_int_equal(found.local_rank, 2);
    setenv("SLURM_LOCALID", "1", 1);
    assert_int_equal(launch_read(&found), OTT_OK);
    assert_int_equal(found.local_rank, 1);
    unsetenv("SLURM_LOCALID");
    unsetenv("LOCAL_RANK");
    assert_int_equal(launch_check_joined(&found, 4), OTT_OK);
    assert_int_equal(launch_check_joined(&found, 1), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "OMPI_COMM_WORLD_SIZE = 4, and MPI joins 1"));
    setup(NULL);
    setenv("PMIX_RANK", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    assert_int_equal(launch_read(&found), OTT_OK);
    assert_true(found.uses_mpi && found.size == 2);
    setup(NULL);
    assert_int_equal(launch_read(&found), OTT_OK);
    assert_false(found.uses_mpi);
}

static void processes_share_the_cores(void **state) {
    (void)state;
    launch single = {0}, four = {.uses_mpi = true, .size = 4, .local_size = 4};
    assert_int_equal(launch_threads(&single, 8, 8), 0);
    assert_int_equal(launch_threads(&four, 8, 8), 2);
    assert_int_equal(launch_threads(&four, 2, 2), 1);
    assert_int_equal(launch_threads(&four, 8, 64), 2); /* a container's cores, which all ranks share */
    four.is_bound = true;
    assert_int_equal(launch_threads(&four, 16, 64), 0);  /* each rank has its own cores */
    assert_int_equal(launch_threads(&four, 32, 64), 16); /* each rank has the cores of a socket */
    assert_int_equal(launch_threads(&four, 1, 2), 1);
}

static void no_number(void **state) {
    (void)state;
    static const char *const wrong[] = {"two", "2x", "99999999999999999999", "\033[2J"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("PMI_SIZE", wrong[i], 1);
        assert_int_equal(launch_read(&found), OTT_ERR_CONFIG);
        assert_non_null(strstr(status_text(), "PMI_SIZE"));
        assert_null(strchr(status_text(), '\033'));
    }
    setup(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_are_refused),       cmocka_unit_test(one_is_not),
        cmocka_unit_test(the_step_counts),           cmocka_unit_test(what_mpi_joins_is_not_refused),
        cmocka_unit_test(processes_share_the_cores), cmocka_unit_test(no_number),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
