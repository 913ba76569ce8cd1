/*
 * Generation continues a prompt with a run's model, in the run's precision. The model repeats the text that
 * it learned, and the same seed gives the same text. A bad request gives a one-line error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/collected.h"
#include "generate/generate.h"
#include "train/train_fixture.h"

#define WINDOW 24 /* train.seq_len of the fixture's runs */

/* Generates text. May end early: a model that is not trained may choose the byte 0, which a string cannot
   contain. */
static ott_status generate_from(const char *path, const ott_generate_options *o, collected *w,
                                captured_log *logged) {
    mem *account;
    logger log = {0};
    *w = (collected){0};
    if (logged) log = capture_log(logged);
    FIXTURE_OK(mem_open(&account));
    ott_status status = generate_run(account, &log, path, NULL, o, collect, w);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return status;
}

static collected generate(const fixture *f, const char *run, const ott_generate_options *o) {
    static collected w;
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->folder, run);
    FIXTURE_OK(generate_from(path, o, &w, NULL));
    return w;
}

static ott_generate_options options(const char *prompt, double temperature, uint64_t seed) {
    return (ott_generate_options){.prompt = prompt,
                                  .max_tokens = 60,
                                  .temperature = temperature,
                                  .top_p = 1.0,
                                  .seed = seed,
                                  .threads = 1,
                                  .repetition_penalty = 1};
}

static void assert_same(collected a, collected b) {
    assert_int_equal(a.pieces, b.pieces);
    assert_int_equal(a.length, b.length);
    assert_memory_equal(a.text, b.text, a.length);
}

static bool differ(collected a, collected b) {
    return a.length != b.length || memcmp(a.text, b.text, a.length) != 0;
}

/* ---- the runs ---- */

static const int kinds[] = {BF16, TENSORWISE, ROWWISE};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void train_on(const fixture *f, int p, const char *text, const char *steps, const char *name) {
    char path[160], max[40];
    snprintf(path, sizeof path, "--data.dataset_path=%s/%s", f->folder, text);
    snprintf(max, sizeof max, "--train.max_steps=%s", steps);
    const char *more[] = {
        path, max, "--train.batch_size=8", "--eval.enabled=false", "--checkpoint.interval=1000", NULL};
    FIXTURE_OK(
        fixture_run(f, &(run_options){.name = name, .precision = &fixture_precisions[p], .more = more}));
}

/* Trains runs on sentences, one per precision, and one run on the alphabet. */
static int setup(void **state) {
    if (fixture_setup(state)) return -1;
    const fixture *f = *state;
    char path[160];
    snprintf(path, sizeof path, "%s/alphabet.txt", f->folder);
    FILE *file = fopen(path, "wb");
    for (int i = 0; file && i < 800; i++) fputs("abcdefghijklmnopqrstuvwxyz\n", file);
    if (!file || fclose(file)) return -1;
    for (int i = 0; i < KINDS; i++) {
        char name[64];
        snprintf(name, sizeof name, "alphabet-%s", fixture_precisions[kinds[i]].name);
        train_on(f, kinds[i], "text.txt", "40", fixture_precisions[kinds[i]].name);
        train_on(f, kinds[i], "alphabet.txt", "60", name);
    }
    return 0;
}

/* ---- generated text ---- */

static void it_continues_what_it_learnt(void **state) {
    for (int i = 0; i < KINDS; i++) {
        char name[64];
        snprintf(name, sizeof name, "alphabet-%s", fixture_precisions[kinds[i]].name);
        ott_generate_options o = options("klmnopqrst", 0, 1);
        o.max_tokens = 40;
        collected w = generate(*state, name, &o);
        assert_string_equal(w.text, "klmnopqrstuvwxyz\nabcdefghijklmnopqrstuvwxyz\nabcdef");
        assert_int_equal(w.pieces, 41); /* one piece for the prompt, and one for each token */
    }
}

static void same_seed_same_text(void **state) {
    for (int i = 0; i < KINDS; i++) {
        const char *run = fixture_precisions[kinds[i]].name;
        ott_generate_options one = options("The man", 1, 1), two = options("The man", 1, 2);
        collected a = generate(*state, run, &one);
        assert_memory_equal(a.text, "The man", 7);
        assert_same(a, generate(*state, run, &one));
        assert_true(differ(a, generate(*state, run, &two)));
        one.threads = 2;
        assert_same(a, generate(*state, run, &one));
    }
}

/* The seed has no effect at temperature 0, at a tiny temperature, or if top-p leaves one token. */
static void greedy_is_the_most_likely(void **state) {
    ott_generate_options greedy = options("The man", 0, 1), o = options("The man", 0, 2);
    collected a = generate(*state, "rowwise", &greedy);
    assert_same(a, generate(*state, "rowwise", &o));
    o = options("The man", 1, 3);
    o.top_p = 1e-6;
    assert_same(a, generate(*state, "rowwise", &o));
    o = options("The man", 1, 4);
    assert_true(differ(a, generate(*state, "rowwise", &o)));
    greedy.prompt = o.prompt = "abc"; /* after this prompt no two tokens are equally likely */
    o.temperature = 1e-6;
    assert_same(generate(*state, "alphabet-rowwise", &greedy), generate(*state, "alphabet-rowwise", &o));
}

/* The first tokens do not depend on how many tokens are generated. */
static void a_longer_text_begins_alike(void **state) {
    ott_generate_options o = options("The man", 1, 1);
    collected all = generate(*state, "bf16", &o);
    o.max_tokens = 7;
    collected few = generate(*state, "bf16", &o);
    assert_int_equal(few.pieces, 8);
    assert_memory_equal(all.text, few.text, few.length);
    o.max_tokens = 0;
    assert_string_equal(generate(*state, "bf16", &o).text, "The man");
}

/* The model reads only the last WINDOW bytes of a prompt. The output has the full prompt. */
static void long_prompts_are_truncated_to_the_window(void **state) {
    static const char prompt[] =
        "A prompt that is much longer than what the model was trained to look back upon";
    const char *end = prompt + sizeof prompt - 1 - WINDOW;
    int others = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        ott_generate_options o = options(prompt, 1, seed), seen = options(end, 1, seed),
                             less = options(end + 1, 1, seed);
        collected all = generate(*state, "rowwise", &o), last = generate(*state, "rowwise", &seen);
        assert_memory_equal(all.text, prompt, sizeof prompt - 1);
        assert_string_equal(all.text + sizeof prompt - 1, last.text + WINDOW);
        collected shorter = generate(*state, "rowwise", &less);
        others += strcmp(last.text + WINDOW, shorter.text + WINDOW - 1) != 0;
    }
    assert_true(others > 0); /* for some prompts the first byte of the window changes the output */
}

/* Under bf16 and rowwise a token's values do not depend on other tokens. So a text that one call generates,
   with the KV cache, equals the text of one call per token, each with the text so far as prompt. */
static void continuing_equals_a_new_prompt(void **state) {
    static const char *const runs[] = {"bf16", "rowwise"};
    for (int i = 0; i < 2; i++) {
        ott_generate_options o = options("The m", 0, 1);
        o.max_tokens = WINDOW - 5;
        collected all = generate(*state, runs[i], &o);
        o.max_tokens = 1;
        for (size_t length = 5; length < WINDOW; length++) {
            char prompt[WINDOW + 1];
            snprintf(prompt, sizeof prompt, "%.*s", (int)length, all.text);
            o.prompt = prompt;
            collected one = generate(*state, runs[i], &o);
            assert_int_equal(one.length, length + 1);
            assert_memory_equal(one.text, all.text, one.length);
        }
    }
}

/* When the window is full, generation continues with the newer half of the window. */
static void a_full_window_keeps_half(void **state) {
    ott_generate_options o = options("The prompt has 24 bytes.", 0, 1);
    o.max_tokens = 1 + WINDOW / 2;
    collected all = generate(*state, "bf16", &o);
    assert_int_equal(all.length, WINDOW + 1 + WINDOW / 2);
    char half[WINDOW / 2 + 1]; /* the newer half ends with the first new token */
    snprintf(half, sizeof half, "%.*s", WINDOW / 2, all.text + 1 + WINDOW / 2);
    o.prompt = half;
    o.max_tokens = WINDOW / 2;
    assert_string_equal(generate(*state, "bf16", &o).text, all.text + 1 + WINDOW / 2);
}

/* A long text fills the window many times. The log reports this once. */
static void long_texts_continue(void **state) {
    static captured_log logged;
    static collected w;
    const fixture *f = *state;
    char path[160];
    ott_generate_options o = options("klmnopqrst", 0, 1);
    o.max_tokens = 500;
    snprintf(path, sizeof path, "%s/alphabet-bf16", f->folder);
    FIXTURE_OK(generate_from(path, &o, &w, &logged));
    assert_int_equal(w.length, 510);
    /* the text still repeats every 27 bytes: the alphabet and a newline */
    assert_memory_equal(w.text + 490, w.text + 490 - 27, 20);
    assert_int_equal(
        captured_log_count(&logged,
                           "The window of train.seq_len = 24 tokens is full: continuing from the last 12"),
        1);
}

/* ---- stop strings, penalty ---- */

static void a_stop_text_ends_it(void **state) {
    static const char *const stops[] = {"never", "xyz\nab", "z\nabcd"};
    ott_generate_options o = options("klmnopqrst", 0, 1);
    o.stop = stops;
    o.stop_count = 3;
    assert_string_equal(generate(*state, "alphabet-bf16", &o).text, "klmnopqrstuvw");
    o.stop = stops + 2;
    o.stop_count = 1;
    assert_string_equal(generate(*state, "alphabet-bf16", &o).text, "klmnopqrstuvwxy");
    o.prompt = "xyz\nabcd"; /* a stop string that occurs in the prompt has no effect */
    o.max_tokens = 3;
    assert_string_equal(generate(*state, "alphabet-bf16", &o).text, "xyz\nabcdefg");
}

/* With a repetition penalty the model generates another text if the text repeats letters, but the same text
   if it repeats none. */
static void a_penalty_avoids_generated_tokens(void **state) {
    ott_generate_options o = options("The man", 0, 1), once = options("klmnopqrst", 0, 1);
    collected plain = generate(*state, "bf16", &o);
    o.repetition_penalty = 10;
    collected w = generate(*state, "bf16", &o);
    assert_true(differ(plain, w));
    once.repetition_penalty = 10;
    once.max_tokens = 17;
    assert_string_equal(generate(*state, "alphabet-bf16", &once).text, "klmnopqrstuvwxyz\nabcdefghij");
}

/* ---- conversations ---- */

static void turns_make_one_text(void **state) {
    const fixture *f = *state;
    ott_generate_options o = options(NULL, 0, 1);
    mem *account;
    text_generator *g;
    logger log = {0};
    collected w = {0};
    char path[160];
    snprintf(path, sizeof path, "%s/alphabet-bf16", f->folder);
    o.max_tokens = 4;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(generate_open(account, &log, path, NULL, &o, &g));
    assert_int_equal(generate_continue(g, "", collect, &w), OTT_ERR_ARGUMENT);
    FIXTURE_OK(generate_continue(g, "abcdef", collect, &w));
    assert_string_equal(w.text, "ghij");
    FIXTURE_OK(generate_continue(g, "", collect, &w)); /* an empty prompt continues the text */
    assert_string_equal(w.text, "ghijklmn");
    FIXTURE_OK(generate_continue(g, "opq", collect, &w));
    assert_string_equal(w.text, "ghijklmnrstu");
    generate_close(g);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
}

/* If an allocation fails, opening or generating frees everything. */
static void every_failed_allocation_is_undone(void **state) {
    const fixture *f = *state;
    ott_generate_options o = options(NULL, 0, 1);
    logger log = {0};
    char path[160];
    snprintf(path, sizeof path, "%s/rowwise", f->folder);
    mem *account;
    text_generator *g;
    FIXTURE_OK(mem_open(&account));
    ott_status status = OTT_ERR_MEMORY;
    /* n takes growing steps, because the later allocations are all alike */
    for (int n = 1; status != OTT_OK; n += 1 + n / 16) {
        mem_fail_after(account, n);
        status = generate_open(account, &log, path, NULL, &o, &g);
        mem_fail_after(account, 0);
        if (status != OTT_OK) assert_int_equal(mem_read(account).now, 0);
    }
    generate_close(g);
    mem_close(account);
}

/* ---- a tokenizer ---- */

/* Writes a tokenizer with letters and some sequences of letters as tokens. A text begins with BOS. */
static void write_tokenizer(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}], \"normalizer\": null,"
        " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"post_processor\":"
        " {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": "
        "0}},"
        " {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<s>\": "
        "{\"id\":"
        " \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\":"
        " {\"type\": \"BPE\", \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\xc4\x8a\": 2",
        file);
    for (int c = 'a'; c <= 'z'; c++) fprintf(file, ", \"%c\": %d", c, c - 'a' + 3);
    fputs(", \"ab\": 29, \"cd\": 30, \"xyz\": 31, \"yz\": 32}, \"merges\": [\"a b\", \"c d\", \"y z\", \"x "
          "yz\"]}}",
          file);
    assert_int_equal(fclose(file), 0);
}

static void text_through_a_tokenizer(void **state) {
    const fixture *f = *state;
    static collected w;
    char tokens[160], data[160], path[160];
    snprintf(tokens, sizeof tokens, "--data.tokenizer_path=%s/tokenizer.json", f->folder);
    snprintf(data, sizeof data, "--data.dataset_path=%s/alphabet.txt", f->folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", f->folder);
    write_tokenizer(path);
    const char *more[] = {
        tokens, data, "--train.max_steps=60", "--train.batch_size=8", "--eval.enabled=false", NULL};
    FIXTURE_OK(fixture_run(
        f, &(run_options){.name = "tokens", .precision = &fixture_precisions[BF16], .more = more}));
    snprintf(path, sizeof path, "%s/tokens", f->folder);
    ott_generate_options o = options("cdefghijklmn", 0, 1);
    o.max_tokens = 20;
    FIXTURE_OK(generate_from(path, &o, &w, NULL));
    /* the tokens are op qrs tuv w xyz newline ab cd ef ...: a token may have several characters */
    assert_memory_equal(w.text, "cdefghijklmnopqrstuvwxyz\nabcdef", 31);
    assert_true(w.length > 12 + 20);
}

/* A conversation's next answer equals the continuation of a prompt that contains the conversation so far. */
static void a_conversation_is_the_text_of_its_template(void **state) {
    const fixture *f = *state;
    ott_generate_options o = options(NULL, 0, 1), plain = options("cdefghijkmn", 0, 1);
    mem *account;
    text_generator *g;
    logger log = {0};
    static collected w, once, both;
    char path[160];
    snprintf(path, sizeof path, "%s/chat_template.jinja", f->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{{ bos_token }}{% for m in messages %}{{ m.content }}{{ 'm' if m.role == 'user' }}{% endfor %}"
          "{{ '' if add_generation_prompt else 'z' }}",
          file);
    assert_int_equal(fclose(file), 0);
    snprintf(path, sizeof path, "%s/tokens", f->folder);
    o.max_tokens = plain.max_tokens = 6;
    o.chat = 1;
    plain.prompt = "cdem";
    FIXTURE_OK(generate_from(path, &plain, &once, NULL));
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(generate_open(account, &log, path, NULL, &o, &g));
    FIXTURE_OK(generate_continue(g, "cde", collect, &w));
    assert_string_equal(w.text, once.text + 4);
    char conversation[200];
    snprintf(conversation, sizeof conversation, "%.100sabm", once.text);
    int first = w.length;
    FIXTURE_OK(generate_continue(g, "ab", collect, &w));
    plain.prompt = conversation;
    FIXTURE_OK(generate_from(path, &plain, &both, NULL));
    assert_string_equal(w.text + first, both.text + strlen(conversation));
    generate_close(g);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    snprintf(path, sizeof path, "%s/chat_template.jinja", f->folder);
    assert_int_equal(remove(path), 0);
    snprintf(path, sizeof path, "%s/bf16", f->folder);
    o.prompt = "a";
    assert_int_equal(generate_from(path, &o, &w, NULL), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "a conversation needs a tokenizer with a chat template"));
}

/* A path to a run folder means the run's newest checkpoint. A checkpoint can also be named. */
static void a_checkpoint_can_be_named(void **state) {
    ott_generate_options o = options("The man", 1, 1);
    collected run = generate(*state, "tensorwise", &o);
    assert_same(run, generate(*state, "tensorwise/checkpoints/step-40", &o));
    assert_same(run, generate(*state, "tensorwise/checkpoints", &o));
}

/* ---- the precision ---- */

static void check_products(const fixture *f, const char *run, bool fp8) {
    static captured_log logged;
    static collected w;
    char path[160], expected[80];
    ott_generate_options o = options("The man", 1, 1);
    o.max_tokens = 5;
    snprintf(path, sizeof path, "%s/%s", f->folder, run);
    FIXTURE_OK(generate_from(path, &o, &w, &logged));
    /* the prompt's 7 tokens take 3 runs (4 + 2 + 1 tokens), then 4 of the new tokens take one run each */
    int all = (3 + 4) * 15;
    snprintf(expected, sizeof expected, "GEMMs run: %d, in FP8: %d\n", all, fp8 ? all : 0);
    if (!captured_log_has(&logged, expected)) fail_msg("%s: no \"%s\" in:\n%s", run, expected, logged.text);
}

static void products_are_those_of_the_run(void **state) {
    check_products(*state, "bf16", false);
    check_products(*state, "tensorwise", true);
    check_products(*state, "rowwise", true);
}

/* With precision bf16, no GEMM runs in FP8. A bf16 run with these weights generates the same text. */
static void bf16_on_request(void **state) {
    static captured_log logged;
    static collected asked;
    const fixture *f = *state;
    rig r;
    char path[160], source[160];
    ott_generate_options o = options("The man", 1, 1);
    snprintf(source, sizeof source, "%s/rowwise/checkpoints/step-40", f->folder);
    o.precision = OTT_GENERATE_BF16;
    FIXTURE_OK(generate_from(source, &o, &asked, &logged));
    assert_true(captured_log_has(&logged, "in FP8: 0\n"));
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[BF16]});
    FIXTURE_OK(trainer_load(r.t, source));
    rig_save(&r, f, "as-bf16", path);
    rig_close(&r);
    o.precision = OTT_GENERATE_AS_TRAINED;
    collected own;
    FIXTURE_OK(generate_from(path, &o, &own, NULL));
    assert_same(asked, own);
    FIXTURE_OK(generate_from(source, &o, &own, NULL));
    assert_true(differ(asked, own));
}

/* Generates with the same weights in several precisions. The texts differ, so the precision is really
   applied. */
static void precision_changes_the_numbers(void **state) {
    const fixture *f = *state;
    collected text[3];
    char path[160], source[160];
    ott_generate_options o = options("The man", 1, 1);
    o.max_tokens = 400;
    snprintf(source, sizeof source, "%s/bf16/checkpoints/step-40", f->folder);
    for (int i = 0; i < KINDS; i++) {
        rig r;
        rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[kinds[i]]});
        FIXTURE_OK(trainer_load(r.t, source));
        rig_save(&r, f, fixture_precisions[kinds[i]].arguments[0], path);
        rig_close(&r);
        FIXTURE_OK(generate_from(path, &o, &text[i], NULL));
        for (int j = 0; j < i; j++) assert_true(differ(text[i], text[j]));
    }
}

/* ---- errors ---- */

static void check_error(const char *path, const ott_generate_options *o, ott_status expected,
                        const char *says) {
    static collected w;
    ott_status status = generate_from(path, o, &w, NULL);
    if (status != expected || !strstr(status_text(), says) || strchr(status_text(), '\n'))
        fail_msg("%s and \"%s\" instead of %s and \"%s\"", status_name(status), status_text(),
                 status_name(expected), says);
    assert_int_equal(w.pieces, 0); /* nothing is written before all checks have passed */
    assert_int_equal(status_exit_code(status), 2);
}

static void bad_requests(void **state) {
    const fixture *f = *state;
    char path[160], missing[160];
    ott_generate_options good = options("The man", 1, 1), empty = options("", 1, 1);
    snprintf(path, sizeof path, "%s/bf16", f->folder);
    check_error(path, &empty, OTT_ERR_ARGUMENT, "the prompt is empty");
    snprintf(missing, sizeof missing, "%s/nowhere", f->folder);
    check_error(missing, &good, OTT_ERR_NOT_FOUND, "nowhere");
    check_error(f->folder, &good, OTT_ERR_NOT_FOUND, f->folder); /* the folder has no checkpoints */
    check_error(f->text, &good, OTT_ERR_NOT_FOUND, "text.txt");  /* the path is a file */
}

/* A model with 64 token ids has no ids for letters. */
static void prompt_outside_the_vocabulary(void **state) {
    const fixture *f = *state;
    const char *more[] = {"--model.vocab_size=64", "--data.dataset_path=", "--data.format=synthetic",
                          "--eval.enabled=false", NULL};
    char path[160];
    ott_generate_options o = options("123 x", 1, 1);
    FIXTURE_OK(fixture_run(
        f, &(run_options){.name = "numbers", .precision = &fixture_precisions[BF16], .more = more}));
    snprintf(path, sizeof path, "%s/numbers", f->folder);
    check_error(path, &o, OTT_ERR_ARGUMENT, "the prompt has byte 120");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_continues_what_it_learnt),
        cmocka_unit_test(same_seed_same_text),
        cmocka_unit_test(greedy_is_the_most_likely),
        cmocka_unit_test(a_longer_text_begins_alike),
        cmocka_unit_test(long_prompts_are_truncated_to_the_window),
        cmocka_unit_test(continuing_equals_a_new_prompt),
        cmocka_unit_test(a_full_window_keeps_half),
        cmocka_unit_test(long_texts_continue),
        cmocka_unit_test(a_stop_text_ends_it),
        cmocka_unit_test(a_penalty_avoids_generated_tokens),
        cmocka_unit_test(turns_make_one_text),
        cmocka_unit_test(every_failed_allocation_is_undone),
        cmocka_unit_test(text_through_a_tokenizer),
        cmocka_unit_test(a_conversation_is_the_text_of_its_template),
        cmocka_unit_test(a_checkpoint_can_be_named),
        cmocka_unit_test(products_are_those_of_the_run),
        cmocka_unit_test(bf16_on_request),
        cmocka_unit_test(precision_changes_the_numbers),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(prompt_outside_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
