/*
 * Collectives of any transport against plain loops: what the tests of comm/threads, comm/mpi and cuda/nccl_group share. A test's body runs
 * on each of `size` ranks; what they made of it is then in collectives_ranks of every process.
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
    float *in, *out; /* [COLLECTIVES_COUNT] each, on the device, whose memory the host can reach */
    float in_after[COLLECTIVES_COUNT], out_after[COLLECTIVES_COUNT];
};

extern rank_run collectives_ranks[RANKS_MAX];

/* The transport's: runs body on `size` ranks in one group, where a rank waits `timeout` seconds for another. */
void collectives_run(int size, double timeout, rank_body body);
/* The part of it that is this rank's, on r->cx.device, or where there is none one of the CPU, until it closes group and
   device. */
void collectives_run_rank(rank_run *r);
int collectives_test(void); /* all of them: for main */
/* Those that do not ask who is missing, nor that a call that fits no other is an error. */
int collectives_test_moves(void);

#endif
