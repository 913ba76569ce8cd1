/*
 * The output of `ottava plan`. One output is compared word for word. In the others, numbers are checked: the
 * memory is what `ottava train` would plan, the largest batch fits and the next larger one does not, and
 * rates change the times as they should.
 */
#include <setjmp.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/collected.h"
#include "plan/plan.h"
#include "plan/stages.h"

/* ---- running ---- */

enum { MOST = 24 };

static bool page_fits; /* true if the last plan fits into the device's memory */

static ott_status plan_of(const plan_options *o, const char *const *arguments, collected *w) {
    ott_context *context;
    ott_config *configuration;
    int count = 0;
    *w = (collected){0};
    while (arguments[count]) count++;
    assert_int_equal(ott_context_open(NULL, &context), OTT_OK);
    ott_status status = ott_config_open(context, count, arguments, &configuration);
    if (status == OTT_OK) {
        status = plan_run(context, configuration, o, collect, w, &page_fits);
        ott_config_close(configuration);
    }
    ott_context_close(context);
    return status;
}

static collected printed;

/* Returns the JSON object of a plan. Release it with json_decref. */
static json_t *plan_json(plan_options o, const char *const *arguments) {
    o.json = 1;
    if (plan_of(&o, arguments, &printed) != OTT_OK) fail_msg("%s", ott_error_text());
    json_t *root = json_loads(printed.text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

static double number(const json_t *object, const char *path) {
    char name[64];
    size_t length = strcspn(path, "/");
    snprintf(name, sizeof name, "%.*s", (int)length, path);
    const json_t *value = json_object_get(object, name);
    if (path[length]) return number(value, path + length + 1);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Finished plans, by options, because several checks read one plan. */
static json_t *pages;

static double number_of(plan_options o, const char *const *arguments, const char *path) {
    char asked[1024];
    int length =
        snprintf(asked, sizeof asked, "%s %lld %s", o.device, (long long)o.ranks, o.rates ? o.rates : "");
    for (int i = 0; arguments[i]; i++) {
        length += snprintf(asked + length, sizeof asked - (size_t)length, " %s", arguments[i]);
        assert_in_range(length, 1, sizeof asked - 1);
    }
    if (!json_object_get(pages, asked)) json_object_set_new(pages, asked, plan_json(o, arguments));
    return number(json_object_get(pages, asked), path);
}

static int open_pages(void **state) {
    (void)state;
    pages = json_object();
    return pages ? 0 : -1;
}

static int close_pages(void **state) {
    (void)state;
    json_decref(pages);
    return 0;
}

static const plan_options h100 = {.device = "h100", .ranks = 1};
#define SIZES(batch)                                                                                         \
    "--model.preset=124M", "--train.seq_len=1024", "--train.mixed_precision=fp8", "--train.batch_size=" batch

/* ---- the page ---- */

static void a_page(void **state) {
    static char golden[1 << 15];
    const char *const arguments[] = {SIZES("8"), "--train.grad_accum_steps=2", NULL};
    (void)state;
    FILE *f = fopen(TEST_SOURCE_DIR "/tests/plan/page_124m_h100.txt", "r");
    assert_non_null(f);
    golden[fread(golden, 1, sizeof golden - 1, f)] = 0;
    fclose(f);
    assert_int_equal(plan_of(&h100, arguments, &printed), OTT_OK);
    if (strcmp(printed.text, golden) != 0) fail_msg("the page is now\n%s", printed.text);
}

/* ---- memory ---- */

static void the_largest_batch_fits(void **state) {
    const char *const eight[] = {SIZES("8"), NULL};
    char at[48], beyond[48];
    (void)state;
    double largest = number_of(h100, eight, "largest_batch_size");
    assert_true(largest > 8);
    snprintf(at, sizeof at, "--train.batch_size=%.0f", largest);
    snprintf(beyond, sizeof beyond, "--train.batch_size=%.0f", largest + 1);
    const char *const fits[] = {SIZES("8"), at, NULL}, *const does_not[] = {SIZES("8"), beyond, NULL};
    json_t *yes = plan_json(h100, fits), *no = plan_json(h100, does_not);
    assert_true(json_is_true(json_object_get(yes, "fits")) && json_is_false(json_object_get(no, "fits")));
    json_decref(yes);
    json_decref(no);
    const plan_options small = {.device = "h100", .ranks = 1, .rates = "gib=2"};
    assert_true(number_of(small, eight, "largest_batch_size") == 0);
}

static void assert_printed(const char *part) {
    if (!strstr(printed.text, part)) fail_msg("\"%s\" is not in\n%s", part, printed.text);
}

/* If a run does not fit, the plan suggests settings, as `ottava train` does when it refuses the run. */
static void what_would_fit_is_suggested(void **state) {
    const plan_options small = {.device = "h100", .ranks = 1, .rates = "gib=6"};
    const char *const eight[] = {SIZES("8"), NULL}, *const one[] = {SIZES("1"), NULL};
    (void)state;
    assert_int_equal(plan_of(&small, eight, &printed), OTT_OK);
    assert_false(page_fits);
    assert_printed("What would help most: train.activation_checkpointing = \"full\" saves ");
    assert_printed("; sharded over 16 ranks with as much memory each (distributed.dp_shard = 16) it needs ");
    json_t *no = plan_json(small, eight), *yes = plan_json(small, one);
    assert_true(page_fits);
    assert_non_null(strstr(json_string_value(json_object_get(no, "suggestions")), "what would help most: "));
    assert_null(json_object_get(yes, "suggestions"));
    json_decref(no);
    json_decref(yes);
}

/* With full recomputation FP8 takes more memory than bf16. The gradient of the logits and its two sets of
   codes take more than FP8 saves. */
static void memory_that_fp8_adds_is_printed(void **state) {
#define RECOMPUTED SIZES("8"), "--train.activation_checkpointing=full"
    const char *const fp8[] = {RECOMPUTED, NULL}, *const bf16[] = {RECOMPUTED, "--train.mixed_precision=bf16",
                                                                   NULL};
    const char *const headless[] = {RECOMPUTED, "--float8.filter_fqns=output_head", NULL};
    const char *const chunked[] = {RECOMPUTED, "--train.loss_fn=chunked_cross_entropy",
                                   "--train.ce_chunk_size=512", NULL};
    const char *const *const settings[] = {headless, chunked};
    (void)state;
    json_t *page = plan_json(h100, fp8), *without = plan_json(h100, headless);
    const json_t *offers = json_object_get(page, "settings_that_need_less");
    assert_true(number(page, "bytes_more_than_bf16") ==
                number(page, "memory_bytes/all") - number_of(h100, bf16, "memory_bytes/all"));
    assert_int_equal(json_array_size(offers), 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(number(json_array_get(offers, i), "bytes") ==
                    number_of(h100, settings[i], "memory_bytes/all"));
    assert_null(json_object_get(without, "bytes_more_than_bf16"));
    json_decref(page);
    json_decref(without);
    assert_int_equal(plan_of(&h100, fp8, &printed), OTT_OK);
    assert_printed(" more than bf16; it needs ");
    assert_printed(" MiB with float8.filter_fqns = \"output_head\", ");
}

/* ---- time ---- */

static void rates_count(void **state) {
    const char *const eight[] = {SIZES("8"), NULL}, *const two[] = {SIZES("8"), "--train.grad_accum_steps=2",
                                                                    NULL};
    const plan_options slow = {.device = "h100", .ranks = 1, .rates = "fp8_tflops=100"};
    (void)state;
    double products = number_of(h100, eight, "work/gemm_fp8/seconds");
    assert_true(number_of(slow, eight, "work/gemm_fp8/seconds") > 4 * products);
    assert_true(number_of(h100, two, "work/gemm_fp8/flops") ==
                2 * number_of(h100, eight, "work/gemm_fp8/flops"));
    /* The optimizer runs once per step, with any number of micro-batches. */
    assert_true(number_of(h100, two, "work/optimizer/bytes") ==
                number_of(h100, eight, "work/optimizer/bytes"));
    assert_true(number_of(h100, eight, "mfu") < 1 && number_of(h100, eight, "mfu") > 0.1);
}

/* A token takes six FLOPs per weight that a GEMM reads. */
static void products_are_counted_once(void **state) {
    const char *const eight[] = {SIZES("8"), NULL};
    (void)state;
    double weights = 12 * (4 * 768.0 * 768 + 3 * 768.0 * 2048) + 768.0 * 50304;
    assert_true(number_of(h100, eight, "work/gemm_fp8/flops") == 6 * weights * 8 * 1024);
}

/* Offloaded moments and masters of an 8B model count as host memory instead of device memory. The update then
   takes the time to read them over the bus. */
static void offloading_moves_bytes_to_the_host(void **state) {
    const char *const kept[] = {SIZES("8"), NULL}, *const moments[] = {SIZES("8"), "--train.offload=moments",
                                                                       NULL};
    const char *const all[] = {SIZES("8"), "--train.offload=state", NULL};
    const plan_options slow = {.device = "h100", .ranks = 1, .rates = "host_gbs=1"};
    (void)state;
    double state_bytes = number_of(h100, kept, "memory_bytes/optimizer state");
    assert_true(number_of(h100, moments, "memory_bytes/optimizer state") == 0);
    assert_true(number_of(h100, moments, "host_memory_bytes/optimizer state") == state_bytes);
    double masters = number_of(h100, all, "host_memory_bytes/parameters");
    assert_true(number_of(h100, all, "memory_bytes/parameters") + masters ==
                number_of(h100, kept, "memory_bytes/parameters"));
    double seconds = number_of(slow, moments, "work/optimizer/seconds");
    assert_true(seconds > state_bytes / 1e9 && seconds < 1.01 * state_bytes / 1e9);
    assert_true(number_of(slow, all, "work/optimizer/seconds") > (state_bytes + masters) / 1e9);
}

/* The rates of this machine are measured, so only general properties of the plan are checked. */
static void this_machine(void **state) {
    const plan_options here = {.ranks = 1};
    const char *const tiny[] = {"--model.preset=debug", "--train.seq_len=32", "--train.batch_size=1",
                                "--train.threads=1", NULL};
    (void)state;
    json_t *root = plan_json(here, tiny);
    assert_true(number(root, "step_seconds") > 0 && number(root, "memory_bytes/parameters") > 4 * 3e6);
    json_decref(root);
}

/* ---- ranks ---- */

static double of_ranks_on(const char *device, int64_t ranks, const char *const *arguments, const char *path) {
    const plan_options o = {.device = device, .ranks = ranks};
    return number_of(o, arguments, path);
}

static double of_ranks(int64_t ranks, const char *const *arguments, const char *path) {
    return of_ranks_on("h100", ranks, arguments, path);
}

static void more_ranks_need_less(void **state) {
    const char *const *each[] = {
        (const char *const[]){SIZES("2"), NULL},
        (const char *const[]){SIZES("2"), "--train.activation_checkpointing=full", NULL}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        double before = INFINITY;
        for (int64_t ranks = 2; ranks <= 128; ranks *= 8) {
            double bytes = of_ranks(ranks, each[i], "memory_bytes/all");
            if (bytes > before)
                fail_msg("%lld ranks need %.0f bytes each, fewer ranks need %.0f", (long long)ranks, bytes,
                         before);
            before = bytes;
        }
        assert_true(of_ranks(4, each[i], "memory_bytes/optimizer state") <
                    0.27 * of_ranks(1, each[i], "memory_bytes/optimizer state"));
    }
}

/* With 4096 ranks, a plan takes minutes if it visits every rank for each shard of a parameter. */
static void thousands_of_ranks(void **state) {
    const char *const arguments[] = {SIZES("1"), NULL};
    (void)state;
    double all = of_ranks(4096, arguments, "parameters"),
           own = of_ranks(4096, arguments, "parameters_of_a_rank");
    assert_true(own > all / 4096 / 1.2 && own < all / 4096 * 1.2);
}

/* Checks the bytes that one of four ranks receives. Block weights are gathered in bf16, for forward and again
   for backward, but the last block's weights stay gathered. The tied table is gathered for the embedding and
   for the head, but not for backward. Norms and gradients are fp32. */
static void bytes_of_four_ranks(void **state) {
    const char *const arguments[] = {"--model.preset=124M", "--train.seq_len=1024", "--train.batch_size=1",
                                     "--train.mixed_precision=bf16", NULL};
    (void)state;
    double block = 2 * (4 * 768.0 * 768 + 3 * 768.0 * 2048) + 2 * 4 * 768.0, table = 2 * 50304.0 * 768;
    double parameters = of_ranks(4, arguments, "parameters");
    assert_true(parameters == 123587328);
    assert_true(of_ranks(4, arguments, "reduced/bytes") == 0.75 * 4 * parameters);
    assert_true(of_ranks(4, arguments, "gathered/bytes") == 0.75 * (23 * block + 2 * table + 4 * 768));
    assert_true(of_ranks(1, arguments, "gathered/bytes") == 0);
}

/* Each of the 12 layers has seven GEMMs in forward, and the head has one. Backward has two GEMMs for each
   forward GEMM. Two micro-batches run twice as many GEMMs. */
static void products_are_counted(void **state) {
    const char *const one[] = {SIZES("1"), NULL}, *const two[] = {SIZES("1"), "--train.grad_accum_steps=2",
                                                                  NULL};
    (void)state;
    double calls = 3 * (12 * 7 + 1);
    assert_true(of_ranks(1, one, "work/gemm_fp8/calls") == calls);
    assert_true(of_ranks(1, two, "work/gemm_fp8/calls") == 2 * calls);
}

static void fp8_travels_as_codes(void **state) {
    const char *const bf16[] = {SIZES("1"), "--train.mixed_precision=bf16", NULL}, *const fp8[] = {SIZES("1"),
                                                                                                   NULL};
    (void)state;
    double codes = of_ranks(8, fp8, "gathered/bytes"), full_values = of_ranks(8, bf16, "gathered/bytes");
    assert_true(codes < 0.7 * full_values);
    /* All weights' scales are computed once per step. The computation is the same if the amaxes are reduced
       in one collective or in many. */
    const char *const at_once[] = {SIZES("1"), "--float8.precompute_float8_dynamic_scale_for_fsdp=true",
                                   NULL};
    const char *const apart[] = {SIZES("1"), "--float8.precompute_float8_dynamic_scale_for_fsdp=false", NULL};
    assert_true(of_ranks(8, at_once, "work/quantize/bytes") == of_ranks(8, apart, "work/quantize/bytes"));
    assert_true(of_ranks(8, at_once, "exchanged/calls") < of_ranks(8, apart, "exchanged/calls"));
}

/* Returns the bytes that each of four ranks sends and receives in a step. */
static double moved(const char *recipe, int layers, const char *more) {
    char named[64], depth[64];
    bool bf16 = strcmp(recipe, "bf16") == 0;
    /* a GPU with FP8 GEMMs of this recipe */
    const char *device = strcmp(recipe, "mxfp8") == 0 ? "b200" : "h100";
    snprintf(named, sizeof named, "--float8.recipe_name=%s",
             bf16 ? "tensorwise" : recipe); /* bf16 uses no recipe */
    snprintf(depth, sizeof depth, "--model.n_layers=%d", layers);
    const char *const arguments[] = {SIZES("1"), named, depth, bf16 ? "--train.mixed_precision=bf16" : more,
                                     NULL};
    return of_ranks_on(device, 4, arguments, "gathered/bytes") +
           of_ranks_on(device, 4, arguments, "exchanged/bytes");
}

/* Returns the bytes that a rank sends and receives in a step for one additional layer. */
static double moved_by_block(const char *recipe, const char *more) {
    return moved(recipe, 13, more) - moved(recipe, 12, more);
}

/* Checks the rows of a table in docs/explanation/parallelism.md. */
static void what_fp8_saves_on_the_way(void **state) {
    static const struct {
        const char *recipe, *more, *name;
        double most; /* most bytes of a block, relative to bf16's */
    } rows[] = {
        {"bf16", NULL, "bf16", 1},
        {"tensorwise", NULL, "tensorwise", 0.52},
        {"rowwise", NULL, "rowwise", 0.52},
        {"rowwise_with_gw_hp", NULL, "rowwise_with_gw_hp", 0.52},
        {"delayed", NULL, "delayed", 0.52},
        {"current", NULL, "current", 0.52},
        {"block", NULL, "block", 0.52},
        {"mxfp8", NULL, "mxfp8", 0.65},
        {"tensorwise", "--float8.enable_fsdp_float8_all_gather=false", "tensorwise, masters gathered", 2}};
    static char page[1 << 16];
    int missing = 0;
    (void)state;
    FILE *f = fopen(TEST_SOURCE_DIR "/docs/explanation/parallelism.md", "r");
    assert_non_null(f);
    page[fread(page, 1, sizeof page - 1, f)] = 0;
    fclose(f);
    double block = moved_by_block("bf16", NULL), model = moved("bf16", 12, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double of_block = moved_by_block(rows[i].recipe, rows[i].more);
        double of_model = moved(rows[i].recipe, 12, rows[i].more);
        char row[128];
        snprintf(row, sizeof row, "| %s | %.2f | %.2f | %.1f | %.2f |", rows[i].name, of_block / 1e6,
                 of_block / block, of_model / 1e6, of_model / model);
        print_message("%s\n", row);
        assert_true(of_block <= rows[i].most * block);
        missing += !strstr(page, row);
    }
    if (missing) fail_msg("docs/explanation/parallelism.md lacks %d of the rows above", missing);
}

/* ---- other dimensions ---- */

#define BF16(more)                                                                                           \
    (const char *const[]) {                                                                                  \
        "--model.preset=124M", "--train.seq_len=1024", "--train.batch_size=1",                               \
            "--train.mixed_precision=bf16", "--train.grad_accum_steps=4", more, NULL                         \
    }

/* Two ranks with tensor parallelism: each has half of every layer, and both read the same tokens. */
static void two_share_a_layer(void **state) {
    const char *const *one = BF16("--distributed.tp=1"), *const *two = BF16("--distributed.tp=2");
    (void)state;
    assert_true(of_ranks(2, two, "work/gemm/flops") == of_ranks(1, one, "work/gemm/flops") / 2);
    assert_true(of_ranks(2, two, "tokens") == of_ranks(1, one, "tokens"));
    double ours = of_ranks(2, two, "parameters_of_a_rank"), all = of_ranks(2, two, "parameters");
    assert_true(ours > all / 2 && ours < 0.501 * all);
    /* Each layer sends the residual stream at least twice in forward and twice in backward. Sent and received
       bytes are counted. */
    double stream = 2 * 1024 * 768 * 0.5;
    assert_true(of_ranks(2, two, "tensor/bytes") >= 4 * 12 * 8 * stream);
    assert_true(of_ranks(2, two, "waiting_seconds") >= of_ranks(2, two, "tensor/seconds"));
    assert_true(of_ranks(1, one, "tensor/bytes") == 0);
}

/* Two ranks with context parallelism: each computes attention of half of the heads for all tokens, and
   everything else for half of the tokens. */
static void two_share_a_sequence(void **state) {
    const char *const *one = BF16("--distributed.cp=1"), *const *two = BF16("--distributed.cp=2");
    (void)state;
    assert_true(of_ranks(2, two, "work/gemm/flops") == of_ranks(1, one, "work/gemm/flops") / 2);
    assert_true(of_ranks(2, two, "work/attention/flops") == of_ranks(1, one, "work/attention/flops") / 2);
    /* Each layer exchanges q, k, v, the output and their gradients. If attention is recomputed, some of these
       tensors are exchanged again. */
    double heads = 2 * 512 * 768 * 0.5;
    assert_true(of_ranks(2, two, "context/bytes") >= 4 * 12 * 8 * heads);
    assert_true(of_ranks(2, two, "between_copies/bytes") == 4 * of_ranks(2, two, "parameters"));
}

/* Two pipeline stages. The last stage receives the residual stream of each micro-batch and, once, the summed
   gradient of the tied table. It waits while the pipeline fills and drains. */
static void two_stages(void **state) {
    const char *const *one = BF16("--distributed.pp=1"), *const *two = BF16("--distributed.pp=2");
    (void)state;
    double bubble = of_ranks(2, two, "bubble_seconds"), step = of_ranks(2, two, "step_seconds");
    assert_true(of_ranks(2, two, "stages/bytes") == 4 * 2 * 1024 * 768.0 + 4 * 50304 * 768.0);
    assert_true(bubble > 0.05 * step && bubble < 0.35 * step);
    assert_true(of_ranks(2, two, "memory_bytes/parameters") <
                0.75 * of_ranks(1, one, "memory_bytes/parameters"));
    assert_true(of_ranks(1, one, "bubble_seconds") == 0);
}

/* With p equal stages and n micro-batches, a step takes the time of n + p - 1 micro-batches. With two parts
   per stage the waiting time halves. */
static void schedules_of_alike_stages(void **state) {
    enum { STAGES = 4, MICRO_BATCHES = 8 };
    static const kind_pp_schedule schedules[] = {PP_GPIPE, PP_1F1B, PP_INTERLEAVED_1F1B};
    mem *account;
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    for (int i = 0; i < 3; i++) {
        int chunks = schedules[i] == PP_INTERLEAVED_1F1B ? 2 : 1;
        const pipeline_stage shape = {schedules[i], STAGES, 0, chunks};
        stage_times times[STAGES];
        double seconds;
        for (int s = 0; s < STAGES; s++) times[s] = (stage_times){1.0 / chunks, 2.0 / chunks, 0};
        assert_int_equal(stages_run(account, &shape, MICRO_BATCHES, times, &seconds), OTT_OK);
        double expected = 3.0 * MICRO_BATCHES + 3.0 * (STAGES - 1) / chunks;
        if (fabs(seconds - expected) > 1e-9)
            fail_msg("schedule %d takes %g s, expected %g s", i, seconds, expected);
    }
    mem_close(account);
}

/* If gradients are reduced once per step instead of per micro-batch, they are sent once. */
static void deferred_gradients_travel_once(void **state) {
    const char *const *each = BF16("--distributed.defer_fsdp_grad_sync=false");
    const char *const *once = BF16("--distributed.defer_fsdp_grad_sync=true");
    (void)state;
    double bytes = of_ranks(4, once, "reduced/bytes");
    assert_true(bytes == 0.75 * 4 * of_ranks(4, once, "parameters"));
    assert_true(of_ranks(4, each, "reduced/bytes") == 4 * bytes);
}

/* With hundreds of ranks a shard is small. All shards are packed by one operation, not by one per rank. */
static void many_ranks_lay_out_at_once(void **state) {
    (void)state;
    double few = of_ranks(8, BF16("--train.seed=1"), "work/convert/seconds");
    assert_true(of_ranks(256, BF16("--train.seed=1"), "work/convert/seconds") < 1.5 * few);
}

/* On GPUs a group has 64 MiB of staging memory. In a pipeline, all messages of a step may be in flight at the
   same time. They include a gradient of the tied table for each of four micro-batches. */
static void groups_of_gpus_take_memory(void **state) {
    const char *comm = "memory_bytes/communication";
    (void)state;
    assert_true(of_ranks(1, BF16("--train.seed=1"), comm) == 0);
    assert_true(of_ranks(2, BF16("--train.seed=1"), comm) == 64 << 20);
    assert_true(of_ranks(2, BF16("--distributed.pp=2"), comm) > 4 * 4.0 * 768 * 50304);
}

/* ---- the sweep ---- */

static void what_is_proposed_fits(void **state) {
    const plan_options asked = {.device = "h100", .ranks = 4, .rates = "gib=2.1", .sweep = 1};
    const char *arguments[MOST] = {"--model.preset=debug", "--train.seq_len=256", "--train.batch_size=8",
                                   NULL};
    char options[320];
    (void)state;
    json_t *root = plan_json(asked, arguments);
    const json_t *rows = json_object_get(root, "sweep"), *first = json_array_get(rows, 0);
    assert_true(json_array_size(rows) > 3);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        assert_true(number(row, "bytes") <= 0.101 * 1024 * 1024 * 1024);
        assert_true(number(row, "tokens_per_second") <= number(first, "tokens_per_second"));
    }
    snprintf(options, sizeof options, "%s", json_string_value(json_object_get(first, "options")));
    int count = 3;
    for (char *word = strtok(options, " "); word; word = strtok(NULL, " ")) {
        arguments[count++] = word;
    }
    arguments[count] = NULL;
    json_t *again = plan_json((plan_options){.device = "h100", .ranks = 4, .rates = "gib=2.1"}, arguments);
    assert_true(json_is_true(json_object_get(again, "fits")));
    assert_true(number(again, "tokens_per_second") <= number(first, "tokens_per_second"));
    json_decref(again);
    json_decref(root);
}

/* ---- refused plans ---- */

static void refused(const plan_options *o, const char *const *arguments, ott_status status,
                    const char *text) {
    assert_int_equal(plan_of(o, arguments, &printed), status);
    if (!strstr(ott_error_text(), text)) fail_msg("\"%s\" does not contain \"%s\"", ott_error_text(), text);
}

static void refusals(void **state) {
    const plan_options a100 = {.device = "a100", .ranks = 1}, none = {.device = "h300", .ranks = 1};
    const char *const eight[] = {SIZES("8"), NULL}, *const nothing[] = {"--train.seq_len=64", NULL};
    const char *const odd[] = {SIZES("8"), "--model.n_kv_heads=5", NULL};
    const plan_options two = {.device = "h100", .ranks = 2}, nobody = {.device = "h100"};
    const plan_options b200 = {.device = "b200", .ranks = 1};
    const char *const mx[] = {SIZES("8"), "--float8.recipe_name=mxfp8", NULL};
    const char *const block[] = {SIZES("8"), "--float8.recipe_name=block", NULL};
    const char *const layers[] = {SIZES("8"), "--distributed.pp=2", "--model.n_layers=1", NULL};
    const char *const heads[] = {SIZES("8"),          "--train.mixed_precision=bf16", "--distributed.tp=2",
                                 "--model.n_heads=3", "--model.n_kv_heads=3",         NULL};
    const char *const tensor[] = {SIZES("8"), "--distributed.tp=2", NULL};
    (void)state;
    refused(&two, layers, OTT_ERR_CONFIG, "model.n_layers (1) must be at least distributed.pp (2)");
    refused(&two, heads, OTT_ERR_CONFIG, "model.n_heads");
    refused(&two, tensor, OTT_ERR_CONFIG, "float8.tensor_parallel = true");
    refused(&nobody, eight, OTT_ERR_ARGUMENT, "--ranks 0: give 1 to 65536 processes");
    refused(&none, eight, OTT_ERR_ARGUMENT, "--device \"h300\" is unknown");
    refused(&a100, eight, OTT_ERR_UNSUPPORTED, "its tensor cores do not support FP8");
    refused(&h100, mx, OTT_ERR_UNSUPPORTED, "needs compute capability 10.0");
    refused(&b200, block, OTT_ERR_UNSUPPORTED, "needs compute capability 9.0");
    refused(&h100, nothing, OTT_ERR_CONFIG, "no model is given");
    refused(&h100, odd, OTT_ERR_CONFIG, "must be divisible by model.n_kv_heads");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page),
        cmocka_unit_test(the_largest_batch_fits),
        cmocka_unit_test(what_would_fit_is_suggested),
        cmocka_unit_test(memory_that_fp8_adds_is_printed),
        cmocka_unit_test(rates_count),
        cmocka_unit_test(products_are_counted_once),
        cmocka_unit_test(offloading_moves_bytes_to_the_host),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(more_ranks_need_less),
        cmocka_unit_test(thousands_of_ranks),
        cmocka_unit_test(bytes_of_four_ranks),
        cmocka_unit_test(products_are_counted),
        cmocka_unit_test(fp8_travels_as_codes),
        cmocka_unit_test(what_fp8_saves_on_the_way),
        cmocka_unit_test(two_share_a_layer),
        cmocka_unit_test(two_share_a_sequence),
        cmocka_unit_test(two_stages),
        cmocka_unit_test(schedules_of_alike_stages),
        cmocka_unit_test(deferred_gradients_travel_once),
        cmocka_unit_test(many_ranks_lay_out_at_once),
        cmocka_unit_test(groups_of_gpus_take_memory),
        cmocka_unit_test(what_is_proposed_fits),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, open_pages, close_pages);
}
