/* base/limit: how much memory this process may still take: the smallest of what the machine has available,
   what its cgroups (versions 1 and 2, from its own up to the root) leave it, and its limits on address space
   and data (ulimit -v, ulimit -d). A file that is not there sets no limit. */
#ifndef BASE_LIMIT_H
#define BASE_LIMIT_H

#include <stdint.h>

typedef struct memory_limit {
    int64_t left;  /* bytes that can still be taken; INT64_MAX: nothing is known to limit it */
    int64_t whole; /* bytes of which they are what is left */
    char of[192];  /* whose they are: "this machine", "the cgroup /sys/fs/cgroup/job" */
} memory_limit;

/* counted: bytes this process has taken so far. What of them is not resident yet will be, and is left to
 * nobody. */
void limit_read(int64_t counted, memory_limit *out);
/* The same with every file looked for below the folder `root`: for tests. Address limits are the process's
 * own all the same. */
void limit_read_below(const char *root, int64_t counted, memory_limit *out);

enum { LIMIT_TEXT = 288 };
/* "17.59 GiB of the 23.50 GiB of this machine are left"; returns out. */
const char *limit_text(const memory_limit *l, char out[LIMIT_TEXT]);

#endif
