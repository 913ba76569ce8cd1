/* Exporting a run: which checkpoint, what is refused, and that a failure leaves nothing. */
#define _GNU_SOURCE
#include "train/export.h"
#include "base/file.h"
#include "fp8/cast.h"
#include "formats/shards.h"
#include "backend/open.h"
#include "train/inference.h"
#include "train/train_fixture.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct exported {
    ott_status status;
    char said[1024], path[200];
} exported;

static ott_export_options options_of(ott_export_format format) {
    return (ott_export_options){
        .struct_size = sizeof(ott_export_options), .format = format, .dtype = OTT_BF16};
}

/* FOLDER/run to FOLDER/goal, in an account that must be empty after it. */
static exported export_to(const fixture *f, const char *run, const char *goal, const ott_export_options *o) {
    exported e;
    char from[200];
    mem *account;
    snprintf(from, sizeof from, "%s/%s", f->folder, run);
    snprintf(e.path, sizeof e.path, "%s/%s", f->folder, goal);
    FIXTURE_OK(mem_open(&account));
    str said = {.account = account};
    e.status = export_run(account, NULL, from, e.path, o, &said);
    snprintf(e.said, sizeof e.said, "%s", e.status == OTT_OK ? said.text : status_text());
    str_free(&said);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return e;
}

static void assert_said(const exported *e, ott_status expected, const char *part) {
    if (e->status != expected || !strstr(e->said, part)) fail_msg("\"%s\" instead of \"%s\"", e->said, part);
}

/* Beside the runs nothing with this in its name is left. */
static void assert_nothing_aside(const fixture *f, const char *part) {
    file_list names;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(file_list_folder(account, f->folder, &names));
    for (int64_t i = 0; i < names.count; i++)
        if (strstr(names.names[i], part)) fail_msg("left behind: %s", names.names[i]);
    file_list_free(&names);
    mem_close(account);
}

static int open_runs(void **state) {
    static const char *const more[] = {"--checkpoint.interval=2", NULL};
    if (fixture_setup(state) != 0) return -1;
    FIXTURE_OK(fixture_run(
        *state, &(run_options){.name = "bf16", .precision = &fixture_precisions[BF16], .more = more}));
    return fixture_run(*state, &(run_options){.name = "rowwise",
                                              .precision = &fixture_precisions[ROWWISE],
                                              .more = more}) == OTT_OK
               ? 0
               : -1;
}

/* ---- what is exported ---- */

static void compare_with_masters(const char *checkpoint, const char *folder) {
    mem *account;
    shards *masters, *weights;
    static float x[1 << 20], y[1 << 20];
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(shards_open(account, checkpoint, &masters));
    FIXTURE_OK(shards_open(account, folder, &weights));
    assert_int_equal(shards_count(masters), shards_count(weights));
    for (int64_t i = 0; i < shards_count(masters); i++) {
        const shard_tensor *from = shards_at(masters, i), *to = shards_find(weights, from->entry->name);
        int64_t count = safetensors_elements(from->entry);
        assert_non_null(to);
        assert_true(count <= 1 << 20);
        FIXTURE_OK(shards_read_floats(masters, from, 0, count, x));
        FIXTURE_OK(shards_read_floats(weights, to, 0, count, y));
        for (int64_t j = 0; j < count; j++) assert_true(y[j] == cast_from_bf16(cast_to_bf16(x[j])));
    }
    shards_close(masters);
    shards_close(weights);
    mem_close(account);
}

/* The name of the newest checkpoint is in what is said; its weights are in the folder. */
static void test_the_newest_checkpoint_or_the_one_given(void **state) {
    const fixture *f = *state;
    const ott_export_options o = options_of(OTT_EXPORT_HF);
    exported newest = export_to(f, "bf16", "newest", &o);
    char checkpoint[300], *at;
    assert_said(&newest, OTT_OK, "bf16/checkpoints/step-");
    at = strstr(newest.said, "checkpoints/");
    snprintf(checkpoint, sizeof checkpoint, "%s/bf16/%.*s", f->folder, (int)strcspn(at, " "), at);
    compare_with_masters(checkpoint, newest.path);
    exported second = export_to(f, "bf16/checkpoints/step-2", "second/", &o);
    assert_said(&second, OTT_OK, "Exported");
    snprintf(checkpoint, sizeof checkpoint, "%s/bf16/checkpoints/step-2", f->folder);
    compare_with_masters(checkpoint, second.path);
    assert_nothing_aside(f, "tmp");
}

static void test_as_trained_takes_the_recipe_of_the_run(void **state) {
    const fixture *f = *state;
    ott_export_options o = options_of(OTT_EXPORT_HF_FP8);
    o.granularity = OTT_EXPORT_AS_TRAINED;
    exported e = export_to(f, "rowwise", "trained", &o);
    assert_said(&e, OTT_ERR_UNSUPPORTED, "compressed-tensors");
    o.method = OTT_EXPORT_COMPRESSED_TENSORS;
    e = export_to(f, "rowwise", "trained", &o);
    assert_said(&e, OTT_OK, "a scale an output channel");
    assert_said(&e, OTT_OK, "those the run multiplied");
    e = export_to(f, "bf16", "none", &o);
    assert_said(&e, OTT_ERR_UNSUPPORTED, "no matrix of this run ran in FP8");
    assert_nothing_aside(f, "none");
}

/* Matrices that a folder has in FP8 are run from its codes, whatever the precision. */
static void test_codes_of_a_folder_stay(void **state) {
    const fixture *f = *state;
    ott_export_options o = options_of(OTT_EXPORT_HF_FP8);
    o.method = OTT_EXPORT_COMPRESSED_TENSORS;
    o.granularity = OTT_EXPORT_CHANNEL;
    exported e = export_to(f, "bf16", "codes", &o);
    assert_said(&e, OTT_OK, "a scale an output channel");
    mem *account;
    config *cfg;
    char *checkpoint;
    inference_plan how;
    device *d;
    model *m;
    shards *file;
    static char theirs[1 << 16], ours[1 << 16];
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(inference_find(account, e.path, NULL, 0, &cfg, &checkpoint));
    FIXTURE_OK(inference_read(account, cfg, checkpoint, &how));
    FIXTURE_OK(test_device_open(account, 1, NULL, &d));
    FIXTURE_OK(inference_open(&how, d, cfg->train.seq_len, NULL, &m));
    FIXTURE_OK(shards_open(account, e.path, &file));
    for (int i = 0; i < m->modules.count; i++) {
        const model_module *module = &m->modules.of[i];
        const parameter *p = module->weight;
        bool in_block = module->kind == MODULE_LINEAR && module->layer != MODULES_OUTSIDE;
        assert_int_equal(p->codes != NULL, in_block);
        if (!in_block) continue;
        assert_in_range(parameter_count(p), 1, sizeof ours);
        FIXTURE_OK(shards_read(file, shards_find(file, p->name), 0, parameter_count(p), theirs));
        FIXTURE_OK(device_copy_out(d, ours, p->value.data, parameter_count(p)));
        assert_memory_equal(ours, theirs, (size_t)parameter_count(p));
    }
    shards_close(file);
    model_close(m);
    device_close(d);
    config_close(cfg);
    mem_close(account);
}

/* ---- what is refused ---- */

static void test_a_folder_in_use_is_refused(void **state) {
    const fixture *f = *state;
    const ott_export_options o = options_of(OTT_EXPORT_HF);
    char path[200];
    snprintf(path, sizeof path, "%s/empty", f->folder);
    FIXTURE_OK(file_make_folder(path));
    exported e = export_to(f, "bf16", "empty", &o);
    assert_said(&e, OTT_OK, "Exported");
    e = export_to(f, "bf16", "empty", &o);
    assert_said(&e, OTT_ERR_ARGUMENT, "empty is not empty");
    e = export_to(f, "bf16", "bf16", &o);
    assert_said(&e, OTT_ERR_ARGUMENT, "bf16 is not empty");
    e = export_to(f, "bf16", "bf16/config.toml", &o);
    assert_said(&e, OTT_ERR_ARGUMENT, "is a file");
}

static void test_what_is_not_there(void **state) {
    const fixture *f = *state;
    ott_export_options o = options_of(OTT_EXPORT_HF);
    exported e = export_to(f, "absent", "out", &o);
    assert_said(&e, OTT_ERR_NOT_FOUND, "absent");
    o.from = "no-such-folder";
    e = export_to(f, "bf16", "out", &o);
    assert_said(&e, OTT_ERR_NOT_FOUND, "no-such-folder");
    assert_nothing_aside(f, "out");
    o.from = "";
    e = export_to(f, "bf16", "without", &o);
    assert_said(&e, OTT_OK, "no Hugging Face folder and no tokenizer");
}

/* A limit on the size of files stands for a full disk. */
static void test_a_full_disk_leaves_nothing(void **state) {
    const fixture *f = *state;
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {4096, 4096};
        const ott_export_options o = options_of(OTT_EXPORT_HF);
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
        exported e = export_to(f, "bf16", "full", &o);
        _exit(e.status == OTT_ERR_IO && strstr(e.said, "cannot export to") ? 0 : 1);
    }
    int ended = -1;
    assert_true(child > 0 && waitpid(child, &ended, 0) == child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    assert_nothing_aside(f, "full");
}

/* Whichever allocation fails: an error, all memory given back, no folder. */
static void test_no_memory_leaves_nothing(void **state) {
    const fixture *f = *state;
    char run[200], goal[200];
    ott_export_options o = options_of(OTT_EXPORT_HF_FP8);
    snprintf(run, sizeof run, "%s/rowwise", f->folder);
    snprintf(goal, sizeof goal, "%s/starved", f->folder);
    for (int64_t n = 1;; n += 1 + n / 16) {
        mem *account;
        FIXTURE_OK(mem_open(&account));
        str said = {.account = account};
        mem_fail_after(account, n);
        ott_status status = export_run(account, NULL, run, goal, &o, &said);
        mem_fail_after(account, 0);
        bool all_said = str_finish(&said) == OTT_OK;
        str_free(&said);
        assert_int_equal(mem_read(account).now, 0);
        mem_close(account);
        if (status == OTT_OK) {
            if (all_said) break;
            FIXTURE_OK(file_remove_tree(goal));
            continue;
        }
        assert_false(file_exists(goal));
        assert_nothing_aside(f, "starved");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_checkpoint_or_the_one_given),
        cmocka_unit_test(test_as_trained_takes_the_recipe_of_the_run),
        cmocka_unit_test(test_codes_of_a_folder_stay),
        cmocka_unit_test(test_a_folder_in_use_is_refused),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_a_full_disk_leaves_nothing),
        cmocka_unit_test(test_no_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, open_runs, fixture_teardown);
}
