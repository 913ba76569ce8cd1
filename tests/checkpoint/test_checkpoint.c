/* Tests saving, loading, finding and removing checkpoints. test_damage.c tests damaged checkpoints. */
#define _GNU_SOURCE
#include "base/file/file.h"
#include "formats/safetensors/safetensors.h"
#include "checkpoint/run_folder.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void assert_same_state(const run_state *a, const run_state *b) {
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->updates, b->updates);
    assert_true(a->samples == b->samples);
    assert_true(a->tokens == b->tokens);
    assert_int_equal(a->nan_steps, b->nan_steps);
    assert_memory_equal(&a->loss_scale, &b->loss_scale, sizeof(float));
    assert_memory_equal(&a->good_steps, &b->good_steps, sizeof(float));
}

/* Several ranks load a checkpoint. Each loads its own rows. */
static void check_shards(run_folder *f, const model_options *o, const model *full, const char *path) {
    for (int size = 2; size <= 3; size++)
        for (int rank = 0; rank < size; rank++) {
            group ranks = {.rank = rank, .size = size};
            model_options own = *o;
            run_state run;
            bool fell_back;
            own.shard_ranks = &ranks;
            model *m = small_model(f, &own, MODEL_TRAINING, 0);
            assert_int_equal(checkpoint_load(m, NULL, NULL, path, &run, &fell_back), OTT_OK);
            assert_shard_of(full, m);
            model_close(m);
        }
}

static void check_round_trip(run_folder *f, const model_options *o) {
    model *saved = small_model(f, o, MODEL_TRAINING, 7), *loaded = small_model(f, o, MODEL_TRAINING, 0),
          *inference = small_model(f, o, MODEL_INFERENCE, 0);
    bool fell_back;
    run_state state = state_at(20), again = {0};
    char *path;
    assert_int_equal(checkpoint_save(saved, f->cfg, "bf16", &state, NULL, f->root, 0, &path), OTT_OK);
    assert_string_equal(path, at(f, "step-20"));
    assert_string_equal(names_in_root(f), "step-20 ");
    assert_int_equal(checkpoint_load(loaded, NULL, NULL, path, &again, &fell_back), OTT_OK);
    assert_same_model(saved, loaded);
    assert_same_state(&state, &again);
    assert_int_equal(checkpoint_load(inference, NULL, NULL, path, &again, &fell_back), OTT_OK);
    assert_same_model(saved, inference);
    check_shards(f, o, saved, path);
    mem_free(f->account, path);
    model_close(saved);
    model_close(loaded);
    model_close(inference);
}

static void test_round_trip(void **state) {
    model_options o = small_options();
    check_round_trip(*state, &o);
}

static void test_round_trip_tied_llama3(void **state) {
    model_options o = small_options();
    o.tied = true;
    o.norm_epsilon = 1e-6f; /* a number without a short decimal representation */
    o.rope = (rope_options){.kind = ROPE_LLAMA3,
                            .theta = 5e5,
                            .factor = 32,
                            .low_frequency_factor = 1,
                            .high_frequency_factor = 4,
                            .original_max_position = 8192};
    check_round_trip(*state, &o);
}

static void test_round_trip_of_every_rope(void **state) {
    model_options o = small_options();
    for (kind_rope_scaling kind = ROPE_LINEAR; kind <= ROPE_LONGROPE; kind++) {
        o.rope = (rope_options){.kind = kind,
                                .theta = 1e4,
                                .factor = 4,
                                .beta_fast = 32,
                                .beta_slow = 1,
                                .original_max_position = 32,
                                .factors = (int)o.head_dim / 2};
        for (int i = 0; i < o.rope.factors; i++) o.rope.short_factor[i] = o.rope.long_factor[i] = 2;
        check_round_trip(*state, &o);
    }
}

/* Other programs can read a checkpoint: it has four files, with Hugging Face's names and shapes. */
static void test_files(void **state) {
    run_folder *f = *state;
    file_list list;
    safetensors *weights, *moments;
    const safetensors_entry *e;
    save_step(f, 3, 1, 0);
    assert_int_equal(file_list_folder(f->account, at(f, "step-3"), &list), OTT_OK);
    assert_int_equal(list.count, 5);
    const char *const names[] = {"config.toml", "float8.safetensors", "model.safetensors",
                                 "optimizer.safetensors", "state.json"};
    for (int i = 0; i < 5; i++) assert_string_equal(list.names[i], names[i]);
    file_list_free(&list);

    assert_int_equal(safetensors_open(f->account, at(f, "step-3/model.safetensors"), &weights), OTT_OK);
    assert_int_equal(safetensors_open(f->account, at(f, "step-3/optimizer.safetensors"), &moments), OTT_OK);
    assert_int_equal(safetensors_count(moments), 2 * safetensors_count(weights));
    const int64_t matrix[] = {8, 16}, vector[] = {16};
    assert_int_equal(
        safetensors_expect(weights, "model.layers.1.self_attn.k_proj.weight", OTT_F32, 2, matrix, &e),
        OTT_OK);
    assert_int_equal(safetensors_expect(weights, "model.norm.weight", OTT_F32, 1, vector, &e), OTT_OK);
    assert_int_equal(safetensors_expect(moments, "model.norm.weight.exp_avg_sq", OTT_F32, 1, vector, &e),
                     OTT_OK);
    safetensors_close(weights);
    safetensors_close(moments);

    const char *arguments[] = {at(f, "step-3/config.toml")};
    config *cfg;
    assert_int_equal(config_parse(f->account, NULL, 1, arguments, &cfg), OTT_OK);
    config_close(cfg);
}

static void test_saving_a_step_again_replaces_it(void **state) {
    run_folder *f = *state;
    model_options o = small_options();
    o.vocab = 64;
    save_step(f, 20, 1, 0);
    save_step(f, 20, 2, 0);
    assert_string_equal(names_in_root(f), "step-20 ");
    model *second = small_model(f, &o, MODEL_TRAINING, 2), *loaded = small_model(f, &o, MODEL_TRAINING, 0);
    bool fell_back;
    run_state run;
    assert_int_equal(checkpoint_load(loaded, NULL, NULL, at(f, "step-20"), &run, &fell_back), OTT_OK);
    assert_same_model(loaded, second);
    model_close(second);
    model_close(loaded);
}

/* ---- finding ---- */

static void assert_finds(run_folder *f, const char *load_path, const char *folder, const char *expected) {
    char *path;
    if (checkpoint_find(f->account, load_path, folder, &path) != OTT_OK) fail_msg("%s", status_text());
    assert_string_equal(path, expected);
    mem_free(f->account, path);
}

static void assert_any(run_folder *f, const char *folder, bool expected) {
    bool any;
    assert_int_equal(checkpoint_has_any(f->account, folder, &any), OTT_OK);
    assert_int_equal(any, expected);
}

static void test_find(void **state) {
    run_folder *f = *state;
    assert_any(f, f->root, false);
    assert_any(f, at(f, "absent"), false);
    save_step(f, 9, 1, 0);
    save_step(f, 100, 1, 0);
    save_step(f, 20, 1, 0);
    assert_any(f, f->root, true);
    assert_finds(f, "latest", f->root, at(f, "step-100"));
    assert_finds(f, f->root, "elsewhere", at(f, "step-100"));
    assert_finds(f, at(f, "step-9"), f->root, at(f, "step-9"));
    assert_finds(f, at(f, "step-9/"), f->root, at(f, "step-9/"));
}

static void test_find_in_a_run(void **state) {
    run_folder *f = *state;
    save_step(f, 20, 1, 0);
    assert_int_equal(file_make_folder(at(f, "run/checkpoints")), OTT_OK);
    assert_int_equal(file_rename(at(f, "step-20"), at(f, "run/checkpoints/step-20")), OTT_OK);
    assert_finds(f, at(f, "run"), "elsewhere", at(f, "run/checkpoints/step-20"));
    /* Users may rename a checkpoint's folder. */
    assert_int_equal(file_rename(at(f, "run/checkpoints/step-20"), at(f, "best")), OTT_OK);
    assert_finds(f, at(f, "best"), "elsewhere", at(f, "best"));
}

static void test_find_nothing(void **state) {
    run_folder *f = *state;
    char *path;
    assert_error(checkpoint_find(f->account, "latest", f->root, &path), OTT_ERR_NOT_FOUND, f->root,
                 "--checkpoint.load_path=auto", NULL);
    assert_null(path);
    assert_error(checkpoint_find(f->account, at(f, "absent"), f->root, &path), OTT_ERR_NOT_FOUND, "absent",
                 "no such folder", NULL);
    assert_error(checkpoint_find(f->account, f->root, f->root, &path), OTT_ERR_NOT_FOUND,
                 "holds no checkpoint", NULL);
    save_step(f, 7, 1, 0);
    assert_error(checkpoint_find(f->account, at(f, "step-8"), f->root, &path), OTT_ERR_NOT_FOUND, "step-8",
                 "--checkpoint.load_path=", "/step-7", NULL);
}

/* ---- purging and leftovers ---- */

static void test_purge_by_number(void **state) {
    run_folder *f = *state;
    save_step(f, 9, 1, 2);
    save_step(f, 10, 1, 2);
    save_step(f, 100, 1, 2);
    assert_string_equal(names_in_root(f), "step-10 step-100 ");
    /* a run that was resumed at an early step saves step 5, which must not be removed as the oldest */
    save_step(f, 5, 1, 2);
    assert_string_equal(names_in_root(f), "step-100 step-5 ");
    save_step(f, 6, 1, 1);
    assert_string_equal(names_in_root(f), "step-6 ");
    save_step(f, 7, 1, 0);
    assert_string_equal(names_in_root(f), "step-6 step-7 ");
}

static void test_purge_touches_checkpoints_only(void **state) {
    run_folder *f = *state;
    const char *const others[] = {"step-007", "step-1.bak", "step-", "step-x", "steps", "step--3", "epoch-1"};
    for (int i = 0; i < 7; i++) assert_int_equal(file_make_folder(at(f, "%s", others[i])), OTT_OK);
    write_bytes(at(f, "step-3"), "a file", 6);
    save_step(f, 8, 1, 1);
    save_step(f, 9, 1, 1);
    assert_string_equal(names_in_root(f),
                        "epoch-1 step- step--3 step-007 step-1.bak step-3 step-9 step-x steps ");
}

static long dead_process(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

static void test_leftovers(void **state) {
    run_folder *f = *state;
    long dead = dead_process();
    assert_int_equal(file_make_folder(at(f, "step-4.ottava-tmp-%ld", dead)), OTT_OK);
    assert_int_equal(file_make_folder(at(f, "step-4.ottava-tmp-%ld-0/x", dead)), OTT_OK);
    assert_int_equal(file_make_folder(at(f, "step-5.ottava-tmp-%ld/x", (long)getpid())), OTT_OK);
    assert_int_equal(file_make_folder(at(f, "step-6.ottava-tmp-%ld", (long)getppid())), OTT_OK);
    assert_int_equal(file_make_folder(at(f, "step-6.ottava-tmp-mine")), OTT_OK);
    write_bytes(at(f, "step-4.ottava-tmp-%ld/model.safetensors", dead), "half", 4);
    assert_any(f, f->root, false);
    save_step(f, 5, 1, 0);
    char expected[128];
    snprintf(expected, sizeof expected, "step-5 step-6.ottava-tmp-%ld step-6.ottava-tmp-mine ",
             (long)getppid());
    assert_string_equal(names_in_root(f), expected);
}

/* ---- failed writes ---- */

static ott_status try_save(run_folder *f, int64_t step, const char *folder) {
    model_options o = small_options();
    model *m = small_model(f, &o, MODEL_TRAINING, 1);
    run_state run = state_at(step);
    char *path;
    ott_status status = checkpoint_save(m, f->cfg, "bf16", &run, NULL, folder, 1, &path);
    assert_true(status == OTT_OK || !path);
    mem_free(f->account, path);
    model_close(m);
    return status;
}

static void test_file_in_the_way(void **state) {
    run_folder *f = *state;
    write_bytes(at(f, "file"), "x", 1);
    assert_error(try_save(f, 8, at(f, "file")), OTT_ERR_ARGUMENT, "step 8", "a file has its name",
                 "checkpoint.dir", NULL);
    assert_error(try_save(f, 8, at(f, "file/below")), OTT_ERR_ARGUMENT, "step 8", NULL);
    write_bytes(at(f, "step-8"), "x", 1);
    assert_error(try_save(f, 8, f->root), OTT_ERR_ARGUMENT, "step-8: a file has the folder's name", NULL);
    assert_string_equal(names_in_root(f), "file step-8 ");
}

/* Limits file sizes to simulate a full disk: a write fails after some of its bytes. */
static void test_full_disk(void **state) {
    run_folder *f = *state;
    struct rlimit before, limit;
    save_step(f, 4, 1, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    limit = (struct rlimit){.rlim_cur = 100000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ott_status status = try_save(f, 8, f->root);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, old);
    assert_error(status, OTT_ERR_IO, "cannot save the checkpoint of step 8", "model.safetensors",
                 "checkpoint.dir", NULL);
    /* no incomplete checkpoint is left, and the old one was not purged */
    assert_string_equal(names_in_root(f), "step-4 ");
}

/* Saves a checkpoint many times, each time with another allocation failing. Each failure gives one error, and
   no temporary files or memory are left. */
static void test_memory_failures(void **state) {
    run_folder *f = *state;
    model_options o = small_options();
    o.vocab = 64;
    model *m = small_model(f, &o, MODEL_TRAINING, 1);
    run_state run = state_at(2);
    ott_status status = OTT_ERR_MEMORY;
    bool fell_back;
    int n = 0;
    int64_t held = mem_read(f->account).now;
    while (status != OTT_OK && n < 1000) {
        mem_fail_after(f->account, ++n);
        status = checkpoint_save(m, f->cfg, "bf16", &run, NULL, f->root, 0, NULL);
        mem_fail_after(f->account, 0);
        assert_true(status == OTT_OK || status == OTT_ERR_MEMORY);
        assert_int_equal(mem_read(f->account).now, held);
        assert_string_equal(names_in_root(f), status == OTT_OK ? "step-2 " : "");
    }
    assert_true(n > 10 && n < 1000);
    for (n = 0, status = OTT_ERR_MEMORY; status != OTT_OK && n < 1000;) {
        mem_fail_after(f->account, ++n);
        status = checkpoint_load(m, NULL, NULL, at(f, "step-2"), &run, &fell_back);
        mem_fail_after(f->account, 0);
        if (status != OTT_OK) assert_error(status, OTT_ERR_MEMORY, "out of memory", NULL);
        assert_int_equal(mem_read(f->account).now, held);
    }
    assert_true(n > 10 && n < 1000);
    model_close(m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, run_folder_setup, run_folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_round_trip_tied_llama3),
        TEST(test_round_trip_of_every_rope),
        TEST(test_files),
        TEST(test_saving_a_step_again_replaces_it),
        TEST(test_find),
        TEST(test_find_in_a_run),
        TEST(test_find_nothing),
        TEST(test_purge_by_number),
        TEST(test_purge_touches_checkpoints_only),
        TEST(test_leftovers),
        TEST(test_file_in_the_way),
        TEST(test_full_disk),
        TEST(test_memory_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
