/*
 * Resuming a checkpoint on the other device, evaluation, generation with a KV cache, and export "as trained"
 * must give the same bytes on the emulated GPU as on the CPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/collected.h"
#include "eval/eval.h"
#include "generate/generate.h"
#include "export/export.h"
#include "train/train_fixture.h"

enum { STEPS = 4, BREAK = 2 };

static void compute_on(const char *where) {
    setenv(TEST_DEVICE_VARIABLE, where, 1);
}

static const char *path_of(const fixture *f, const char *name) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return path;
}

/* ---- resume ---- */

/* Trains to the end, or stops after step `BREAK`. On the GPU, masters and moments are in host memory. */
static void run_part(const fixture *f, int kind, const char *name, const char *where, bool stops,
                     bool continues) {
    const char *more[] = {"--train.max_steps=4", "--checkpoint.interval=4",
                          *where ? "--train.offload=state" : "--train.offload=none",
                          continues ? "--checkpoint.load_path=latest" : NULL, NULL};
    compute_on(where);
    FIXTURE_OK(fixture_run(f, &(run_options){.name = name,
                                             .precision = &fixture_precisions[kind],
                                             .more = more,
                                             .stop_after = stops ? BREAK : 0}));
}

static void run_in_two_places(const fixture *f, int kind, const char *name, const char *first,
                              const char *second) {
    run_part(f, kind, name, first, true, false);
    run_part(f, kind, name, second, false, true);
}

static void a_run_resumes_on_another_device(void **state) {
    static const int kinds[] = {FP16, TENSORWISE, DELAYED, BLOCK};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char straight[40], there[40], back[40];
        const char *name = fixture_precisions[kinds[i]].name;
        snprintf(straight, sizeof straight, "%s-straight", name);
        snprintf(there, sizeof there, "%s-there", name);
        snprintf(back, sizeof back, "%s-back", name);
        run_part(*state, kinds[i], straight, "", false, false);
        run_in_two_places(*state, kinds[i], there, "", "cuda");
        run_in_two_places(*state, kinds[i], back, "cuda", "");
        fixture_expect_same_run(*state, straight, there, STEPS);
        fixture_expect_same_run(*state, straight, back, STEPS);
    }
}

/* ---- a model in use ---- */

static const int used[] = {BF16, TENSORWISE, ROWWISE};
enum { USED = sizeof used / sizeof *used };

static void train_models(const fixture *f) {
    for (int i = 0; i < USED; i++) run_part(f, used[i], fixture_precisions[used[i]].name, "", false, false);
}

static ott_eval_result evaluate(const fixture *f, const char *run, const char *where) {
    mem *account;
    ott_eval_result r = {0};
    const ott_eval_options o = {.task = OTT_EVAL_PERPLEXITY, .data = f->text, .limit = 3, .threads = 1};
    compute_on(where);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(eval_run(account, NULL, path_of(f, run), &o, NULL, &r));
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return r;
}

static void losses_are_the_cpus(void **state) {
    for (int i = 0; i < USED; i++) {
        const char *run = fixture_precisions[used[i]].name;
        ott_eval_result cpu = evaluate(*state, run, ""), gpu = evaluate(*state, run, "cuda");
        assert_true(cpu.tokens > 0 && cpu.tokens == gpu.tokens);
        if (cpu.loss != gpu.loss)
            fail_msg("%s: the loss is %.9g on the CPU and %.9g on the GPU", run, cpu.loss, gpu.loss);
        assert_int_equal(cpu.fp8_gemms, gpu.fp8_gemms);
    }
}

static void generate(const fixture *f, const char *run, const char *where, collected *out) {
    mem *account;
    const ott_generate_options o = {.prompt = "The ",
                                    .max_tokens = 40, /* more tokens than the model's window */
                                    .temperature = 1,
                                    .top_p = 1,
                                    .seed = 3,
                                    .threads = 1,
                                    .repetition_penalty = 1};
    *out = (collected){0};
    compute_on(where);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(generate_run(account, NULL, path_of(f, run), NULL, &o, collect, out));
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
}

static void texts_are_the_cpus(void **state) {
    static collected cpu, gpu;
    for (int i = 0; i < USED; i++) {
        generate(*state, fixture_precisions[used[i]].name, "", &cpu);
        generate(*state, fixture_precisions[used[i]].name, "cuda", &gpu);
        assert_int_equal(cpu.pieces, 41); /* the prompt, then 40 single tokens */
        assert_int_equal(gpu.length, cpu.length);
        assert_memory_equal(gpu.text, cpu.text, cpu.length);
    }
}

static void export_on(const fixture *f, const char *run, const char *where, const char *goal) {
    char from[200], to[200];
    mem *account;
    const ott_export_options o = {.struct_size = sizeof o,
                                  .format = OTT_EXPORT_HF_FP8,
                                  .method = OTT_EXPORT_COMPRESSED_TENSORS,
                                  .granularity = OTT_EXPORT_AS_TRAINED};
    snprintf(from, sizeof from, "%s/%s", f->folder, run);
    snprintf(to, sizeof to, "%s/%s", f->folder, goal);
    compute_on(where);
    FIXTURE_OK(mem_open(&account));
    str summary = {.account = account};
    FIXTURE_OK(export_run(account, NULL, from, to, &o, &summary));
    str_free(&summary);
    mem_close(account);
}

static void exported_codes_are_the_cpus(void **state) {
    for (int i = 0; i < USED; i++) {
        char cpu[40], gpu[40];
        const char *run = fixture_precisions[used[i]].name;
        if (used[i] == BF16) continue;
        snprintf(cpu, sizeof cpu, "%s-exported", run);
        snprintf(gpu, sizeof gpu, "%s-exported-cuda", run);
        export_on(*state, run, "", cpu);
        export_on(*state, run, "cuda", gpu);
        fixture_expect_same_file(*state, cpu, gpu, "model.safetensors");
        fixture_expect_same_file(*state, cpu, gpu, "config.json");
    }
}

static int setup(void **state) {
    if (fixture_setup(state) != 0) return -1;
    train_models(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_resumes_on_another_device),
        cmocka_unit_test(losses_are_the_cpus),
        cmocka_unit_test(texts_are_the_cpus),
        cmocka_unit_test(exported_codes_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
