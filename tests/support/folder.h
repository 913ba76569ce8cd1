/* support/folder: a temporary folder for each test, and files in it. */
#ifndef TESTS_IO_FOLDER_H
#define TESTS_IO_FOLDER_H

#include "base/mem.h"

typedef struct folder {
    mem *account;
    char path[64];
    char file[128]; /* the path that folder_file returned last */
} folder;

/* cmocka setup and teardown; the state is a folder. Teardown fails the test if memory leaked. */
int folder_setup(void **state);
int folder_teardown(void **state);
/* Returns "FOLDER/name". The path is valid until the next call. */
const char *folder_file(folder *f, const char *name);
/* Writes a file and returns its path. */
const char *folder_write(folder *f, const char *name, const void *data, int64_t bytes);
const char *folder_write_text(folder *f, const char *name, const char *text);
/* Reads a file as text. The caller frees it with mem_free. */
char *folder_read(folder *f, const char *name, int64_t *bytes);

/* Expects that the last error text contains `part`. */
void assert_error_names(const char *part);

#endif
