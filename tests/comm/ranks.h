/* comm/ranks: ranks as threads of a test. Makes their groups, and runs all ranks in parallel. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include "comm/threads.h"

enum { THREAD_GROUPS_MAX = 128 };

/* Initialize with zeros. */
typedef struct thread_groups {
    mem *account;
    threads_group *opened[THREAD_GROUPS_MAX];
    int count;
} thread_groups;

/* Makes groups of `size` ranks with distance `stride`, for `count` ranks: out[r] is rank r's group. `w` owns
   them. Stride 1: neighboring ranks. A wait for a rank ends after a minute. */
void ranks_groups(thread_groups *w, int count, int stride, int size, group **out);
/* Makes one group of the listed ranks: out[ranks[i]] is its i-th member. */
void ranks_group(thread_groups *w, const int *ranks, int size, group **out);
/* Frees the groups. Call when no rank runs. */
void ranks_close(thread_groups *w);

/* The result of a rank. */
typedef struct ranks_end {
    ott_status status;
    char text[1024];
} ranks_end;

/* Runs job(ranks + r * bytes) for all ranks in parallel, each on its own thread. The job closes the rank's
   groups at its end, so that other ranks do not wait for a failed rank. */
void ranks_try(int count, void *ranks, size_t bytes, ott_status (*job)(void *rank), ranks_end *ends);
/* Like ranks_try, but a rank's failure fails the test, with a message that begins with `what`. */
void ranks_run(const char *what, int count, void *ranks, size_t bytes, ott_status (*job)(void *rank));

#endif
