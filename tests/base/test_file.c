/*
 * Files: reading, folders, removing trees without following links, atomic writes, full disks, CRC-32C; and
 * the clocks.
 */
#include "base/clock.h"
#include "base/file/file.h"
#include "base/staging.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static mem *m;
static char root[64], path_text[4][256];

/* Returns "ROOT/name". The path is valid until `at` is called four more times. */
static const char *at(const char *name) {
    static int next;
    char *out = path_text[next++ % 4];
    snprintf(out, sizeof path_text[0], "%s/%s", root, name);
    return out;
}

static int open_folder(void **state) {
    (void)state;
    strcpy(root, "test-file-XXXXXX");
    return !mkdtemp(root) || mem_open(&m) != OTT_OK;
}

static int close_folder(void **state) {
    (void)state;
    int64_t left = mem_read(m).now;
    mem_close(m);
    return file_remove_tree(root) != OTT_OK || file_exists(root) || left != 0;
}

static void write_text(const char *path, const char *text) {
    assert_int_equal(file_write_atomic(path, text, (int64_t)strlen(text)), OTT_OK);
}

static void assert_text(const char *path, const char *expected) {
    char *text;
    int64_t bytes;
    assert_int_equal(file_read(m, path, 1 << 20, &text, &bytes), OTT_OK);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(text, expected);
    mem_free(m, text);
}

static int64_t count_names(const char *path) {
    file_list list;
    assert_int_equal(file_list_folder(m, path, &list), OTT_OK);
    int64_t count = list.count;
    file_list_free(&list);
    return count;
}

static void test_write_and_read(void **state) {
    (void)state;
    int64_t bytes;
    write_text(at("a"), "first");
    assert_text(at("a"), "first");
    write_text(at("a"), "second, longer");
    assert_text(at("a"), "second, longer");
    write_text(at("a"), "");
    assert_text(at("a"), "");
    assert_int_equal(file_size(at("a"), &bytes), OTT_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(count_names(root), 1); /* no temporary file is left */
    assert_true(file_exists(at("a")));
    assert_false(file_exists(at("b")));
    assert_true(file_is_folder(root));
    assert_false(file_is_folder(at("a")));
}

static void assert_names(const char *path, const char *reason) {
    assert_non_null(strstr(status_text(), path));
    assert_non_null(strstr(status_text(), reason));
}

static void test_reading_errors_name_the_path(void **state) {
    (void)state;
    char *text = root;
    int64_t bytes = 5;
    assert_int_equal(file_read(m, at("none"), 100, &text, &bytes), OTT_ERR_NOT_FOUND);
    assert_names(at("none"), "No such file or directory");
    assert_null(text);
    assert_int_equal(file_read(m, root, 100, &text, &bytes), OTT_ERR_ARGUMENT);
    assert_names(root, "is a folder");
    assert_int_equal(file_size(root, &bytes), OTT_ERR_ARGUMENT);
    assert_int_equal(file_size(at("none"), &bytes), OTT_ERR_NOT_FOUND);
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    /* reading a pipe fails, and does not wait for data */
    assert_int_equal(file_read(m, at("pipe"), 100, &text, &bytes), OTT_ERR_ARGUMENT);
    write_text(at("a"), "0123456789");
    assert_int_equal(file_read(m, at("a"), 9, &text, &bytes), OTT_ERR_FORMAT);
    assert_names(at("a"), "at most 9");
    assert_int_equal(file_read(m, at("a"), 10, &text, &bytes), OTT_OK);
    mem_free(m, text);
    mem_fail_after(m, 1);
    assert_int_equal(file_read(m, at("a"), 10, &text, &bytes), OTT_ERR_MEMORY);
}

static void test_folders(void **state) {
    (void)state;
    file_list list;
    assert_int_equal(file_make_folder(at("x//y/z/")), OTT_OK);
    assert_int_equal(file_make_folder(at("x/y/z")), OTT_OK);
    assert_true(file_is_folder(at("x/y/z")));
    write_text(at("x/file"), "");
    assert_int_equal(file_make_folder(at("x/file/sub")), OTT_ERR_ARGUMENT);
    assert_names(at("x/file"), "a file has its name");
    assert_int_equal(file_make_folder(""), OTT_ERR_ARGUMENT);
    char large[5000];
    memset(large, 'p', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    assert_int_equal(file_make_folder(large), OTT_ERR_ARGUMENT);
    for (int i = 9; i >= 0; i--) {
        char name[16];
        snprintf(name, sizeof name, "x/y/f%d", i);
        write_text(at(name), "");
    }
    assert_int_equal(file_list_folder(m, at("x/y"), &list), OTT_OK);
    assert_int_equal(list.count, 11);
    assert_string_equal(list.names[0], "f0");
    assert_string_equal(list.names[9], "f9");
    assert_string_equal(list.names[10], "z");
    file_list_free(&list);
    for (int n = 1; n <= 4; n++) {
        mem_fail_after(m, n);
        assert_int_equal(file_list_folder(m, at("x/y"), &list), OTT_ERR_MEMORY);
        assert_int_equal(list.count, 0);
    }
    assert_int_equal(file_list_folder(m, at("none"), &list), OTT_ERR_NOT_FOUND);
    assert_names(at("none"), "No such file");
    assert_int_equal(file_sync_folder(root), OTT_OK);
    assert_int_equal(file_sync_folder(at("none")), OTT_ERR_NOT_FOUND);
    assert_int_equal(file_sync_folder(at("x/file")), OTT_ERR_ARGUMENT);
}

static void test_remove_tree_leaves_what_links_point_to(void **state) {
    (void)state;
    assert_int_equal(file_make_folder(at("precious/sub")), OTT_OK);
    write_text(at("precious/sub/data"), "kept");
    assert_int_equal(file_make_folder(at("tree/deep/er")), OTT_OK);
    write_text(at("tree/deep/file"), "gone");
    assert_int_equal(symlink("../../precious", at("tree/deep/link")), 0);
    assert_int_equal(symlink("nowhere", at("tree/dangling")), 0);
    assert_int_equal(symlink("precious", at("direct")), 0);
    assert_int_equal(file_remove_tree(at("tree")), OTT_OK);
    assert_false(file_exists(at("tree")));
    /* removing a link does not remove the folder that it points to */
    assert_int_equal(file_remove_tree(at("direct/")), OTT_OK);
    assert_false(file_exists(at("direct")));
    assert_text(at("precious/sub/data"), "kept");
    /* no error, although the folder no longer exists */
    assert_int_equal(file_remove_tree(at("tree")), OTT_OK);
    assert_int_equal(file_remove_tree(at("precious/sub/data")), OTT_OK);
    assert_false(file_exists(at("precious/sub/data")));
    assert_int_equal(file_remove_tree("///"), OTT_ERR_ARGUMENT);
    assert_int_equal(file_remove_tree(""), OTT_ERR_ARGUMENT);
}

static void test_rename(void **state) {
    (void)state;
    write_text(at("a"), "moved");
    assert_int_equal(file_rename(at("a"), at("b")), OTT_OK);
    assert_text(at("b"), "moved");
    assert_false(file_exists(at("a")));
    assert_int_equal(file_rename(at("a"), at("c")), OTT_ERR_NOT_FOUND);
    assert_names(at("a"), "No such file");
}

static void test_writer(void **state) {
    (void)state;
    enum { TOTAL = 3000000 };
    file_writer *w;
    static char piece[700000], back[TOTAL];
    write_text(at("w"), "old");
    assert_int_equal(file_writer_open(m, at("w"), &w), OTT_OK);
    int64_t written = 0;
    for (int64_t bytes = 1; written < TOTAL;
         bytes = bytes * 3 % 699967 + 1) { /* sizes below and above the size of the buffer */
        if (bytes > TOTAL - written) bytes = TOTAL - written;
        for (int64_t i = 0; i < bytes; i++) piece[i] = (char)((written + i) * 2654435761u >> 13);
        assert_int_equal(file_writer_append(w, piece, bytes), OTT_OK);
        written += bytes;
    }
    assert_text(at("w"), "old"); /* the old file stays until the commit */
    assert_int_equal(file_writer_commit(w), OTT_OK);
    file_reader r;
    assert_int_equal(file_reader_open(at("w"), &r), OTT_OK);
    assert_int_equal(r.bytes, TOTAL);
    assert_int_equal(file_reader_read(&r, 0, back, TOTAL), OTT_OK);
    file_reader_close(&r);
    for (int64_t i = 0; i < TOTAL; i++)
        if (back[i] != (char)(i * 2654435761u >> 13)) fail_msg("byte %d differs", (int)i);
    assert_int_equal(count_names(root), 1);
}

static void test_abandon_leaves_nothing(void **state) {
    (void)state;
    file_writer *w, *v;
    assert_int_equal(file_writer_open(m, at("w"), &w), OTT_OK);
    /* a second writer has another temporary name */
    assert_int_equal(file_writer_open(m, at("w"), &v), OTT_OK);
    assert_int_equal(count_names(root), 2);
    assert_int_equal(file_writer_append(w, "one", 3), OTT_OK);
    assert_int_equal(file_writer_append(v, "two", 3), OTT_OK);
    file_writer_abandon(w);
    assert_int_equal(file_writer_commit(v), OTT_OK);
    assert_text(at("w"), "two");
    assert_int_equal(count_names(root), 1);
    file_writer_abandon(NULL);
}

/* Returns the id of a process that has ended. No process has this id now. */
static long dead_process(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return (long)child;
}

static void test_what_the_dead_left_is_removed(void **state) {
    (void)state;
    char name[80], staged[FILE_STAGING_NAME];
    long dead = dead_process(), alive = (long)getppid();
    const struct {
        const char *format;
        long process;
        bool stale;
    } left[] = {{"out.ottava-tmp-%ld", dead, true},         {"out.ottava-tmp-%ld-3", dead, true},
                {"out.ottava-tmp-%ld", alive, false},       {"out.ottava-tmp-%ldx", dead, false},
                {"out2.ottava-tmp-%ld", dead, false},       {"out.tmp-%ld", dead, false},
                {"out.ottava-tmp-%ld", 999999999999, false}};
    int count = (int)(sizeof left / sizeof *left);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, left[i].format, left[i].process);
        write_text(at(name), "half");
    }
    /* a staging folder that an earlier process with the same id left */
    file_staging_name(at("out/"), staged);
    assert_int_equal(file_make_folder(staged), OTT_OK);
    assert_int_equal(staging_remove_stale(m, at("out")), OTT_OK);
    assert_false(file_exists(staged));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, left[i].format, left[i].process);
        assert_int_equal(file_exists(at(name)), !left[i].stale);
    }
    assert_int_equal(staging_remove_stale(m, at("none/out")), OTT_OK);
}

/* A folder that is written under a staging name appears only when it is complete. Then it replaces an older
   folder of its name. A failed write leaves nothing. */
static void test_staging(void **state) {
    (void)state;
    staging s;
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(staging_open(m, at("staged/"), &s), OTT_OK);
        snprintf(path, sizeof path, "%s/f%d", s.path.text, i);
        assert_int_equal(file_write_atomic(path, "x", 1), OTT_OK);
        assert_int_equal(file_exists(at("staged")), i);
        assert_int_equal(staging_end(&s, OTT_OK), OTT_OK);
        assert_int_equal(file_exists(at("staged/f0")), i == 0);
        assert_int_equal(file_exists(at("staged/f1")), i == 1);
    }
    assert_int_equal(staging_open(m, at("staged"), &s), OTT_OK);
    snprintf(path, sizeof path, "%s", s.path.text);
    assert_int_equal(staging_end(&s, status_fail(OTT_ERR_IO, "the disk is full")), OTT_ERR_IO);
    assert_string_equal(status_text(), "the disk is full");
    assert_false(file_exists(path));
    assert_true(file_exists(at("staged/f1")));
    write_text(at("taken"), "x");
    assert_int_equal(staging_open(m, at("taken"), &s), OTT_OK);
    assert_int_equal(staging_end(&s, OTT_OK), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "taken: a file has the folder's name"));
    write_text(at("gone.ottava-tmp-999999999"), "x");
    assert_int_equal(staging_remove_stale_in(m, root), OTT_OK);
    assert_false(file_exists(at("gone.ottava-tmp-999999999")));
}

static void test_patch(void **state) {
    (void)state;
    file_writer *w;
    assert_int_equal(file_writer_open(m, at("w"), &w), OTT_OK);
    assert_int_equal(file_writer_append(w, "....fox", 7), OTT_OK);
    assert_int_equal(file_writer_patch(w, 0, "the ", 4), OTT_OK);
    assert_int_equal(file_writer_append(w, " runs", 5), OTT_OK);
    assert_int_equal(file_writer_commit(w), OTT_OK);
    assert_text(at("w"), "the fox runs");
}

static void test_writing_errors_name_the_path(void **state) {
    (void)state;
    file_writer *w = (file_writer *)&w;
    assert_int_equal(file_write_atomic(at("none/a"), "x", 1), OTT_ERR_NOT_FOUND);
    assert_names(at("none/a"), "No such file");
    assert_int_equal(file_writer_open(m, at("none/a"), &w), OTT_ERR_NOT_FOUND);
    assert_null(w);
    assert_int_equal(file_write_atomic(root, "x", 1), OTT_ERR_ARGUMENT);
    assert_names(root, "is a folder");
    mem_fail_after(m, 1);
    assert_int_equal(file_writer_open(m, at("a"), &w), OTT_ERR_MEMORY);
    assert_int_equal(count_names(root), 0);
    if (geteuid() == 0) return; /* root may write anywhere, so nothing would fail */
    assert_int_equal(chmod(root, 0500), 0);
    ott_status status = file_write_atomic(at("a"), "x", 1);
    chmod(root, 0700);
    assert_int_equal(status, OTT_ERR_ARGUMENT);
    assert_names(at("a"), "Permission denied");
}

static void test_full_disk(void **state) {
    (void)state;
    static const char block[1000];
    struct stat info;
    file_writer *w;
    if (stat("/dev/full", &info) != 0 || !S_ISCHR(info.st_mode)) skip();
    assert_int_equal(file_write_output("/dev/full", "x", 1), OTT_ERR_IO);
    assert_string_equal(status_text(), "/dev/full: cannot write: No space left on device");
    assert_int_equal(file_writer_open_output(m, "/dev/full", &w), OTT_OK);
    assert_int_equal(file_writer_append(w, block, sizeof block), OTT_OK);
    assert_int_equal(file_writer_commit(w), OTT_ERR_IO);
    assert_names("/dev/full", "No space left on device");
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode)); /* a device is written to, not replaced by a file */
    assert_int_equal(file_write_output("/dev/null", "x", 1), OTT_OK);
}

/* Runs in a child process, because a limit of the file size cannot be raised again. Returns the number of the
   failed check; 0: all passed. */
static int write_beyond_limit(void) {
    static const char block[300000];
    struct rlimit limit = {250000, 250000};
    file_writer *w;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 0;
    if (file_write_atomic(at("old"), block, 200000) != OTT_OK) return 1;
    if (file_writer_open(m, at("new"), &w) != OTT_OK) return 2;
    ott_status status = OTT_OK;
    for (int i = 0; i < 10 && status == OTT_OK; i++) status = file_writer_append(w, block, 100000);
    if (status != OTT_ERR_IO || !strstr(status_text(), "File too large")) return 3;
    if (file_writer_append(w, block, 1) != OTT_ERR_IO) return 4;
    if (file_writer_commit(w) != OTT_ERR_IO || !strstr(status_text(), "earlier write failed")) return 5;
    if (file_exists(at("new")) || count_names(root) != 1) return 6;
    if (file_write_atomic(at("old"), block, sizeof block) != OTT_ERR_IO) return 7;
    int64_t bytes = 0;
    if (file_size(at("old"), &bytes) != OTT_OK || bytes != 200000 || count_names(root) != 1) return 8;
    return mem_read(m).now == 0 ? 0 : 9;
}

static void test_failed_write_keeps_the_old_file(void **state) {
    (void)state;
    int result;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(write_beyond_limit());
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void test_links_stay_links(void **state) {
    (void)state;
    struct stat info;
    assert_int_equal(file_make_folder(at("far")), OTT_OK);
    write_text(at("far/real"), "old");
    assert_int_equal(symlink("far/real", at("link")), 0);
    assert_int_equal(file_write_output(at("link"), "new", 3), OTT_OK);
    assert_int_equal(lstat(at("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_text(at("far/real"), "new");
}

/* Writing the program's own files fails if a link, a pipe or a folder has their name. The target of the link
   does not change. */
static void test_own_files_are_no_links(void **state) {
    (void)state;
    file_writer *w;
    int descriptor;
    write_text(at("victim"), "old");
    assert_int_equal(symlink("victim", at("link")), 0);
    assert_int_equal(symlink("nothing", at("dangling")), 0);
    assert_int_equal(mkfifo(at("pipe"), 0600), 0);
    static const char *const names[] = {"link", "dangling", "pipe", "."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = at(names[i]);
        assert_int_equal(file_check_own(path), OTT_ERR_ARGUMENT);
        assert_names(path, i < 2 ? "is a symbolic link" : "not a file");
        assert_int_equal(file_open_own(path, O_RDWR | O_TRUNC, &descriptor), OTT_ERR_ARGUMENT);
        assert_int_equal(descriptor, -1);
        assert_int_equal(file_write_atomic(path, "new", 3), OTT_ERR_ARGUMENT);
        assert_int_equal(file_writer_open(m, path, &w), OTT_ERR_ARGUMENT);
        assert_int_equal(file_writer_join(m, path, &w), OTT_ERR_ARGUMENT);
    }
    assert_text(at("victim"), "old");
    assert_false(file_exists(at("nothing")));
    assert_int_equal(count_names(root), 4);
    assert_int_equal(file_check_own(at("new")), OTT_OK);
    assert_int_equal(file_open_own(at("new"), O_RDWR, &descriptor), OTT_OK);
    close(descriptor);
    assert_text(at("new"), "");
    assert_int_equal(file_open_own(at("none/new"), O_RDWR, &descriptor), OTT_ERR_NOT_FOUND);
}

/* Runs in a child process, because the limit of open files cannot be raised again. Returns the number of the
   failed check; 0: all passed. */
static int write_without_descriptors(void) {
    struct rlimit limit = {3, 3};
    int descriptor;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    if (file_write_atomic(at("a"), "x", 1) != OTT_ERR_IO) return 1;
    if (!strstr(status_text(), "Too many open files; raise the limit: ulimit -n")) return 2;
    if (file_open_own(at("a"), O_RDWR, &descriptor) != OTT_ERR_IO) return 3;
    return strstr(status_text(), "raise the limit") ? 0 : 4;
}

static void test_too_many_open_files(void **state) {
    (void)state;
    int result;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(write_without_descriptors());
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

static void test_same_files(void **state) {
    (void)state;
    write_text(at("a"), "a");
    write_text(at("b"), "a");
    assert_int_equal(symlink("a", at("soft")), 0);
    assert_int_equal(link(at("a"), at("hard")), 0);
    static const char *const names[] = {"a", "./a", "soft", "hard"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(file_is_same(at(names[i]), at("a")));
        assert_int_equal(file_check_output(at(names[i]), at("a")), OTT_ERR_ARGUMENT);
        assert_names(at(names[i]), "is an input too");
        assert_false(file_is_same(at(names[i]), at("b")));
        assert_int_equal(file_check_output(at("b"), at(names[i])), OTT_OK);
    }
    assert_false(file_is_same(at("none"), at("none")));
    assert_int_equal(file_check_output(at("none"), at("a")), OTT_OK);
    assert_int_equal(file_check_output("/dev/null", "/dev/null"), OTT_OK);
}

static void test_joined_paths(void **state) {
    (void)state;
    char path[PATH_MAX];
    char *resolved;
    static const char *const paths[][3] = {{"a", "b", "a/b"}, {"a/", "b//c/", "a/b/c"},
                                           {"", "b/", "b"},   {"a", "/b//c", "/b/c"},
                                           {"//a", "/", "/"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(file_resolve(m, paths[i][0], paths[i][1], &resolved), OTT_OK);
        assert_string_equal(resolved, paths[i][2]);
        mem_free(m, resolved);
    }
    static const char *const rows[][2] = {
        {"a", "a/b"}, {"a/", "a/b"}, {"a//", "a/b"}, {"/", "/b"}, {".", "./b"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(file_join(rows[i][0], "b", path), OTT_OK);
        assert_string_equal(path, rows[i][1]);
    }
}

static void test_reader_checks_bounds(void **state) {
    (void)state;
    file_reader r;
    char out[16] = "";
    const char *path = at("r");
    write_text(path, "0123456789");
    assert_int_equal(file_reader_open(path, &r), OTT_OK);
    assert_int_equal(file_reader_read(&r, 3, out, 4), OTT_OK);
    assert_memory_equal(out, "3456", 4);
    assert_int_equal(file_reader_read(&r, 10, out, 0), OTT_OK);
    assert_int_equal(file_reader_read(&r, 7, out, 4), OTT_ERR_FORMAT);
    assert_names(path, "at byte 7 of a file of 10 bytes");
    assert_int_equal(file_reader_read(&r, -1, out, 4), OTT_ERR_FORMAT);
    assert_int_equal(file_reader_read(&r, 4, out, -1), OTT_ERR_FORMAT);
    assert_int_equal(file_reader_read(&r, INT64_MAX, out, INT64_MAX), OTT_ERR_FORMAT);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(file_reader_read(&r, 3, out, 4), OTT_ERR_IO);
    assert_names(path, "shrank");
    file_reader_close(&r);
    file_reader_close(&r); /* a second close has no effect */
    assert_int_equal(file_reader_open(at("none"), &r), OTT_ERR_NOT_FOUND);
    file_reader_close(&r);
}

/* Computes CRC-32C by its definition, one bit after the other. */
static uint32_t slow_crc32c(const unsigned char *p, int64_t bytes) {
    uint32_t crc = UINT32_MAX;
    for (int64_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* The CRC of a text is the exclusive or of what file_crc32c_before returns for its pieces, in any order. */
static void test_crc32c_of_pieces(void **state) {
    (void)state;
    static unsigned char data[5000];
    static const int64_t offsets[] = {0, 1, 7, 7, 1024, 1031, 4095, 5000};
    uint32_t sum = 0;
    for (int i = 0; i < 5000; i++) data[i] = (unsigned char)(i * i / 7);
    for (int i = 6; i >= 0; i--)
        sum ^= file_crc32c_before(file_crc32c(0, data + offsets[i], offsets[i + 1] - offsets[i]),
                                  5000 - offsets[i + 1]);
    assert_int_equal(sum, file_crc32c(0, data, 5000));
    assert_int_equal(
        file_crc32c_before(file_crc32c(0, data, 1), INT64_C(1) << 40),
        file_crc32c_before(file_crc32c_before(file_crc32c(0, data, 1), INT64_C(1) << 39), INT64_C(1) << 39));
}

/* Two writers write one file. Each writer skips the bytes that the other writes. */
static void test_two_write_one_file(void **state) {
    (void)state;
    file_writer *w[2];
    for (int i = 0; i < 2; i++) assert_int_equal(file_writer_join(m, at("both"), &w[i]), OTT_OK);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) {
            if (i == 1) assert_int_equal(file_writer_skip(w[i], 2), OTT_OK);
            assert_int_equal(file_writer_append(w[i], i ? "def" : "ab", i ? 3 : 2), OTT_OK);
            if (i == 0) assert_int_equal(file_writer_skip(w[i], 3), OTT_OK);
        }
    for (int i = 0; i < 2; i++) assert_int_equal(file_writer_commit(w[i]), OTT_OK);
    assert_text(at("both"), "abdefabdefabdef");
}

static void test_crc32c(void **state) {
    (void)state;
    unsigned char data[600] = {0};
    assert_int_equal(file_crc32c(0, "", 0), 0);
    assert_int_equal(file_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(file_crc32c(0, data, 32), 0x8a9136aau); /* an example of RFC 3720, B.4 */
    memset(data, 0xff, 32);
    assert_int_equal(file_crc32c(0, data, 32), 0x62a8ab43u);
    for (int i = 0; i < 600; i++) data[i] = (unsigned char)(i * 151 + i / 7);
    for (int start = 0; start < 8; start++)
        for (int bytes = 0; bytes + start <= 600; bytes += 1 + bytes / 9) {
            uint32_t expected = slow_crc32c(data + start, bytes);
            assert_int_equal(file_crc32c(0, data + start, bytes), expected);
            int half = bytes / 3;
            uint32_t first = file_crc32c(0, data + start, half);
            assert_int_equal(file_crc32c(first, data + start + half, bytes - half), expected);
        }
}

static void test_clocks(void **state) {
    (void)state;
    double before = clock_seconds();
    usleep(2000);
    assert_true(clock_seconds() - before >= 0.002);
    assert_true(clock_wall() > 1.7e9);
}

/* A folder is not inside another folder just because its name begins with the other's name. */
static void test_paths_inside_a_folder(void **state) {
    (void)state;
    assert_true(file_is_inside("runs/a", "runs/a"));
    assert_true(file_is_inside("runs/a/checkpoints", "runs/a"));
    assert_true(file_is_inside("/tmp", "/"));
    assert_false(file_is_inside("runs/ab", "runs/a"));
    assert_false(file_is_inside("runs", "runs/a"));
    assert_false(file_is_inside("runs", ""));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_folder, close_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_write_and_read),
        TEST(test_reading_errors_name_the_path),
        TEST(test_folders),
        TEST(test_remove_tree_leaves_what_links_point_to),
        TEST(test_rename),
        TEST(test_writer),
        TEST(test_abandon_leaves_nothing),
        TEST(test_what_the_dead_left_is_removed),
        TEST(test_staging),
        TEST(test_patch),
        TEST(test_writing_errors_name_the_path),
        TEST(test_full_disk),
        TEST(test_failed_write_keeps_the_old_file),
        TEST(test_links_stay_links),
        TEST(test_own_files_are_no_links),
        TEST(test_too_many_open_files),
        TEST(test_same_files),
        TEST(test_joined_paths),
        TEST(test_reader_checks_bounds),
        cmocka_unit_test(test_paths_inside_a_folder),
        cmocka_unit_test(test_crc32c),
        cmocka_unit_test(test_crc32c_of_pieces),
        TEST(test_two_write_one_file),
        cmocka_unit_test(test_clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
