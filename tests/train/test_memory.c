/*
 * Memory. Steps after the first allocate nothing. The memory plan predicts a run's peak, which the memory
 * account and the system measure. Activation checkpointing lowers the peak. If any allocation fails, the run
 * ends with an error and frees all memory.
 */
#define _GNU_SOURCE /* declares popen */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "generate/generate.h"
#include "train/train_fixture.h"

/* ---- no allocation inside a step ---- */

static void check_steady(const fixture *f, int p, const char *const *more) {
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[p], .more = more});
    rig_step(&r);
    rig_validate(&r);
    mem_stats first = mem_read(r.account);
    for (int i = 0; i < 4; i++) {
        rig_step(&r);
        rig_validate(&r);
    }
    mem_stats last = mem_read(r.account);
    assert_int_equal(last.allocations, first.allocations);
    assert_int_equal(last.now, first.now);
    rig_close(&r);
}

static void steps_allocate_nothing(void **state) {
    const char *const variants[][3] = {
        {NULL},
        {"--train.activation_checkpointing=full"},
        {"--train.activation_checkpointing=selective", "--train.grad_accum_steps=2"},
        {"--train.activation_checkpointing=op", "--train.threads=2"}};
    for (int p = 0; p < PRECISIONS; p++)
        for (int v = 0; v < 4; v++) check_steady(*state, p, variants[v]);
}

/* Skipped steps and the search for non-finite values allocate nothing. */
static void bad_steps_allocate_nothing(void **state) {
    rig r;
    char where[160];
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[TENSORWISE]});
    rig_step(&r);
    mem_stats first = mem_read(r.account);
    rig_poke(&r, "model.layers.0.mlp.gate_proj.weight", 0, NAN);
    assert_true(rig_step(&r).skipped);
    FIXTURE_OK(trainer_find_nonfinite(r.t, where));
    assert_int_equal(mem_read(r.account).allocations, first.allocations);
    rig_close(&r);
}

/* With force_recompute_fp8_weight_in_bwd, backward makes the FP8 codes that only backward reads. Results have
   the same bits, and less memory is used. */
static void codes_for_backward_need_not_be_kept(void **state) {
    static const int precisions[] = {TENSORWISE, ROWWISE, DELAYED, BLOCK, MXFP8};
    static const char *const ways[] = {"--float8.force_recompute_fp8_weight_in_bwd=false",
                                       "--float8.force_recompute_fp8_weight_in_bwd=true"};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        snapshot end[2];
        int64_t planned[2], weights[2], codes = 0;
        for (int again = 0; again < 2; again++) {
            rig r;
            const char *const more[] = {ways[again], "--train.grad_accum_steps=2", NULL};
            rig_open(&r, *state,
                     &(rig_options){.precision = &fixture_precisions[precisions[i]], .more = more});
            for (int step = 0; step < 3; step++) rig_step(&r);
            end[again] = snapshot_take(&r);
            planned[again] = r.t->planned_bytes;
            weights[again] = mem_read(r.account).now_of[MEM_WEIGHT];
            codes = model_matmul_weights(r.t->m);
            rig_close(&r);
        }
        assert_true(snapshot_equal(&end[0], &end[1]));
        assert_true(planned[1] <= planned[0]);
        if (precisions[i] == ROWWISE || precisions[i] == MXFP8) /* forward and backward have separate codes */
            assert_int_equal(weights[0] - weights[1], codes);
        snapshot_free(&end[0]);
        snapshot_free(&end[1]);
    }
}

/* If masters, gradients and moments are bf16, a matrix takes 8 bytes per element: its bf16 master is also the
   weight that GEMMs read. */
static void state_in_bf16_takes_half(void **state) {
    static const mem_kind kinds[] = {MEM_PARAM, MEM_GRAD, MEM_OPTIMIZER};
    static const char *const ways[][4] = {{NULL}, {STATE_IN_BF16, NULL}};
    int64_t bytes[2] = {0}, matrices = 0, vectors = 0;
    for (int narrow = 0; narrow < 2; narrow++) {
        rig r;
        rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[BF16], .more = ways[narrow]});
        for (int i = 0; i < 3; i++) bytes[narrow] += mem_read(r.account).now_of[kinds[i]];
        assert_true((mem_read(r.account).now_of[MEM_WEIGHT] == 0) == (narrow == 1));
        for (int i = 0; i < r.t->m->parameter_count && narrow; i++) {
            const parameter *p = &r.t->m->parameters[i];
            *(p->rank > 1 ? &matrices : &vectors) += parameter_count(p);
        }
        rig_close(&r);
    }
    assert_int_equal(bytes[0], 16 * (matrices + vectors));
    assert_int_equal(bytes[1], 8 * matrices + 16 * vectors);
}

/* Each optimizer slot takes half as many bytes in bf16 as in fp32, with any number of slots. */
static void slots_in_bf16_take_half(void **state) {
    static const struct {
        const char *name;
        int slots;
    } optimizers[] = {{"--optimizer.name=lion", 1},
                      {"--optimizer.name=sgd", 1},
                      {"--optimizer.name=schedule_free_adamw", 3}};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        const char *const more[] = {STATE_IN_BF16, optimizers[i].name, "--scheduler.name=none", NULL};
        int64_t expected = 0;
        rig r;
        rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
        for (int k = 0; k < r.t->m->parameter_count; k++) {
            const parameter *p = &r.t->m->parameters[k];
            expected += (p->rank > 1 ? 2 : 4) * optimizers[i].slots * parameter_count(p);
        }
        assert_int_equal(mem_read(r.account).now_of[MEM_OPTIMIZER], expected);
        rig_close(&r);
    }
}

/* With masters and gradients in bf16 and moments in FP8, a matrix takes 6 bytes per element. In addition,
   each of the two moments has two fp32 values for each group of elements in a row. */
static void moments_in_fp8_take_less(void **state) {
    static const char *const more[] = {MOMENTS_IN_FP8, NULL};
    static const mem_kind kinds[] = {MEM_PARAM, MEM_GRAD, MEM_OPTIMIZER};
    int64_t bytes = 0, expected = 0;
    rig r;
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    for (int i = 0; i < 3; i++) bytes += mem_read(r.account).now_of[kinds[i]];
    for (int i = 0; i < r.t->m->parameter_count; i++) {
        const parameter *p = &r.t->m->parameters[i];
        int64_t groups = (p->columns + 127) / 128;
        expected += p->rank > 1 ? 6 * parameter_count(p) + 16 * p->rows * groups : 16 * parameter_count(p);
    }
    assert_int_equal(bytes, expected);
    rig_close(&r);
}

/* ---- the plan and the account ---- */

/* Dimensions of a model that needs about 60 MiB. */
#define LARGER                                                                                               \
    "--model.dim=256", "--model.n_heads=4", "--model.n_kv_heads=4", "--model.ffn_hidden_dim=768",            \
        "--model.max_seq_len=128", "--train.seq_len=128", "--train.batch_size=4"

typedef struct measured {
    /* bytes: of the planned total, of the step's arena, and of the memory account's peak */
    int64_t planned, step, peak;
} measured;

static measured measure(const fixture *f, int p, const char *const *more) {
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[p], .more = more});
    rig_step(&r);
    rig_validate(&r);
    rig_step(&r);
    measured m = {r.t->planned_bytes, plan_bytes(r.t->train_plan), mem_read(r.account).peak};
    rig_close(&r);
    return m;
}

static void plan_is_the_peak(void **state) {
    const char *const sizes[][12] = {
        {NULL}, {LARGER, NULL}, {LARGER, "--train.activation_checkpointing=full", NULL}};
    int count = FIXTURE_SANITIZED ? 1 : 3; /* the larger model's steps take minutes */
    for (int p = 0; p < PRECISIONS; p++)
        for (int i = 0; i < count; i++) {
            measured m = measure(*state, p, sizes[i]);
            double ratio = (double)m.peak / (double)m.planned;
            if (i)
                print_message("  %-20s planned %.2f MiB, peak %.2f MiB\n", fixture_precisions[p].name,
                              (double)m.planned / 1048576, (double)m.peak / 1048576);
            assert_true(ratio > 0.95 && ratio < 1.05);
        }
}

static measured plan_only(const fixture *f, int p, const char *const *more) {
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[p], .more = more});
    measured m = {.planned = r.t->planned_bytes, .step = plan_bytes(r.t->train_plan)};
    rig_close(&r);
    return m;
}

static void checkpointing_shrinks_the_plan(void **state) {
    const char *const modes[][12] = {{LARGER, "--train.activation_checkpointing=full", NULL},
                                     {LARGER, "--train.activation_checkpointing=selective", NULL},
                                     {LARGER, "--train.activation_checkpointing=none", NULL}};
    for (int p = 0; p < PRECISIONS; p++) {
        measured m[3];
        for (int i = 0; i < 3; i++) m[i] = plan_only(*state, p, modes[i]);
        print_message("  %-20s step: full %.2f, selective %.2f, none %.2f MiB\n", fixture_precisions[p].name,
                      (double)m[0].step / 1048576, (double)m[1].step / 1048576, (double)m[2].step / 1048576);
        assert_true(m[0].step < m[1].step && m[1].step < m[2].step);
        assert_true(m[0].planned < m[1].planned && m[1].planned < m[2].planned);
    }
}

/* ---- the plan and the system ---- */

/* Returns the bytes in a line of /proc/self/status; -1 if there is no such line. */
static int64_t status_bytes(const char *key) {
    char line[160];
    long long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), ": %lld", &kib) == 1) break;
    if (file) fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

typedef struct resident {
    long long planned, before, peak;
} resident;

static const char *const resident_sizes[] = {LARGER, "--train.batch_size=16", NULL};
static const char *program; /* path of this program */

/* The main function of a process that only trains and measures its memory. Arguments: FOLDER PRECISION. */
static int be_measured(const char *folder, int p) {
    fixture f;
    rig r;
    resident seen = {.before = status_bytes("VmRSS")};
    snprintf(f.folder, sizeof f.folder, "%s", folder);
    snprintf(f.text, sizeof f.text, "%s/text.txt", f.folder);
    rig_open(&r, &f, &(rig_options){.precision = &fixture_precisions[p], .more = resident_sizes});
    for (int i = 0; i < 2; i++) rig_step(&r);
    rig_validate(&r);
    seen.planned = r.t->planned_bytes;
    seen.peak = status_bytes("VmHWM");
    rig_close(&r);
    return printf("%lld %lld %lld\n", seen.planned, seen.before, seen.peak) > 0 ? 0 : 1;
}

static resident measure_resident(const fixture *f, int p) {
    resident seen;
    char command[400];
    snprintf(command, sizeof command, "'%s' '%s' %d", program, f->folder, p);
    FILE *child = popen(command, "r");
    assert_non_null(child);
    assert_int_equal(fscanf(child, "%lld %lld %lld", &seen.planned, &seen.before, &seen.peak), 3);
    assert_int_equal(pclose(child), 0);
    return seen;
}

static void plan_is_what_is_resident(void **state) {
    if (FIXTURE_SANITIZED || status_bytes("VmHWM") < 0) skip(); /* a sanitizer allocates additional memory */
    const int kinds[] = {BF16, TENSORWISE, ROWWISE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        resident m = measure_resident(*state, kinds[i]);
        double grown = (double)(m.peak - m.before);
        print_message("  %-12s planned %.1f MiB, resident memory grew by %.1f MiB from %.1f MiB\n",
                      fixture_precisions[kinds[i]].name, (double)m.planned / 1048576, grown / 1048576,
                      (double)m.before / 1048576);
        assert_true(m.planned > 40 << 20);
        assert_true(fabs(grown / (double)m.planned - 1) < 0.05);
    }
}

/* ---- out of memory ---- */

typedef ott_status (*attempt)(const fixture *f, mem *account);

/* Lets allocation n of an attempt fail. The attempt must free all memory, and may fail only with the
   out-of-memory error. *made = number of allocations. */
static ott_status fail_one(const fixture *f, attempt try, int64_t n, int64_t *made) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    mem_fail_after(account, n);
    ott_status status = try(f, account);
    mem_stats s = mem_read(account);
    if (s.now != 0) fail_msg("allocation %lld failed: %lld bytes are leaked", (long long)n, (long long)s.now);
    if (status != OTT_OK &&
        (status != OTT_ERR_MEMORY || !strstr(status_text(), "out of memory") || strchr(status_text(), '\n')))
        fail_msg("allocation %lld failed: %s: %s", (long long)n, status_name(status), status_text());
    mem_close(account);
    *made = s.allocations;
    return status;
}

/* With a sanitizer a run takes seconds, so only every ninth allocation fails. */
enum { EVERY = FIXTURE_SANITIZED ? 9 : 1 };

/* Repeats an attempt; in each repetition a later allocation fails. At most `harmless` of these attempts may
   succeed, for example if the text of a message was not allocated. */
static void fail_everywhere(const fixture *f, attempt try, const char *what, int64_t harmless) {
    int64_t survived = 0, made;
    for (int64_t n = 1;; n += EVERY) {
        ott_status status = fail_one(f, try, n, &made);
        if (status == OTT_OK && made < n) break;
        survived += status == OTT_OK;
    }
    print_message("  %s: %lld allocations; the run succeeds without %lld\n", what, (long long)made,
                  (long long)survived);
    assert_true(made > 50);
    assert_in_range(survived, 0, harmless);
}

static ott_status open_trainer(const fixture *f, mem *account) {
    rig r;
    return rig_try(&r, account, f, &(rig_options){.precision = &fixture_precisions[ROWWISE_WITH_GW_HP]});
}

static void trainer_open_survives(void **state) {
    fail_everywhere(*state, open_trainer, "trainer", 0);
}

static ott_status run_in(const fixture *f, mem *account, const char *name, const char *const *more) {
    mem *apart;
    FIXTURE_OK(mem_open(&apart));
    config *cfg = fixture_config(f, apart, name, &fixture_precisions[TENSORWISE], more);
    ott_status status = run_loop(account, NULL, cfg, &(train_hooks){0});
    config_close(cfg);
    mem_close(apart);
    return status;
}

static ott_status run_new(const fixture *f, mem *account) {
    char folder[120];
    snprintf(folder, sizeof folder, "%s/out", f->folder);
    FIXTURE_OK(file_remove_tree(folder));
    const char *more[] = {"--train.max_steps=1", "--checkpoint.interval=1", NULL};
    return run_in(f, account, "out", more);
}

static void run_survives(void **state) {
    fail_everywhere(*state, run_new, "run", 0);
}

/* Resumes a run. The checkpoint must stay complete, so that the run can resume after each failure. */
static ott_status run_on(const fixture *f, mem *account) {
    const char *more[] = {"--train.max_steps=1", "--checkpoint.load_path=latest", NULL};
    return run_in(f, account, "out", more);
}

static void resume_survives(void **state) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(run_new(*state, account));
    mem_close(account);
    fail_everywhere(*state, run_on, "resume", 0);
}

static void ignore(void *user, const char *text) {
    (void)user, (void)text;
}

static ott_status generate(const fixture *f, mem *account) {
    char folder[120];
    const ott_generate_options o = {
        .prompt = "The", .max_tokens = 3, .temperature = 1, .top_p = 0.9, .threads = 1};
    snprintf(folder, sizeof folder, "%s/out", f->folder);
    return generate_run(account, NULL, folder, NULL, &o, ignore, NULL);
}

static void generation_survives(void **state) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(run_new(*state, account));
    mem_close(account);
    fail_everywhere(*state, generate, "generation", 3);
}

int main(int argc, char **argv) {
    if (argc == 3) return be_measured(argv[1], atoi(argv[2]));
    program = argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_is_what_is_resident),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(bad_steps_allocate_nothing),
        cmocka_unit_test(codes_for_backward_need_not_be_kept),
        cmocka_unit_test(state_in_bf16_takes_half),
        cmocka_unit_test(slots_in_bf16_take_half),
        cmocka_unit_test(moments_in_fp8_take_less),
        cmocka_unit_test(plan_is_the_peak),
        cmocka_unit_test(checkpointing_shrinks_the_plan),
        cmocka_unit_test(trainer_open_survives),
        cmocka_unit_test(run_survives),
        cmocka_unit_test(resume_survives),
        cmocka_unit_test(generation_survives),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
