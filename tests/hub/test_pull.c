/* Downloads a model from a server that fails as a hub and its network may fail. After each case the
   cache has the complete model or none of it, and every blob is a file of the model. */
#include "base/file/file.h"
#include "formats/hf/hub_name.h"
#include "hub_fixture.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define CACHE   "hub/models--org--tiny"
#define WEIGHTS "model.safetensors"
static const char *const files[] = {"config.json", "tokenizer.json", "merges.txt", WEIGHTS};
enum { FILES = 4 };

static bool is_same_text(folder *f, const char *a, const char *b) {
    int64_t bytes_a, bytes_b;
    char *x = folder_read(f, a, &bytes_a), *y = folder_read(f, b, &bytes_b);
    bool same = bytes_a == bytes_b && memcmp(x, y, (size_t)bytes_a) == 0;
    mem_free(f->account, x);
    mem_free(f->account, y);
    return same;
}

/* Checks that every blob is a file of the model, or has the name of an incomplete one. */
static int count_blobs(hub_fixture *x, bool *any_incomplete) {
    file_list names = {0};
    char blob[200], name[64];
    int count = 0;
    *any_incomplete = false;
    if (!file_exists(folder_file(x->f, CACHE "/blobs"))) return 0;
    assert_int_equal(file_list_folder(x->f->account, folder_file(x->f, CACHE "/blobs"), &names), OTT_OK);
    for (int64_t i = 0; i < names.count; i++) {
        const char *end = strrchr(names.names[i], '.');
        if (end) {
            assert_string_equal(end, ".incomplete");
            *any_incomplete = true;
            continue;
        }
        bool known = false;
        snprintf(blob, sizeof blob, CACHE "/blobs/%.80s", names.names[i]);
        for (int k = 0; k < FILES; k++) {
            snprintf(name, sizeof name, "repo/%s", files[k]);
            known = known || is_same_text(x->f, blob, name);
        }
        if (!known) fail_msg("%s is no file of the model", blob);
        count++;
    }
    file_list_free(&names);
    return count;
}

static void check_complete(hub_fixture *x, const char *where) {
    char path[PATH_MAX], target[PATH_MAX], name[64];
    bool incomplete;
    file_list names = {0};
    snprintf(path, sizeof path, "%s/" CACHE "/snapshots/" HUB_SERVER_COMMIT, x->f->path);
    assert_string_equal(where, path);
    assert_int_equal(file_list_folder(x->f->account, path, &names), OTT_OK);
    assert_int_equal(names.count, FILES);
    file_list_free(&names);
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, CACHE "/snapshots/" HUB_SERVER_COMMIT "/%s", files[i]);
        snprintf(name, sizeof name, "repo/%s", files[i]);
        assert_true(is_same_text(x->f, path, name));
        ssize_t length = readlink(folder_file(x->f, path), target, sizeof target - 1);
        assert_true(length > 12 && strncmp(target, "../../blobs/", 12) == 0);
    }
    char *commit = folder_read(x->f, CACHE "/refs/main", NULL);
    assert_string_equal(commit, HUB_SERVER_COMMIT);
    mem_free(x->f->account, commit);
    assert_int_equal(count_blobs(x, &incomplete), FILES);
    assert_false(incomplete);
    assert_true(hub_name_find("org/tiny", "main", path));
}

static void check_nothing(hub_fixture *x) {
    bool incomplete;
    char path[PATH_MAX];
    count_blobs(x, &incomplete);
    assert_false(file_exists(folder_file(x->f, CACHE "/snapshots")));
    assert_false(file_exists(folder_file(x->f, CACHE "/refs")));
    assert_false(hub_name_find("org/tiny", "main", path));
}

static void pull_well(hub_fixture *x) {
    char where[PATH_MAX];
    ott_status status = hub_pull(&x->caller, "org/tiny", "main", true, false, where);
    if (status != OTT_OK) fail_msg("%s", status_text());
    check_complete(x, where);
}

static void pull_badly(hub_fixture *x, ott_status expected, const char *part) {
    char where[PATH_MAX];
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", true, false, where), expected);
    assert_error_names(part);
    check_nothing(x);
}

/* Writes the path of the weights' incomplete blob, and empties the cache. */
static void find_incomplete_weights(hub_fixture *x, char out[PATH_MAX]) {
    pull_well(x);
    char link[PATH_MAX];
    ssize_t length =
        readlink(folder_file(x->f, CACHE "/snapshots/" HUB_SERVER_COMMIT "/" WEIGHTS), link, sizeof link - 1);
    assert_true(length > 12);
    link[length] = '\0';
    snprintf(out, PATH_MAX, CACHE "/blobs/%.64s.incomplete", link + 12);
    assert_int_equal(file_remove_tree(folder_file(x->f, CACHE)), OTT_OK);
    assert_int_equal(file_make_folder(folder_file(x->f, CACHE "/blobs")), OTT_OK);
}

static void test_pull(void **state) {
    hub_fixture *x = *state;
    char where[PATH_MAX];
    pull_well(x);
    int requests = hub_server_count(x->server, "GET ", "");
    pull_well(x); /* asks for the list again, and downloads nothing */
    assert_int_equal(hub_server_count(x->server, "GET ", ""), requests + 1);
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", true, true, where), OTT_OK);
    assert_int_equal(hub_server_count(x->server, "GET ", ""), requests + 1);
    check_complete(x, where);
}

static void test_other_revision(void **state) {
    hub_fixture *x = *state;
    char where[PATH_MAX];
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "refs/pr/1", true, false, where), OTT_OK);
    assert_int_equal(hub_server_count(x->server, "/revision/refs%2Fpr%2F1?", ""), 1);
    assert_true(hub_name_find("org/tiny", "refs/pr/1", where));
    assert_false(hub_name_find("org/tiny", "main", where));
    assert_true(hub_name_find("org/tiny", HUB_SERVER_COMMIT, where));
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "../x", true, false, where), OTT_ERR_ARGUMENT);
    assert_int_equal(hub_pull(&x->caller, "org", "main", true, false, where), OTT_ERR_ARGUMENT);
}

/* Faults after which the download succeeds. */
static void test_temporary_faults(void **state) {
    hub_fixture *x = *state;
    static const struct {
        hub_fault fault;
        int times;
        const char *part;
    } cases[] = {
        {HUB_BREAK, 3, "/content/"}, {HUB_BREAK, 1, "/api/"},    {HUB_BREAK, 1, "/tokenizer.json"},
        {HUB_BUSY, 2, "/content/"},  {HUB_BUSY, 1, "/api/"},     {HUB_WRONG_BYTES, 1, "/content/"},
        {HUB_SHORT, 1, "/content/"}, {HUB_LONG, 1, "/content/"}, {HUB_WRONG_BYTES, 1, "/config.json"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hub_server_fail(x->server, cases[i].fault, cases[i].times, cases[i].part);
        pull_well(x);
        hub_server_fail(x->server, HUB_NO_FAULT, 0, "");
        assert_int_equal(file_remove_tree(folder_file(x->f, CACHE)), OTT_OK);
    }
    assert_int_equal(hub_server_count(x->server, "GET /content/", "\r\nRange: bytes="), 3);
}

static void test_retry_after(void **state) {
    hub_fixture *x = *state;
    struct timespec before, after;
    hub_server_fail(x->server, HUB_TOO_MANY, 1, "/content/");
    clock_gettime(CLOCK_MONOTONIC, &before);
    pull_well(x);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true((double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec) >
                0.9);
}

/* Faults that stay. */
static void test_lasting_faults(void **state) {
    hub_fixture *x = *state;
    static const struct {
        hub_fault fault;
        const char *part;
        ott_status status;
        const char *message;
    } cases[] = {
        {HUB_WRONG_BYTES, "/content/", OTT_ERR_IO, "received twice with a wrong checksum"},
        {HUB_SHORT, "/content/", OTT_ERR_IO, "received twice with a wrong size"},
        {HUB_LONG, "/content/", OTT_ERR_IO, "received twice with a wrong size"},
        {HUB_BUSY, "/content/", OTT_ERR_IO, "HTTP 503"},
        {HUB_LOOP, "/resolve/", OTT_ERR_IO, "Maximum (10) redirects followed"},
        {HUB_UNAUTHORIZED, "/api/", OTT_ERR_NOT_FOUND,
         "has no such model or revision, or it is private (HTTP 401)"},
        {HUB_MISSING, "/api/", OTT_ERR_NOT_FOUND,
         "has no such model or revision, or it is private (HTTP 404)"},
        {HUB_NO_REVISION, "/api/", OTT_ERR_NOT_FOUND, "has no such model or revision"},
        {HUB_GATED, "/resolve/", OTT_ERR_ARGUMENT, "/org/tiny, then set HF_TOKEN"},
        {HUB_HOSTILE_NAME, "/api/", OTT_ERR_FORMAT, "\"a/../../x.json\" is not allowed"},
        {HUB_HOSTILE_SUM, "/api/", OTT_ERR_FORMAT, "has the checksum \"../../../x\""},
        {HUB_NOT_JSON, "/api/", OTT_ERR_FORMAT, "is not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hub_server_fail(x->server, cases[i].fault, 1000, cases[i].part);
        pull_badly(x, cases[i].status, cases[i].message);
    }
    hub_server_fail(x->server, HUB_NO_FAULT, 0, "");
    pull_well(x); /* incomplete files of the failures are resumed or replaced */
}

static void test_too_many_requests(void **state) {
    hub_fixture *x = *state;
    x->stop_at = "GET /content/"; /* so that the test does not wait five times */
    hub_server_fail(x->server, HUB_TOO_MANY, 1000, "/content/");
    pull_badly(x, OTT_ERR_STOPPED, "stopped");
}

/* Resumes at the end of a partial file. The file may have wrong bytes, be complete or be too long. */
static void test_resume(void **state) {
    hub_fixture *x = *state;
    static const struct {
        int percent, wrong;
        hub_fault fault;
        int ranges, requests; /* requests of the weights: with Range, all */
    } cases[] = {{50, 0, HUB_NO_FAULT, 1, 1},   {50, 1, HUB_NO_FAULT, 1, 2},  {150, 0, HUB_NO_FAULT, 0, 1},
                 {100, 0, HUB_NO_FAULT, 0, 0},  {100, 1, HUB_NO_FAULT, 0, 1}, {50, 0, HUB_NO_RANGE, 1, 1},
                 {50, 0, HUB_WRONG_PART, 1, 2}, {50, 0, HUB_BREAK, 2, 2}};
    char blob[PATH_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes;
        find_incomplete_weights(x, blob);
        int requests = hub_server_count(x->server, "GET /content/", "");
        int ranges = hub_server_count(x->server, "GET /content/", "\r\nRange: bytes=");
        char *data = folder_read(x->f, "repo/" WEIGHTS, &bytes), *copy = calloc(2, (size_t)bytes);
        assert_non_null(copy);
        memcpy(copy, data, (size_t)bytes);
        copy[10] ^= (char)cases[i].wrong;
        folder_write(x->f, blob, copy, bytes * cases[i].percent / 100);
        free(copy);
        mem_free(x->f->account, data);
        hub_server_fail(x->server, cases[i].fault, 1, "/content/");
        pull_well(x);
        assert_int_equal(hub_server_count(x->server, "GET /content/", "") - requests, cases[i].requests);
        assert_int_equal(hub_server_count(x->server, "GET /content/", "\r\nRange: bytes=") - ranges,
                         cases[i].ranges);
        assert_int_equal(file_remove_tree(folder_file(x->f, CACHE)), OTT_OK);
    }
}

/* A stop request ends a stalled download; the next one resumes it. */
static void test_stop(void **state) {
    hub_fixture *x = *state;
    bool incomplete;
    hub_server_fail(x->server, HUB_STALL, 1, "/content/");
    x->stop_at = "GET /content/";
    pull_badly(x, OTT_ERR_STOPPED, "stopped on request");
    count_blobs(x, &incomplete);
    assert_true(incomplete);
    x->stop_at = NULL;
    pull_well(x);
}

/* The largest size of a file is limited, which fails as a full disk does. */
static void test_full_disk(void **state) {
    hub_fixture *x = *state;
    bool incomplete;
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    char where[PATH_MAX];
    ott_status status = hub_pull(&x->caller, "org/tiny", "main", true, false, where);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, status_from_errno(EFBIG));
    assert_error_names("cannot write byte 100000 of 300000: File too large; free space, or set HF_HOME");
    check_nothing(x);
    count_blobs(x, &incomplete);
    assert_true(incomplete);
    pull_well(x);
    assert_int_equal(hub_server_count(x->server, "GET /content/", "\r\nRange: bytes=100000-"), 1);
}

/* Processes that download at the same time wait for each other: each file is downloaded once. */
static void test_several_at_once(void **state) {
    hub_fixture *x = *state;
    char where[PATH_MAX];
    pid_t children[4];
    int result;
    hub_server_fail(x->server, HUB_BUSY, 2, "/content/"); /* the first one takes longer */
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit((int)hub_pull(&x->caller, "org/tiny", "main", true, false, where));
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(waitpid(children[i], &result, 0), children[i]);
        assert_int_equal(result, 0);
    }
    assert_int_equal(hub_server_count(x->server, "GET /content/", ""), 3);
    assert_int_equal(hub_server_count(x->server, "/config.json", ""), 1);
    pull_well(x);
}

/* The token is sent to the hub, but not to its content network. */
static void test_token(void **state) {
    hub_fixture *x = *state;
    setenv("HF_TOKEN", " hf_secret\n", 1);
    pull_well(x);
    int all = hub_server_count(x->server, "GET ", ""),
        content = hub_server_count(x->server, "GET /content/", "");
    assert_int_equal(content, 1);
    assert_int_equal(hub_server_count(x->server, "\r\nAuthorization: Bearer hf_secret\r\n", ""),
                     all - content);
    assert_int_equal(hub_server_count(x->server, "GET /content/", "hf_secret"), 0);
    hub_server_fail(x->server, HUB_UNAUTHORIZED, 1, "/api/");
    char where[PATH_MAX];
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", true, false, where), OTT_ERR_NOT_FOUND);
    assert_error_names("the revision and the token (HF_TOKEN)");
    unsetenv("HF_TOKEN");
    folder_write_text(x->f, "token", "hf_filed\n");
    pull_well(x);
    assert_int_equal(hub_server_count(x->server, "\r\nAuthorization: Bearer hf_filed\r\n", ""), 1);
    setenv("HF_TOKEN", "hf\r\nX-Header: y", 1);
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", true, false, where), OTT_ERR_ARGUMENT);
    assert_error_names("HF_TOKEN: is not a token");
}

static void test_offline(void **state) {
    hub_fixture *x = *state;
    char where[PATH_MAX];
    setenv("HF_HUB_OFFLINE", "yes", 1);
    pull_badly(x, OTT_ERR_NOT_FOUND, "HF_HUB_OFFLINE forbids");
    assert_int_equal(hub_server_count(x->server, "", ""), 0);
    setenv("HF_HUB_OFFLINE", "0", 1);
    pull_well(x);
    int requests = hub_server_count(x->server, "", "");
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", true, false, where), OTT_OK);
    assert_int_equal(hub_server_count(x->server, "", ""), requests);
    check_complete(x, where);
}

static void test_no_network(void **state) {
    hub_fixture *x = *state;
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
    pull_badly(x, OTT_ERR_IO, "Failed to connect to 127.0.0.1 port 1");
    setenv("HF_ENDPOINT", "file:///etc", 1);
    pull_badly(x, OTT_ERR_IO, "not supported");
}

/* A snapshot without weights, as a download of the tokenizer alone leaves it. */
static void test_without_weights(void **state) {
    hub_fixture *x = *state;
    char where[PATH_MAX];
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", false, true, where), OTT_OK);
    assert_false(file_is_in(where, WEIGHTS));
    assert_true(file_is_in(where, "tokenizer.json"));
    int requests = hub_server_count(x->server, "", "");
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", false, true, where), OTT_OK);
    assert_int_equal(hub_server_count(x->server, "", ""), requests);
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", true, true, where), OTT_OK);
    check_complete(x, where);
}

/* Repositories that Ottava cannot read. */
static void test_unreadable(void **state) {
    hub_fixture *x = *state;
    unlink(folder_file(x->f, "repo/" WEIGHTS));
    pull_badly(x, OTT_ERR_UNSUPPORTED, "no *.safetensors");
    unlink(folder_file(x->f, "repo/config.json"));
    pull_badly(x, OTT_ERR_UNSUPPORTED, "no config.json");
    char where[PATH_MAX];
    assert_int_equal(hub_pull(&x->caller, "org/tiny", "main", false, true, where), OTT_OK); /* a tokenizer */
    assert_true(file_is_in(where, "tokenizer.json"));
}

static void test_names(void **state) {
    hub_fixture *x = *state;
    char out[PATH_MAX];
    const char *path = "org/tiny";
    static const char *const bad[] = {"org",    "org/a/b", "/org/a", "./a",     "../a",     "a/..",
                                      "a/b--c", "a/.b",    "a-/b",   "a/b c",   "a/",       "",
                                      "a/b\nc", "~/a",     "a//b",   "C:\\a/b", "org/tiny/"};
    assert_true(hub_name_is("org/tiny"));
    assert_true(hub_name_is("meta-llama/Llama-3.1-8B"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_name_is(bad[i])) fail_msg("\"%s\" is no name", bad[i]);
    assert_int_equal(hub_name_resolve("model.hf_path", &path, out), OTT_ERR_CONFIG);
    assert_error_names("ottava pull org/tiny");
    pull_well(x);
    assert_int_equal(hub_name_resolve("model.hf_path", &path, out), OTT_OK);
    assert_string_equal(hub_name_of(path, (char[PATH_MAX]){0}), "org/tiny");
    assert_string_equal(hub_name_of("/models--x/models--a--b-c/snapshots/12", out), "a/b-c");
    static const char *const others[] = {"/a/b", "/models--a/snapshots/1", "/models--a--b",
                                         "/models--a--b/x/snapshots/1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_ptr_equal(hub_name_of(others[i], out), others[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        HUB_TEST(test_pull),
        HUB_TEST(test_other_revision),
        HUB_TEST(test_temporary_faults),
        HUB_TEST(test_retry_after),
        HUB_TEST(test_lasting_faults),
        HUB_TEST(test_too_many_requests),
        HUB_TEST(test_resume),
        HUB_TEST(test_stop),
        HUB_TEST(test_full_disk),
        HUB_TEST(test_several_at_once),
        HUB_TEST(test_token),
        HUB_TEST(test_offline),
        HUB_TEST(test_no_network),
        HUB_TEST(test_without_weights),
        HUB_TEST(test_unreadable),
        HUB_TEST(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
