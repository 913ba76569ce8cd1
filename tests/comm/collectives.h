/*
 * Collectives of any transport against plain loops: shared by the tests of comm/threads, comm/mpi and
 * cuda/nccl_group. A test's body runs on each of `size` ranks. Afterwards collectives_ranks has all ranks'
 * results in every process.
 */
#ifndef TESTS_COMM_COLLECTIVES_H
#define TESTS_COMM_COLLECTIVES_H

#include "tensor/exec.h"
#include "tensor/group.h"

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
    float *in, *out; /* [COLLECTIVES_COUNT] each, in device memory that the host can reach */
    float in_after[COLLECTIVES_COUNT], out_after[COLLECTIVES_COUNT];
};

extern rank_run collectives_ranks[RANKS_MAX];

/* Implemented by each transport's test: runs the body on `size` ranks in one group; a wait for a rank ends
   after `timeout` seconds. */
void collectives_run(int size, double timeout, rank_body body);
/* This rank's part of collectives_run, on r->cx.device (NULL: a CPU device). Closes group and device. */
void collectives_run_rank(rank_run *r);
int collectives_test(void); /* runs all tests; for main */
/* Runs all tests except for detection of missing ranks and mismatched calls. */
int collectives_test_moves(void);

#endif
