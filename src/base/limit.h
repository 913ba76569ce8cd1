/* base/limit: how much more memory this process can allocate: the minimum of the machine's available memory,
   the limits of its cgroups (versions 1 and 2, up to the root), and ulimit -v and -d. */
#ifndef BASE_LIMIT_H
#define BASE_LIMIT_H

#include <stdint.h>

typedef struct memory_limit {
    int64_t left;    /* bytes that this process can still allocate; INT64_MAX: no known limit */
    int64_t total;   /* total bytes of the limit */
    char owner[192]; /* what the limit applies to: "this machine", "the cgroup /sys/fs/cgroup/job" */
} memory_limit;

/* Finds the smallest limit. counted: bytes that this process has allocated. The kernel calls pages available
   until they are touched, so allocated bytes that are not resident yet are subtracted. */
void limit_read(int64_t counted, memory_limit *out);
/* For tests: reads all files in the folder `root` instead of "/". The ulimits are still this process's. */
void limit_read_in(const char *root, int64_t counted, memory_limit *out);

enum { LIMIT_TEXT = 288 };
/* Writes "17.59 GiB of the 23.50 GiB of this machine are left"; returns out. */
const char *limit_text(const memory_limit *l, char out[LIMIT_TEXT]);

#endif
