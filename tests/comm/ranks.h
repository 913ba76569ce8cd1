/*
 * comm/ranks: ranks as threads in a test: the groups they are in, and a run of all of them at once.
 */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include "comm/threads.h"

enum { RANKS_WORLDS_MAX = 128 };

/* Begins as zeros. */
typedef struct ranks_worlds {
    mem *account;
    threads_group *world[RANKS_WORLDS_MAX];
    int count;
} ranks_worlds;

/* Groups of `size` ranks that are `stride` apart in number, of `count` ranks: out[r] is rank r's, owned by the worlds.
   All neighbouring ranks: stride 1. A wait for a rank ends after a minute. */
void ranks_groups(ranks_worlds *w, int count, int stride, int size, group **out);
/* One group of these ranks: out[ranks[i]] is its i-th. */
void ranks_group(ranks_worlds *w, const int *ranks, int size, group **out);
/* When no rank runs any more. */
void ranks_close(ranks_worlds *w);

/* How a rank ended. */
typedef struct ranks_end {
    ott_status status;
    char text[1024];
} ranks_end;

/* Runs job(ranks + r * bytes) for all ranks at once, each on a thread of its own. The job closes the rank's groups
   when it leaves them, so that the others do not wait for a rank that failed. */
void ranks_try(int count, void *ranks, size_t bytes, ott_status (*job)(void *rank), ranks_end *ends);
/* The same. A rank's failure is the test's, and its message begins with `what`. */
void ranks_run(const char *what, int count, void *ranks, size_t bytes, ott_status (*job)(void *rank));

#endif
