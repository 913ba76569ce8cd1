/* comm/ranks: makes groups of ranks that are threads of a test, and runs all ranks in parallel. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include "comm/threads.h"

enum { THREAD_GROUPS_MAX = 128 };

/* Owns groups. Initialize it with zeros. */
typedef struct thread_groups {
    mem *account;
    threads_group *opened[THREAD_GROUPS_MAX];
    int count;
} thread_groups;

/* Divides `count` ranks into groups of `size` ranks, which are `stride` ranks apart. out[r] becomes the group
   of rank r; ranks_close frees it. A rank that waits a minute for another fails. */
void ranks_groups(thread_groups *w, int count, int stride, int size, group **out);
/* Makes one group of the listed ranks. out[ranks[i]] becomes its member i. */
void ranks_group(thread_groups *w, const int *ranks, int size, group **out);
/* Frees the groups. Call when no rank runs. */
void ranks_close(thread_groups *w);

/* How a rank ended. */
typedef struct ranks_end {
    ott_status status;
    char text[1024];
} ranks_end;

/* Runs job(ranks + r * bytes) for all ranks r in parallel, each on its own thread. The job must close the
   rank's groups at its end: if the rank failed, the other ranks then stop waiting for it. */
void ranks_try(int count, void *ranks, size_t bytes, ott_status (*job)(void *rank), ranks_end *ends);
/* Like ranks_try. But if a rank fails, the test fails, with a message that begins with `what`. */
void ranks_run(const char *what, int count, void *ranks, size_t bytes, ott_status (*job)(void *rank));

#endif
