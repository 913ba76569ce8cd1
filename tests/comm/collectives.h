/*
 * Compares the collectives of any transport with plain loops. The tests of comm/threads, comm/mpi and
 * cuda/nccl/group run these comparisons. A test's body runs on each of `size` ranks. Afterwards
 * collectives_ranks has all ranks' results in every process.
 */
#ifndef TESTS_COMM_COLLECTIVES_H
#define TESTS_COMM_COLLECTIVES_H

#include "tensor/exec.h"
#include "tensor/group/group.h"

enum { RANKS_MAX = 4, COLUMNS = 5, ROWS_MAX = 16, COLLECTIVES_COUNT = ROWS_MAX * COLUMNS };

typedef struct rank_run rank_run;
typedef ott_status (*rank_body)(rank_run *r);

struct rank_run {
    exec cx;
    group *group;
    mem *account;
    rank_body body;
    ott_status status;
    char text[256];
    float *in, *out; /* [COLLECTIVES_COUNT] in device memory that the host can access */
    float in_after[COLLECTIVES_COUNT], out_after[COLLECTIVES_COUNT];
};

extern rank_run collectives_ranks[RANKS_MAX];

/* Implemented by each transport's test. Runs the body on `size` ranks in one group. A wait for another rank
   ends after `timeout` seconds. */
void collectives_run(int size, double timeout, rank_body body);
/* Runs one rank of collectives_run. Opens a CPU device if r->cx.device is NULL. Closes group and device. */
void collectives_run_rank(rank_run *r);
int collectives_test(void); /* runs all tests; returns main's exit code */
/* Runs all tests except two kinds: a rank is missing, or ranks call different collectives. */
int collectives_test_moves(void);

#endif
