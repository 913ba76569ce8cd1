/* fuzz: accounts, files and failures for the fuzz targets. */
#include "fuzz.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fuzz_fail(const char *file, int line, const char *expression) {
    fprintf(stderr, "%s:%d: violated guarantee: %s (last error: %s)\n", file, line, expression,
            status_text());
    abort();
}

mem *fuzz_account(void) {
    mem *account;
    FUZZ_REQUIRE(mem_open(&account) == OTT_OK);
    return account;
}

/* Returns a folder in TMPDIR for this process. A target that crashes cannot delete it; run.sh does. */
static const char *folder(void) {
    static char path[256];
    if (path[0]) return path;
    const char *parent = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/ottava-fuzz-XXXXXX", parent ? parent : "/tmp");
    FUZZ_REQUIRE(mkdtemp(path));
    return path;
}

const char *fuzz_path(const char *name) {
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder(), name);
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t bytes) {
    const char *path = fuzz_path(name);
    if (!data) {
        unlink(path);
        return path;
    }
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_REQUIRE(file >= 0 && write(file, data, bytes) == (ssize_t)bytes);
    close(file);
    return path;
}
