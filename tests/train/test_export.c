/* Exporting a run: checks which checkpoint is exported, which exports are refused, and that a failure leaves
   no files. */
#define _GNU_SOURCE
#include "export/export.h"
#include "base/file/file.h"
#include "fp8/cast.h"
#include "formats/safetensors/shards.h"
#include "support/gguf_reader.h"
#include "export/export_gguf.h"
#include "backend/open.h"
#include "run/inference.h"
#include "tokenizer/chat.h"
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
    char summary[1024], path[200];
} exported;

static ott_export_options options_of(ott_export_format format) {
    return (ott_export_options){
        .struct_size = sizeof(ott_export_options), .format = format, .dtype = OTT_BF16};
}

/* Exports FOLDER/run to FOLDER/goal. All memory must be freed afterwards. */
static exported export_to(const fixture *f, const char *run, const char *goal, const ott_export_options *o) {
    exported e;
    char from[200];
    mem *account;
    snprintf(from, sizeof from, "%s/%s", f->folder, run);
    snprintf(e.path, sizeof e.path, "%s/%s", f->folder, goal);
    FIXTURE_OK(mem_open(&account));
    str summary = {.account = account};
    e.status = export_run(account, NULL, from, e.path, o, &summary);
    snprintf(e.summary, sizeof e.summary, "%s", e.status == OTT_OK ? summary.text : status_text());
    str_free(&summary);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return e;
}

static void assert_exported(const exported *e, ott_status expected, const char *part) {
    if (e->status != expected || !strstr(e->summary, part))
        fail_msg("\"%s\" instead of \"%s\"", e->summary, part);
}

/* Checks that no file or folder next to the runs has a name that contains `part`. */
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

/* ---- the exported checkpoint ---- */

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

/* The messages name the exported checkpoint, and the exported folder has the checkpoint's weights. */
static void test_the_newest_checkpoint_or_the_one_given(void **state) {
    const fixture *f = *state;
    const ott_export_options o = options_of(OTT_EXPORT_HF);
    exported newest = export_to(f, "bf16", "newest", &o);
    char checkpoint[300], *at;
    assert_exported(&newest, OTT_OK, "bf16/checkpoints/step-");
    at = strstr(newest.summary, "checkpoints/");
    snprintf(checkpoint, sizeof checkpoint, "%s/bf16/%.*s", f->folder, (int)strcspn(at, " "), at);
    compare_with_masters(checkpoint, newest.path);
    exported second = export_to(f, "bf16/checkpoints/step-2", "second/", &o);
    assert_exported(&second, OTT_OK, "Exported");
    snprintf(checkpoint, sizeof checkpoint, "%s/bf16/checkpoints/step-2", f->folder);
    compare_with_masters(checkpoint, second.path);
    assert_nothing_aside(f, "tmp");
}

static void test_as_trained_takes_the_recipe_of_the_run(void **state) {
    const fixture *f = *state;
    ott_export_options o = options_of(OTT_EXPORT_HF_FP8);
    o.granularity = OTT_EXPORT_AS_TRAINED;
    exported e = export_to(f, "rowwise", "trained", &o);
    assert_exported(&e, OTT_ERR_UNSUPPORTED, "compressed-tensors");
    o.method = OTT_EXPORT_COMPRESSED_TENSORS;
    e = export_to(f, "rowwise", "trained", &o);
    assert_exported(&e, OTT_OK, "one scale per output channel");
    assert_exported(&e, OTT_OK, "the same as in training");
    e = export_to(f, "bf16", "none", &o);
    assert_exported(&e, OTT_ERR_UNSUPPORTED, "no matrix of this run ran in FP8");
    assert_nothing_aside(f, "none");
}

/* A model that is loaded from an FP8 folder uses the folder's codes under every precision. */
static void test_codes_of_a_folder_stay(void **state) {
    const fixture *f = *state;
    ott_export_options o = options_of(OTT_EXPORT_HF_FP8);
    o.method = OTT_EXPORT_COMPRESSED_TENSORS;
    o.granularity = OTT_EXPORT_CHANNEL;
    exported e = export_to(f, "bf16", "codes", &o);
    assert_exported(&e, OTT_OK, "one scale per output channel");
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
        const model_module *module = &m->modules.items[i];
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

/* ---- refused exports ---- */

static void test_a_folder_in_use_is_refused(void **state) {
    const fixture *f = *state;
    const ott_export_options o = options_of(OTT_EXPORT_HF);
    char path[200];
    snprintf(path, sizeof path, "%s/empty", f->folder);
    FIXTURE_OK(file_make_folder(path));
    exported e = export_to(f, "bf16", "empty", &o);
    assert_exported(&e, OTT_OK, "Exported");
    e = export_to(f, "bf16", "empty", &o);
    assert_exported(&e, OTT_ERR_ARGUMENT, "empty is not empty");
    e = export_to(f, "bf16", "bf16", &o);
    assert_exported(&e, OTT_ERR_ARGUMENT, "bf16 is not empty");
    e = export_to(f, "bf16", "bf16/config.toml", &o);
    assert_exported(&e, OTT_ERR_ARGUMENT, "is a file");
}

static void test_what_is_not_there(void **state) {
    const fixture *f = *state;
    ott_export_options o = options_of(OTT_EXPORT_HF);
    exported e = export_to(f, "absent", "out", &o);
    assert_exported(&e, OTT_ERR_NOT_FOUND, "absent");
    o.from = "no-such-folder";
    e = export_to(f, "bf16", "out", &o);
    assert_exported(&e, OTT_ERR_NOT_FOUND, "no-such-folder");
    assert_nothing_aside(f, "out");
    o.from = "";
    e = export_to(f, "bf16", "without", &o);
    assert_exported(&e, OTT_OK, "no Hugging Face folder and no tokenizer");
}

/* ---- GGUF ---- */

static void test_a_gguf_file(void **state) {
    const fixture *f = *state;
    ott_export_options o = options_of(OTT_EXPORT_GGUF);
    exported e = export_to(f, "bf16", "run.gguf", &o);
    assert_exported(&e, OTT_OK, "Architecture: llama");
    assert_exported(&e, OTT_OK, "Weights: bf16");
    assert_exported(&e, OTT_OK, "Tokenizer: every byte is a token");
    gguf_reader g = gguf_reader_open(e.path);
    const gguf_value *tokens = gguf_reader_find(&g, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->count, gguf_reader_number(&g, "llama.vocab_size"));
    assert_true(gguf_reader_item_is(tokens, 'A', "A"));
    assert_true(gguf_reader_item_is(tokens, ' ', "\u0120"));
    assert_int_equal(gguf_reader_tensor(&g, "token_embd.weight")->type, GGUF_BF16);
    gguf_reader_close(&g);
    e = export_to(f, "bf16", "run.gguf", &o);
    assert_exported(&e, OTT_ERR_ARGUMENT, "run.gguf exists");
    o.from = "";
    e = export_to(f, "bf16", "ids.gguf", &o);
    assert_exported(&e, OTT_OK, "Tokenizer: none");
    g = gguf_reader_open(e.path);
    assert_true(gguf_reader_says(&g, "tokenizer.ggml.model", "none"));
    gguf_reader_close(&g);
    o.format = OTT_EXPORT_GGUF_Q8;
    e = export_to(f, "bf16", "q8.gguf", &o);
    assert_exported(&e, OTT_OK, "Weights: Q8_0");
    assert_nothing_aside(f, "tmp");
}

/* A tokenizer.json in four parts: the normalizer, the pre-tokenizer, the post-processor, the model. */
#define JSON(normalizer, pre, post, model)                                                                   \
    "{\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"special\":true},"                                    \
    "{\"id\":6,\"content\":\"<t>\",\"special\":false}],\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre \
    ",\"post_processor\":" post ",\"decoder\":null,\"model\":{\"type\":\"BPE\"," model "}}"
#define LLAMA3                                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "                   \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(regex)                                                                                         \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex          \
    "\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}" \
    "]}"
#define BOS                                                                                                  \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{"       \
    "\"id\":\"A\"}}],"                                                                                       \
    "\"special_tokens\":{\"<s>\":{\"ids\":[5]}}}"
#define BYTE_LEVEL                                                                                           \
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\u0120\":3,\"\u0120ab\":4},\"merges\":[[\"a\",\"b\"],["           \
    "\"\u0120\",\"ab\"]]"

/* Makes a folder with the tokenizer.json `json`, and writes the folder's GGUF metadata to the file `path`. */
static ott_status describe(const fixture *f, const char *json, int64_t vocab, char path[200]) {
    char folder[200], file[300];
    mem *account;
    gguf_writer *w;
    FIXTURE_OK(mem_open(&account));
    config *cfg = fixture_config(f, account, "none", &fixture_precisions[BF16], NULL);
    gguf_metadata m = {.bytes = {.account = account}};
    str summary = {.account = account};
    snprintf(folder, sizeof folder, "%s/tokenizer", f->folder);
    FIXTURE_OK(file_make_folder(folder));
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    FIXTURE_OK(file_write_atomic(file, json, (int64_t)strlen(json)));
    snprintf(file, sizeof file, "%s/tokenizer_config.json", folder);
    static const char tokenizer_config[] =
        "{\"bos_token\":\"<s>\",\"eos_token\":\"<t>\",\"chat_template\":\"{{ x }}\"}";
    FIXTURE_OK(file_write_atomic(file, tokenizer_config, sizeof tokenizer_config - 1));
    ott_status status = export_gguf_tokenizer(account, NULL, cfg, folder, vocab, &m, &summary);
    snprintf(path, 200, "%s/tokenizer.gguf", f->folder);
    if (status == OTT_OK) status = gguf_writer_open(account, path, &m, NULL, 0, &w);
    if (status == OTT_OK) status = gguf_writer_commit(w);
    gguf_metadata_free(&m);
    str_free(&summary);
    config_close(cfg);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return status;
}

/* Fails unless the GGUF file gives the ids and the special ids of the folder that `describe` made. */
static void assert_reads_back(const fixture *f, const char *path, const char *text) {
    char folder[200];
    mem *account;
    tokenizer *t[2];
    tokenizer_scratch *scratch;
    tokenizer_ids ids[2];
    snprintf(folder, sizeof folder, "%s/tokenizer", f->folder);
    FIXTURE_OK(mem_open(&account));
    for (int i = 0; i < 2; i++) {
        ids[i] = (tokenizer_ids){.account = account};
        FIXTURE_OK(tokenizer_open(account, i ? path : folder, &t[i]));
        FIXTURE_OK(tokenizer_scratch_open(account, t[i], &scratch));
        FIXTURE_OK(tokenizer_encode(t[i], scratch, text, (int64_t)strlen(text),
                                    TOKENIZER_ADD_SPECIAL | TOKENIZER_MATCH_SPECIAL, &ids[i]));
        tokenizer_scratch_close(scratch);
    }
    assert_int_equal(ids[0].count, ids[1].count);
    assert_memory_equal(ids[0].ids, ids[1].ids, (size_t)ids[0].count * sizeof *ids[0].ids);
    assert_int_equal(tokenizer_bos(t[0]), tokenizer_bos(t[1]));
    assert_int_equal(tokenizer_eos(t[0]), tokenizer_eos(t[1]));
    str found = {.account = account};
    FIXTURE_OK(chat_read(account, t[1], &found));
    assert_string_equal(found.text, "{{ x }}");
    str_free(&found);
    for (int i = 0; i < 2; i++) {
        tokenizer_close(t[i]);
        tokenizer_ids_free(&ids[i]);
    }
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
}

static void assert_items(const gguf_reader *g, const char *key, const double *expected, int count) {
    const gguf_value *list = gguf_reader_find(g, key);
    assert_int_equal(list->count, count);
    for (int i = 0; i < count; i++) assert_true(gguf_reader_item(list, i) == expected[i]);
}

static void test_a_byte_level_tokenizer(void **state) {
    char path[200];
    FIXTURE_OK(
        describe(*state, JSON("null", SPLIT(LLAMA3), BOS, "\"ignore_merges\":true," BYTE_LEVEL), 8, path));
    gguf_reader g = gguf_reader_open(path);
    static const double types[] = {1, 1, 1, 1, 1, 3, 4, 5};
    const gguf_value *tokens = gguf_reader_find(&g, "tokenizer.ggml.tokens");
    assert_true(gguf_reader_says(&g, "tokenizer.ggml.model", "gpt2"));
    assert_true(gguf_reader_says(&g, "tokenizer.ggml.pre", "llama-bpe"));
    assert_true(gguf_reader_item_is(tokens, 4, "\u0120ab") && gguf_reader_item_is(tokens, 7, "[PAD7]"));
    assert_items(&g, "tokenizer.ggml.token_type", types, 8);
    assert_true(gguf_reader_item_is(gguf_reader_find(&g, "tokenizer.ggml.merges"), 1, "\u0120 ab"));
    assert_int_equal(gguf_reader_number(&g, "tokenizer.ggml.bos_token_id"), 5);
    assert_int_equal(gguf_reader_number(&g, "tokenizer.ggml.eos_token_id"), 6);
    assert_int_equal(gguf_reader_number(&g, "tokenizer.ggml.add_bos_token"), 1);
    assert_int_equal(gguf_reader_number(&g, "tokenizer.ggml.add_eos_token"), 0);
    assert_true(gguf_reader_says(&g, "tokenizer.chat_template", "{{ x }}"));
    gguf_reader_close(&g);
    assert_reads_back(*state, path, "ab <s>a b abab<t> a  b<s>");
}

/* Llama 3's split pattern without its rule for full words is not recognized as Llama 3's pre-tokenizer, nor
   as GPT-2's. */
static void test_names_of_pre_tokenizers(void **state) {
    static const char *const cases[][2] = {
        {JSON("null", SPLIT(LLAMA3), "null", BYTE_LEVEL), "dbrx"},
        {JSON("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "null", BYTE_LEVEL), "gpt-2"},
        {JSON("{\"type\":\"NFC\"}",
              "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
              "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}",
              "null", BYTE_LEVEL),
         "starcoder"}};
    for (int i = 0; i < 3; i++) {
        char path[200];
        FIXTURE_OK(describe(*state, cases[i][0], 7, path));
        gguf_reader g = gguf_reader_open(path);
        assert_true(gguf_reader_says(&g, "tokenizer.ggml.pre", cases[i][1]));
        assert_int_equal(gguf_reader_number(&g, "tokenizer.ggml.add_bos_token"), 0);
        gguf_reader_close(&g);
        assert_reads_back(*state, path, "ab <s>a b abab<t> a  b<s>");
    }
}

/* In the GGUF file, tokens of earlier merges must have higher scores. */
static void test_a_sentencepiece_tokenizer(void **state) {
    char path[200];
    FIXTURE_OK(describe(
        *state,
        JSON("null", "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"first\"}",
             "null",
             "\"byte_fallback\":true,\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"<0x41>\":1,\"a\":2,"
             "\"\u2581\":3,\"\u2581a\":4,\"aa\":7},\"merges\":[\"a a\",\"\u2581 a\"]"),
        8, path));
    gguf_reader g = gguf_reader_open(path);
    static const double types[] = {2, 6, 1, 1, 1, 3, 4, 1}, scores[] = {-3, -3, -3, -3, -1, -3, -3, 0};
    assert_true(gguf_reader_says(&g, "tokenizer.ggml.model", "llama"));
    assert_items(&g, "tokenizer.ggml.token_type", types, 8);
    assert_items(&g, "tokenizer.ggml.scores", scores, 8);
    assert_int_equal(gguf_reader_number(&g, "tokenizer.ggml.add_space_prefix"), 1);
    assert_int_equal(gguf_reader_number(&g, "tokenizer.ggml.unknown_token_id"), 0);
    gguf_reader_close(&g);
    assert_reads_back(*state, path, "a aa  aA a"); /* llama.cpp adds a space after a special token, too */
}

static void test_tokenizers_that_gguf_cannot_say(void **state) {
    static const char *const cases[] = {
        JSON("null", SPLIT("[a-z]+|[^a-z]"), "null", BYTE_LEVEL),
        JSON("{\"type\":\"Lowercase\"}", SPLIT(LLAMA3), "null", BYTE_LEVEL),
        JSON("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "null", BYTE_LEVEL),
        JSON("null", "null", "null", BYTE_LEVEL)};
    char path[200];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(describe(*state, cases[i], 7, path), OTT_ERR_UNSUPPORTED);
        assert_non_null(strstr(status_text(), "how the tokenizer splits a text"));
    }
    assert_int_equal(describe(*state, JSON("null", SPLIT(LLAMA3), "null", BYTE_LEVEL), 6, path),
                     OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "has 7 tokens, but the model has 6"));
}

/* Exports with a small limit of file sizes, so that writes fail as on a full disk. */
static void check_full_disk(const fixture *f, ott_export_format format) {
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {4096, 4096};
        const ott_export_options o = options_of(format);
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
        exported e = export_to(f, "bf16", "full", &o);
        _exit(e.status == OTT_ERR_IO && strstr(e.summary, "cannot export to") ? 0 : 1);
    }
    int ended = -1;
    assert_true(child > 0 && waitpid(child, &ended, 0) == child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    assert_nothing_aside(f, "full");
}

static void test_a_full_disk_leaves_nothing(void **state) {
    check_full_disk(*state, OTT_EXPORT_HF);
    check_full_disk(*state, OTT_EXPORT_GGUF);
}

static void remove_export(const char *goal) {
    if (file_is_folder(goal))
        FIXTURE_OK(file_remove_tree(goal));
    else
        assert_int_equal(unlink(goal), 0);
}

/* Repeats an export; in each repetition a later allocation fails. The export returns an error, frees all
   memory and leaves no folder. */
static void check_no_memory(const fixture *f, ott_export_format format) {
    char run[200], goal[200];
    ott_export_options o = options_of(format);
    snprintf(run, sizeof run, "%s/rowwise", f->folder);
    snprintf(goal, sizeof goal, "%s/starved", f->folder);
    for (int64_t n = 1;; n += 1 + n / 16) {
        mem *account;
        FIXTURE_OK(mem_open(&account));
        str summary = {.account = account};
        mem_fail_after(account, n);
        ott_status status = export_run(account, NULL, run, goal, &o, &summary);
        mem_fail_after(account, 0);
        bool complete = str_finish(&summary) == OTT_OK;
        str_free(&summary);
        assert_int_equal(mem_read(account).now, 0);
        mem_close(account);
        if (status == OTT_OK) {
            remove_export(goal);
            if (complete) break;
            continue;
        }
        assert_false(file_exists(goal));
        assert_nothing_aside(f, "starved");
    }
}

static void test_no_memory_leaves_nothing(void **state) {
    check_no_memory(*state, OTT_EXPORT_HF_FP8);
    check_no_memory(*state, OTT_EXPORT_GGUF_Q8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_checkpoint_or_the_one_given),
        cmocka_unit_test(test_as_trained_takes_the_recipe_of_the_run),
        cmocka_unit_test(test_codes_of_a_folder_stay),
        cmocka_unit_test(test_a_folder_in_use_is_refused),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_a_gguf_file),
        cmocka_unit_test(test_a_byte_level_tokenizer),
        cmocka_unit_test(test_names_of_pre_tokenizers),
        cmocka_unit_test(test_a_sentencepiece_tokenizer),
        cmocka_unit_test(test_tokenizers_that_gguf_cannot_say),
        cmocka_unit_test(test_a_full_disk_leaves_nothing),
        cmocka_unit_test(test_no_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, open_runs, fixture_teardown);
}
