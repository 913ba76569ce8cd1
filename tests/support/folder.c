/* support/folder: a temporary folder for each test, and files in it. */
#define _GNU_SOURCE
#include "support/folder.h"
#include "base/file/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

int folder_setup(void **state) {
    folder *f = calloc(1, sizeof *f);
    if (!f || mem_open(&f->account) != OTT_OK) return -1;
    strcpy(f->path, "/tmp/ottava-io-XXXXXX");
    *state = f;
    return mkdtemp(f->path) ? 0 : -1;
}

int folder_teardown(void **state) {
    folder *f = *state;
    int64_t leaked = mem_read(f->account).now;
    ott_status removed = file_remove_tree(f->path);
    if (leaked == 0) mem_close(f->account);
    free(f);
    return leaked == 0 && removed == OTT_OK ? 0 : -1;
}

const char *folder_file(folder *f, const char *name) {
    snprintf(f->file, sizeof f->file, "%s/%s", f->path, name);
    return f->file;
}

const char *folder_write(folder *f, const char *name, const void *data, int64_t bytes) {
    FILE *file = fopen(folder_file(f, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, (size_t)bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return f->file;
}

const char *folder_write_text(folder *f, const char *name, const char *text) {
    return folder_write(f, name, text, (int64_t)strlen(text));
}

char *folder_read(folder *f, const char *name, int64_t *bytes) {
    char *data;
    int64_t size;
    assert_int_equal(file_read(f->account, folder_file(f, name), 1 << 30, &data, &size), OTT_OK);
    if (bytes) *bytes = size;
    return data;
}

void assert_error_names(const char *part) {
    if (!strstr(status_text(), part))
        fail_msg("the error \"%s\" does not contain \"%s\"", status_text(), part);
}
