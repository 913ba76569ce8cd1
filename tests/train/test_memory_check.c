/*
 * The memory check. It computes a run's memory before the run allocates, and compares it with the process
 * limits. The run then takes this much memory. An error names the largest parts and the settings that help,
 * and these settings do help.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/limit.h"
#include "model/init.h"
#include "run/memory/check.h"
#include "data/data.h"
#include "train/train_fixture.h"

static const fixture *the_fixture;

/* A model with about 2 million parameters and a step of 40 MiB. */
#define LARGER                                                                                               \
    "--model.dim=256", "--model.n_heads=4", "--model.n_kv_heads=4", "--model.ffn_hidden_dim=768",            \
        "--model.max_seq_len=128", "--train.seq_len=128", "--train.batch_size=16"

/* ---- predicted and measured memory ---- */

#define SHORT LARGER, "--train.max_steps=2"

/* Returns the number of MiB after `word` in the log. */
static double mib_after(const captured_log *s, const char *word) {
    const char *at = strstr(s->text, word);
    assert_non_null(at);
    return atof(at + strlen(word));
}

static void need_is_what_is_taken(void **state) {
    static captured_log logged;
    const char *const variants[][12] = {
        {SHORT, NULL},
        {SHORT, "--train.activation_checkpointing=full", NULL},
        {SHORT, "--checkpoint.async_mode=async", NULL},
        {SHORT, "--train.mixed_precision=fp8", "--float8.schedule=bf16:1, fp8", NULL}};
    (void)state;
    if (FIXTURE_SANITIZED) skip(); /* the steps take minutes with a sanitizer */
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "need-%d", i);
        FIXTURE_OK(fixture_run(the_fixture, &(run_options){.name = name,
                                                           .precision = &fixture_precisions[BF16],
                                                           .more = variants[i],
                                                           .logged = &logged}));
        double planned = mib_after(&logged, "Memory plan: "), allocated = mib_after(&logged, ", allocated ");
        assert_true(planned > 20);
        if (fabs(allocated / planned - 1) > 0.05)
            fail_msg("variant %d: planned %.1f MiB, allocated %.1f MiB", i, planned, allocated);
    }
}

/* With a large vocabulary and full recomputation the log reports the memory that FP8 adds, and the settings
   that avoid it. */
static void memory_that_fp8_adds_is_logged(void **state) {
    static captured_log logged;
#define HEAD                                                                                                 \
    "--model.vocab_size=16384", "--train.batch_size=64", "--train.activation_checkpointing=full",            \
        "--train.max_steps=1"
    const char *const head[] = {HEAD, NULL}, *const headless[] = {HEAD, "--float8.filter_fqns=output_head",
                                                                  NULL};
    (void)state;
    for (int i = 0; i < 2; i++) {
        FIXTURE_OK(fixture_run(the_fixture, &(run_options){.name = i ? "headless" : "head",
                                                           .precision = &fixture_precisions[TENSORWISE],
                                                           .more = i ? headless : head,
                                                           .logged = &logged}));
        assert_int_equal(captured_log_count(&logged, "FP8 needs "), !i);
        if (i == 0)
            assert_true(captured_log_has(&logged, " MiB with float8.filter_fqns = \"output_head\", "));
    }
}

/* ---- limits ---- */

/* Trains in a child process with at most `allowed` more bytes of address space. Returns status and text. */
static ott_status run_limited(const char *name, int64_t allowed, const char *const *more, char text[4096]) {
    int ends[2], result = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit most = {.rlim_cur = (rlim_t)1 << 40, .rlim_max = (rlim_t)1 << 40};
        setrlimit(RLIMIT_AS, &most);
        FILE *f = fopen("/proc/self/statm", "r");
        long pages = 0;
        if (!f || fscanf(f, "%ld", &pages) != 1) _exit(99);
        fclose(f);
        most.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + allowed);
        setrlimit(RLIMIT_AS, &most);
        ott_status status = fixture_run(
            the_fixture, &(run_options){.name = name, .precision = &fixture_precisions[BF16], .more = more});
        const char *logged = status == OTT_OK ? "" : status_text();
        if (write(ends[1], logged, strlen(logged)) < 0) _exit(99);
        _exit((int)status);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], text + length, 4095 - length)) > 0;) length += (size_t)got;
    text[length] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    return (ott_status)WEXITSTATUS(result);
}

static void expect(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static void refusal_helps(void **state) {
    char text[4096];
    const char *const asked[] = {LARGER, "--checkpoint.async_mode=async", "--train.threads=1", NULL};
    const char *const helped[] = {LARGER, "--train.threads=1", "--train.batch_size=1",
                                  "--train.activation_checkpointing=full", NULL};
    (void)state;
    if (FIXTURE_SANITIZED) skip();
    int64_t allowed = (int64_t)64 << 20;
    assert_int_equal(run_limited("asked", allowed, asked, text), OTT_ERR_MEMORY);
    print_message("  %s\n", text);
    expect(text, "the run needs ");
    expect(text, "of address space that ulimit -v allows are left: step arena ");
    expect(text, "; what would help most: train.batch_size = ");
    expect(text, " saves ");
    expect(text, "with all three it needs ");
    assert_null(strchr(text, '\n'));
    assert_null(strstr(text, "too much"));
    assert_int_equal(run_limited("helped", allowed, helped, text), OTT_OK);
}

/* This model does not fit on one rank with any setting. The error suggests a smaller model of the same
   family, or more ranks. */
static void refusal_of_a_model_that_is_too_large(void **state) {
    char text[4096];
    const char *const asked[] = {"--model.dim=8192",
                                 "--model.n_layers=80",
                                 "--model.n_heads=64",
                                 "--model.n_kv_heads=8",
                                 "--model.ffn_hidden_dim=28672",
                                 "--model.vocab_size=256",
                                 "--model.max_seq_len=64",
                                 "--train.seq_len=64",
                                 "--model.reduce=4",
                                 "--train.threads=1",
                                 NULL};
    (void)state;
    if (FIXTURE_SANITIZED) skip();
    ott_status status = run_limited("large", (int64_t)1 << 30, asked, text);
    if (status != OTT_ERR_MEMORY) fail_msg("status %d: %s", (int)status, text);
    print_message("  %s\n", text);
    expect(text, "optimizer state ");
    expect(text, "too much; model.reduce = ");
    expect(text, "makes a small model of the family");
    expect(text, " ranks with as much memory each (distributed.dp_shard = ");
}

/* Before the memory check refuses a run, it allocates nothing large. */
static void nothing_is_taken_before(void **state) {
    mem *account;
    model_options shape;
    device *d;
    dataset *train, *validation;
    memory_need need;
    const char *const more[] = {"--model.dim=4096", "--model.n_layers=32", "--model.n_heads=32",
                                "--model.ffn_hidden_dim=14336", NULL};
    (void)state;
    FIXTURE_OK(mem_open(&account));
    config *cfg = fixture_config(the_fixture, account, "nothing", &fixture_precisions[BF16], more);
    config asked = *cfg;
    FIXTURE_OK(model_options_resolve(cfg, &shape));
    FIXTURE_OK(data_open(account, NULL, cfg, &shape.vocab, &train, &validation));
    FIXTURE_OK(test_device_open(account, 1, NULL, &d));
    int64_t before = mem_read(account).now;
    memory_check_decide(&(memory_check){.account = account,
                                        .device = d,
                                        .cfg = cfg,
                                        .asked = &asked,
                                        .shape = &shape,
                                        .train_data = train,
                                        .validation_data = validation},
                        &need);
    assert_true(need.by_kind[MEM_PARAM] > INT64_C(20) << 30); /* over 5 billion fp32 elements */
    assert_true(need.by_kind[MEM_OPTIMIZER] == 2 * need.by_kind[MEM_GRAD]);
    assert_true(mem_read(account).peak - before < 8 << 20);
    assert_int_equal(mem_read(account).now, before);
    device_close(d);
    dataset_close(train);
    dataset_close(validation);
    config_close(cfg);
    mem_close(account);
}

/* On a device with separate memory, the checkpoint copy and offloaded tensors take no device memory. */
static void copies_and_offloaded_state_use_host_memory(void **state) {
    static const char *const more[] = {"--checkpoint.async_mode=async", NULL};
    memory_need here, apart, offloaded;
    rig r;
    (void)state;
    rig_open(&r, the_fixture, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    const config asked = *r.cfg;
    model_options shape = r.t->m->options;
    device other = *r.device;
    other.threads = 0;
    memory_check a = {.account = r.account,
                      .device = r.device,
                      .cfg = r.cfg,
                      .asked = &asked,
                      .shape = &shape,
                      .train_data = r.train_data,
                      .validation_data = r.validation_data};
    FIXTURE_OK(memory_check_measure(&a, &here));
    a.device = &other;
    FIXTURE_OK(memory_check_measure(&a, &apart));
    assert_int_equal(here.host, 0);
    assert_int_equal(apart.host_by_kind[MEM_STAGING], 12 * model_parameter_count(r.t->m));
    assert_int_equal(apart.total + apart.host, here.total);
    shape.offload = OFFLOAD_STATE;
    FIXTURE_OK(memory_check_measure(&a, &offloaded));
    const model *m = r.t->m;
    assert_int_equal(offloaded.host_by_kind[MEM_OPTIMIZER], m->slot_bytes[0] + m->slot_bytes[1]);
    /* Few bytes of parameters stay on the device, because only vectors are not offloaded. */
    assert_in_range(m->block_bytes - offloaded.host_by_kind[MEM_PARAM], 1, m->block_bytes / 10);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        assert_int_equal(offloaded.by_kind[kind] + offloaded.host_by_kind[kind],
                         apart.by_kind[kind] + apart.host_by_kind[kind]);
    assert_int_equal(offloaded.total + offloaded.host, here.total);
    rig_close(&r);
}

static int64_t bytes_of_other; /* bytes of the small GPU's memory */

static void read_little_memory(const device *d, device_memory *out) {
    (void)d;
    *out =
        (device_memory){.total = bytes_of_other,
                        .limit = {.left = bytes_of_other, .total = bytes_of_other, .owner = "a small GPU"}};
}

static mem_stats take_nothing(const device *d) {
    (void)d;
    return (mem_stats){0};
}

/* Most of this model's memory is optimizer state, so the error suggests offloading. */
static void offloading_is_offered(void **state) {
    static const char *const more[] = {"--model.dim=256",      "--model.n_heads=4",
                                       "--model.n_kv_heads=4", "--model.ffn_hidden_dim=768",
                                       "--train.batch_size=1", NULL};
    memory_need need;
    rig r;
    (void)state;
    rig_open(&r, the_fixture, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    const config asked = *r.cfg;
    const device_table table = {.taken = take_nothing, .read_memory = read_little_memory};
    device other = *r.device;
    other.table = &table;
    other.threads = 0;
    memory_check a = {.account = r.account,
                      .device = &other,
                      .cfg = r.cfg,
                      .asked = &asked,
                      .shape = &r.t->m->options,
                      .train_data = r.train_data,
                      .validation_data = r.validation_data};
    FIXTURE_OK(memory_check_measure(&a, &need));
    bytes_of_other = need.total - need.by_kind[MEM_OPTIMIZER] / 2;
    assert_int_equal(memory_check_decide(&a, &need), OTT_ERR_MEMORY);
    expect(status_text(), "; what would help most: train.offload = \"moments\" saves ");
    bytes_of_other = need.total - need.by_kind[MEM_OPTIMIZER] - need.by_kind[MEM_PARAM] / 2;
    assert_int_equal(memory_check_decide(&a, &need), OTT_ERR_MEMORY);
    expect(status_text(), "; what would help most: train.offload = \"state\" saves ");
    bytes_of_other = need.total;
    FIXTURE_OK(memory_check_decide(&a, &need));
    rig_close(&r);
}

/* ---- initialization ---- */

static void initial_weights_do_not_depend_on_threads(void **state) {
    snapshot start[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        char threads[32];
        rig r;
        const char *more[] = {LARGER, "--model.fused_qkv=true", "--model.init_style=titan", threads, NULL};
        snprintf(threads, sizeof threads, "--train.threads=%d", i + 1);
        rig_open(&r, the_fixture, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
        start[i] = snapshot_take(&r);
        rig_close(&r);
    }
    assert_true(snapshot_equal(&start[0], &start[1]) && snapshot_equal(&start[0], &start[2]));
    for (int i = 0; i < 3; i++) snapshot_free(&start[i]);
}

static bool stop_third(void *user) {
    return ++*(int *)user == 3;
}

static void initialization_can_be_ended(void **state) {
    rig r;
    int asked = 0;
    const cancellation w = {.stop = stop_third, .user = &asked};
    const char *more[] = {LARGER, NULL};
    (void)state;
    rig_open(&r, the_fixture, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    r.t->m->cancellation = &w;
    assert_int_equal(model_initialize(r.t->m, 1, 2), OTT_ERR_STOPPED);
    assert_int_equal(asked, 3);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(need_is_what_is_taken),
        cmocka_unit_test(memory_that_fp8_adds_is_logged),
        cmocka_unit_test(refusal_helps),
        cmocka_unit_test(refusal_of_a_model_that_is_too_large),
        cmocka_unit_test(nothing_is_taken_before),
        cmocka_unit_test(copies_and_offloaded_state_use_host_memory),
        cmocka_unit_test(offloading_is_offered),
        cmocka_unit_test(initial_weights_do_not_depend_on_threads),
        cmocka_unit_test(initialization_can_be_ended),
    };
    void *state;
    if (fixture_setup(&state)) return 1;
    the_fixture = state;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return fixture_teardown(&state) ? 1 : failed;
}
