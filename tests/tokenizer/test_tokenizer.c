/*
 * Tests tokenizers through their public functions: opening, flags, errors in texts, BOS and EOS, decoding,
 * threads.
 */
#include "tokenizer/tokenizer_case.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MERGES "t h|th e|\xc4\xa0 the|a n|an d|\xc4\xa0 and|l l|ll ll|a a|aa aa|aaaa aaaa"
#define MARK   "\xe2\x96\x81"

static json_t *with_added(json_t *root) {
    case_set(root, "added_tokens",
             "[{\"id\": 1000, \"content\": \"<s>\", \"special\": true, \"normalized\": false},"
             " {\"id\": 1002, \"content\": \"</s>\", \"special\": true, \"normalized\": false},"
             " {\"id\": 1001, \"content\": \"<tool>\", \"special\": false, \"normalized\": false}]");
    return root;
}

static json_t *with_template(json_t *root) {
    case_set(root, "post_processor",
             "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}},"
             " {\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": \"</s>\"}}],"
             " \"special_tokens\": {\"<s>\": {\"ids\": [1000]}, \"</s>\": {\"ids\": [1002]}}}");
    return root;
}

static void opens_a_folder_or_a_file(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, with_added(case_bytes(MERGES))), *other;
    assert_int_equal(tokenizer_vocab(t), 1003);
    assert_string_equal(tokenizer_path(t), folder_file(f, "tokenizer.json"));
    assert_string_equal(tokenizer_token(t, 257), "the");
    assert_string_equal(tokenizer_token(t, 1001), "<tool>");
    assert_null(tokenizer_token(t, 999));
    assert_null(tokenizer_token(t, 1003));
    assert_null(tokenizer_token(t, -1));
    assert_int_equal(tokenizer_find(t, "\xc4\xa0the"), 258);
    assert_int_equal(tokenizer_find(t, "</s>"), 1002);
    assert_int_equal(tokenizer_find(t, "absent"), -1);
    assert_true(tokenizer_is_special(t, 1000));
    assert_false(tokenizer_is_special(t, 1001) || tokenizer_is_special(t, 5) || tokenizer_is_special(t, -1));
    assert_int_equal(tokenizer_open(f->account, f->path, &other), OTT_OK);
    assert_string_equal(tokenizer_path(other), tokenizer_path(t));
    tokenizer_close(other);
    tokenizer_close(t);
    tokenizer_close(NULL);
    tokenizer_scratch_close(NULL);
}

static void says_what_is_not_there(void **state) {
    folder *f = *state;
    tokenizer *t;
    assert_int_equal(tokenizer_open(f->account, f->path, &t), OTT_ERR_NOT_FOUND);
    assert_null(t);
    assert_error_names("has no tokenizer.json");
    assert_int_equal(tokenizer_open(f->account, folder_file(f, "absent.json"), &t), OTT_ERR_NOT_FOUND);
}

static void flags_choose_the_special_tokens(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, with_template(with_added(case_bytes(MERGES))));
    const char *text = "the<s><tool> and";
    assert_tokens(f, t, text, 0,
                  "the|<|s|>|<tool>|\xc4\xa0"
                  "and");
    assert_tokens(f, t, text, TOKENIZER_MATCH_SPECIAL,
                  "the|<s>|<tool>|\xc4\xa0"
                  "and");
    assert_tokens(f, t, "the", TOKENIZER_ADD_SPECIAL, "<s>|the|</s>");
    assert_tokens(f, t, "", TOKENIZER_ADD_SPECIAL, "<s>|</s>");
    assert_tokens(f, t, "", TOKENIZER_MATCH_SPECIAL, "");
    tokenizer_close(t);
}

static void assert_repeats(folder *f, const tokenizer *t, const char *part, const char *tokens, int times) {
    char text[1024] = "", expected[4096] = "";
    for (int i = 0; i < times; i++) {
        strcat(text, part);
        strcat(strcat(expected, i ? "|" : ""), tokens);
    }
    assert_tokens(f, t, text, 0, expected);
}

/* Merges are applied in the order of their ranks, not from left to right. Texts of many symbols use a heap,
   short texts do not. */
static void merges_in_order_of_rank(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, case_bytes("b c|a b|a bc|a a|aa aa|aaaa aaaa|bc d|x y|z x"));
    for (int times = 1; times < 100; times += 33) {
        assert_repeats(f, t, "abc", "abc", times); /* "a b" merges before "a bc" can */
        assert_repeats(f, t, "bcd", "bcd", times);
        assert_repeats(f, t, "aabd", "a|ab|d", times);
        assert_repeats(f, t, "zxyzx", "z|xy|zx", times);
    }
    assert_tokens(f, t, "aaaaa", 0, "aaaa|a");
    char text[1004], expected[2048] = "";
    memset(text, 'a', 1003);
    text[1003] = '\0';
    for (int i = 0; i < 125; i++) strcat(expected, "aaaaaaaa|");
    assert_tokens(f, t, text, 0, strcat(expected, "aa|a"));
    tokenizer_close(t);
}

/* Words are encoded separately only if no merge joins tokens of two words. */
static void merges_across_spaces(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, case_characters("a " MARK "|" MARK " b|" MARK " " MARK));
    assert_tokens(f, t, "a b a", 0, MARK "|a" MARK "|b|" MARK "|a");
    tokenizer_close(t);
    t = case_open(f, case_characters(MARK " b|" MARK " " MARK));
    assert_tokens(f, t, "a b  b", 0, MARK "|a|" MARK "b|" MARK "|" MARK "b");
    tokenizer_close(t);
}

/* With prepend_scheme "first", U+2581 is added before the full text, not before each piece. */
static void marks_the_beginning_only(void **state) {
    folder *f = *state;
    json_t *root = case_characters("");
    case_set(
        root, "pre_tokenizer",
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"String\": \"x\"},"
        " \"behavior\": \"Isolated\"}, {\"type\": \"Metaspace\", \"replacement\": \"" MARK "\","
        " \"prepend_scheme\": \"first\"}]}");
    tokenizer *t = case_open(f, root);
    assert_tokens(f, t, "axb", 0, MARK "|a|x|b");
    assert_tokens(f, t, " ax b", 0, MARK "|a|x|" MARK "|b");
    tokenizer_close(t);
}

static void added_tokens_swallow_white_space(void **state) {
    folder *f = *state;
    json_t *root = case_bytes("");
    case_set(
        root, "added_tokens",
        "[{\"id\": 300, \"content\": \"<A>\", \"lstrip\": true, \"rstrip\": true, \"normalized\": false},"
        " {\"id\": 301, \"content\": \"on\", \"single_word\": true, \"normalized\": false}]");
    tokenizer *t = case_open(f, root);
    assert_tokens(f, t, "x\xe3\x80\x80\xe2\x80\x83\xc2\x85 \t<A>\xc2\xa0\xe1\x9a\x80\n<A>\xe2\x80\xa8y", 0,
                  "x|<A>|<A>|y");
    /* U+180E does not count as white space */
    assert_tokens(f, t, "x\xe1\xa0\x8e<A>", 0, "x|\xc3\xa1|\xc5\x82|\xc4\xb0|<A>");
    assert_tokens(f, t, "on.on", 0, "on|.|on");
    assert_tokens(f, t, "on_ on1", 0, "o|n|_|\xc4\xa0|o|n|1");
    tokenizer_close(t);
}

static void refuses_texts(void **state) {
    folder *f = *state;
    json_t *root = case_json("abc ", "a b");
    tokenizer *t = case_open(f, root);
    tokenizer_scratch *s;
    tokenizer_ids ids = {.account = f->account};
    assert_int_equal(tokenizer_scratch_open(f->account, t, &s), OTT_OK);
    assert_int_equal(tokenizer_encode(t, s, "cab", 3, 0, &ids), OTT_OK);
    assert_int_equal(ids.count, 2);
    assert_int_equal(tokenizer_encode(t, s, "abc\xc3(", 5, 0, &ids), OTT_ERR_FORMAT);
    assert_error_names("not UTF-8: byte 3 (0xc3)");
    assert_int_equal(tokenizer_encode(t, s, "ab\xe2\x82\xac", 5, 0, &ids), OTT_ERR_FORMAT);
    assert_error_names("'\xe2\x82\xac' (hexadecimal e282ac) has no token");
    assert_int_equal(tokenizer_encode(t, s, "ab", -1, 0, &ids), OTT_ERR_ARGUMENT);
    assert_int_equal(tokenizer_encode(t, s, NULL, 1, 0, &ids), OTT_ERR_ARGUMENT);
    assert_int_equal(tokenizer_encode(t, s, "ab", TOKENIZER_TEXT_LIMIT + 1, 0, &ids), OTT_ERR_ARGUMENT);
    assert_int_equal(ids.count, 2); /* the failed calls have not changed the ids */
    assert_int_equal(tokenizer_encode(t, s, NULL, 0, 0, &ids), OTT_OK);
    assert_int_equal(tokenizer_encode(t, s, "ab", 2, 0, &ids), OTT_OK);
    assert_int_equal(ids.count, 3);
    assert_string_equal(tokenizer_token(t, ids.ids[2]), "ab");
    tokenizer_ids_free(&ids);
    tokenizer_scratch_close(s);
    tokenizer_close(t);
}

/* If a pattern backtracks endlessly, encoding returns an error. */
static void gives_up_on_endless_patterns(void **state) {
    folder *f = *state;
    json_t *root = case_bytes("");
    case_set(
        root, "pre_tokenizer",
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\":"
        " \"(x+x+)+[yz]\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", \"use_regex\": false}]}");
    tokenizer *t = case_open(f, root);
    char *ids = case_ids(f, t, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", -1, 0);
    assert_non_null(strstr(ids, "fails at byte 0"));
    free(ids);
    tokenizer_close(t);
}

/* ---- the ends of a text ---- */

static void reads_the_neighboring_files(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, with_template(with_added(case_bytes(MERGES))));
    assert_int_equal(tokenizer_bos(t), 1000); /* the BOS that the post-processor adds */
    assert_int_equal(tokenizer_eos(t), 1002);
    assert_true(tokenizer_is_stop(t, 1002));
    assert_false(tokenizer_is_stop(t, 1000) || tokenizer_is_stop(t, -1));
    tokenizer_close(t);

    folder_write_text(f, "generation_config.json",
                      "{\"bos_token_id\": 3, \"eos_token_id\": [4, 5, 70000, \"x\"]}");
    t = case_open(f, with_template(with_added(case_bytes(MERGES))));
    assert_int_equal(tokenizer_bos(t), 3);
    assert_int_equal(tokenizer_eos(t), 4);
    assert_true(tokenizer_is_stop(t, 4) && tokenizer_is_stop(t, 5) && !tokenizer_is_stop(t, 70000));
    assert_tokens(f, t, "the", TOKENIZER_ADD_SPECIAL, "<s>|the|</s>");
    tokenizer_close(t);

    folder_write_text(f, "special_tokens_map.json",
                      "{\"bos_token\": {\"content\": \"<tool>\"}, \"eos_token\": null}");
    t = case_open(f, with_added(case_bytes(MERGES)));
    assert_int_equal(tokenizer_bos(t), 1001);
    assert_int_equal(tokenizer_eos(t), 4);
    tokenizer_close(t);

    folder_write_text(f, "tokenizer_config.json",
                      "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_bos_token\": true,"
                      " \"model_max_length\": 1000000000000000019884624838656}");
    t = case_open(f, with_added(case_bytes(MERGES)));
    assert_int_equal(tokenizer_bos(t), 1000);
    assert_int_equal(tokenizer_eos(t), 1002);
    assert_true(tokenizer_is_stop(t, 1002) && tokenizer_is_stop(t, 5));
    assert_tokens(f, t, "the", TOKENIZER_ADD_SPECIAL, "<s>|the");
    tokenizer_close(t);
}

static void configuration_decides_over_the_template(void **state) {
    folder *f = *state;
    folder_write_text(f, "tokenizer_config.json",
                      "{\"bos_token\": \"<s>\", \"add_bos_token\": false}"); /* the file names no EOS token */
    tokenizer *t = case_open(f, with_template(with_added(case_bytes(MERGES))));
    assert_tokens(f, t, "the", TOKENIZER_ADD_SPECIAL, "the|</s>");
    tokenizer_close(t);
}

static void refuses_bad_neighboring_files(void **state) {
    folder *f = *state;
    tokenizer *t;
    folder_write_text(f, "generation_config.json", "{\"eos_token_id\": ");
    assert_int_equal(tokenizer_open(f->account, case_write(f, case_bytes(MERGES)), &t), OTT_ERR_FORMAT);
    assert_error_names("/generation_config.json: invalid JSON");
}

/* ---- decoding ---- */

static void push(tokenizer_stream *s, const tokenizer *t, const char *name, str *out) {
    assert_int_equal(tokenizer_stream_push(s, tokenizer_find(t, name), out), OTT_OK);
}

static void streams_complete_characters(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, case_bytes(MERGES));
    str out = {.account = f->account};
    tokenizer_stream s = tokenizer_stream_start(t, false);
    push(&s, t, "the", &out);
    push(&s, t, "\xc3\xb0", &out); /* the first of the bytes f0 9f 98 80 of U+1F600 */
    push(&s, t, "\xc5\x81", &out);
    push(&s, t, "\xc4\xba", &out);
    assert_string_equal(out.text, "the");
    push(&s, t, "\xc4\xa2", &out);
    assert_string_equal(out.text, "the\xf0\x9f\x98\x80");
    push(&s, t, "\xc3\xa2", &out); /* incomplete: "a" follows; below: at the end */
    push(&s, t, "a", &out);
    assert_string_equal(out.text, "the\xf0\x9f\x98\x80\xef\xbf\xbd"
                                  "a");
    push(&s, t, "\xc3\xa2", &out);
    assert_int_equal(tokenizer_stream_finish(&s, &out), OTT_OK);
    assert_string_equal(out.text, "the\xf0\x9f\x98\x80\xef\xbf\xbd"
                                  "a\xef\xbf\xbd");
    str_free(&out);
    tokenizer_close(t);
}

/* Decoding writes one U+FFFD for an incomplete sequence, and one for each byte that cannot begin a
   sequence. */
static void replaces_what_is_no_utf8(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, case_bytes(""));
    static const struct {
        const char *bytes, *text; /* in text, ! means U+FFFD */
    } cases[] = {{"\xf0\x9f\x98z", "!z"}, {"\xe0\x80\x80", "!!!"}, {"\xed\xa0\x80", "!!!"},
                 {"\x80\xff", "!!"},      {"\xf4\x90", "!!"},      {"\xe2\x82\xe2\x82\xac", "!\xe2\x82\xac"},
                 {"\xc0\xaf", "!!"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char ids[128] = "", expected[64] = "";
        for (const unsigned char *p = (const unsigned char *)cases[i].bytes; *p; p++)
            sprintf(ids + strlen(ids), " %d", *p); /* in case_bytes the id of a byte is the byte */
        for (const char *p = cases[i].text; *p; p++)
            sprintf(expected + strlen(expected), "%.*s", *p == '!' ? 3 : 1, *p == '!' ? "\xef\xbf\xbd" : p);
        assert_decodes(f, t, ids, false, expected, -1, true);
    }
    tokenizer_close(t);
}

static void decodes_byte_tokens(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, case_characters(""));
    const int a = tokenizer_find(t, "a"), mark = tokenizer_find(t, MARK), e2 = 3 + 0xe2;
    char ids[128];
    sprintf(ids, "%d %d %d %d %d", mark, e2, 3 + 0x82, 3 + 0xac, a);
    assert_decodes(f, t, ids, false,
                   "\xe2\x82\xac"
                   "a",
                   -1, true);
    sprintf(ids, "1 %d %d %d 2", e2, 3 + 0x82, a); /* two bytes that are no UTF-8 become one U+FFFD each */
    assert_decodes(f, t, ids, false,
                   "<s>\xef\xbf\xbd\xef\xbf\xbd"
                   "a</s>",
                   -1, true);
    /* The valid byte next to invalid ones becomes U+FFFD, too. Decoding id by id has written it already. */
    sprintf(ids, "%d %d %d", 3 + 'x', e2, a);
    assert_decodes(f, t, ids, false,
                   "\xef\xbf\xbd\xef\xbf\xbd"
                   "a",
                   -1, false);
    sprintf(ids, "%d %d %d", mark, mark, a); /* the decoder removes one of the two spaces */
    assert_decodes(f, t, ids, false, " a", -1, true);
    tokenizer_close(t);
}

static void decodes_ids_without_token(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, with_added(case_bytes(MERGES)));
    str out = {.account = f->account};
    assert_decodes(f, t, "257 999 5000 2147483647 1000 257", false, "the<s>the", -1, true);
    assert_decodes(f, t, "257 1000 1001 257", true, "the<tool>the", -1, true);
    assert_int_equal(tokenizer_decode(t, (int32_t[]){257, -1}, 2, false, &out), OTT_ERR_ARGUMENT);
    assert_error_names("-1 is not a token id");
    str_free(&out);
    tokenizer_close(t);
}

/* ---- scratch and threads ---- */

typedef struct job {
    const tokenizer *t;
    mem *account;
    const char *text;
    tokenizer_ids ids;
    ott_status status;
} job;

static void *encode_often(void *argument) {
    job *j = argument;
    tokenizer_scratch *s;
    j->ids.account = j->account;
    j->status = tokenizer_scratch_open(j->account, j->t, &s);
    for (int i = 0; i < 20 && j->status == OTT_OK; i++) {
        j->ids.count = 0;
        j->status = tokenizer_encode(j->t, s, j->text, (int64_t)strlen(j->text), 0, &j->ids);
    }
    tokenizer_scratch_close(s);
    return NULL;
}

/* Returns a text with more words than the cache has entries. Each word occurs twice. */
static char *many_words(void) {
    char *text = malloc(60000 * 20), *p = text;
    assert_non_null(text);
    for (int i = 0; i < 60000; i++) p += sprintf(p, "the%da and ", i * 7 % 40000);
    return text;
}

static void threads_agree(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, case_bytes(MERGES));
    char *text = many_words();
    job jobs[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (job){.t = t, .account = f->account, .text = text};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(jobs[i].status, OTT_OK);
        assert_int_equal(jobs[i].ids.count, jobs[0].ids.count);
        assert_memory_equal(jobs[i].ids.ids, jobs[0].ids.ids, (size_t)jobs[0].ids.count * sizeof(int32_t));
    }
    str back = {.account = f->account};
    assert_int_equal(tokenizer_decode(t, jobs[0].ids.ids, jobs[0].ids.count, false, &back), OTT_OK);
    assert_string_equal(back.text, text);
    str_free(&back);
    for (int i = 0; i < 4; i++) tokenizer_ids_free(&jobs[i].ids);
    free(text);
    tokenizer_close(t);
}

/* Opens a tokenizer, encodes a text and decodes the ids. */
static ott_status do_all(mem *account, const char *path) {
    tokenizer *t;
    tokenizer_scratch *s = NULL;
    tokenizer_ids ids = {.account = account};
    str out = {.account = account};
    ott_status status = tokenizer_open(account, path, &t);
    if (status == OTT_OK) status = tokenizer_scratch_open(account, t, &s);
    if (status == OTT_OK) status = tokenizer_encode(t, s, "ab \xc3\x85xx <X>", 12, 0, &ids);
    if (status == OTT_OK) status = tokenizer_decode(t, ids.ids, ids.count, false, &out);
    if (status == OTT_OK) assert_string_equal(out.text, "ab a\xcc\x8ay <x>");
    str_free(&out);
    tokenizer_ids_free(&ids);
    tokenizer_scratch_close(s);
    tokenizer_close(t);
    return status;
}

/* Lets each allocation fail once. This must give an error and leak nothing, which the teardown checks. But if
   memory for compiling a pattern is missing, there is no error: the pattern is interpreted. */
static void survives_failing_memory(void **state) {
    folder *f = *state;
    json_t *root = case_characters(MARK " a|a b");
    case_set(
        root, "normalizer",
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": \"Replace\", \"pattern\":"
        " {\"Regex\": \"x+\"}, \"content\": \"y\"}, {\"type\": \"Lowercase\"}]}");
    case_set(root, "added_tokens", "[{\"id\": 300, \"content\": \"<X>\", \"normalized\": true}]");
    const char *path = case_write(f, root);
    int64_t before = mem_read(f->account).allocations;
    assert_int_equal(do_all(f->account, path), OTT_OK);
    int64_t count = mem_read(f->account).allocations - before, unharmed = 0;
    assert_true(count > 40);
    for (int64_t n = 1; n <= count; n++) {
        mem_fail_after(f->account, n);
        ott_status status = do_all(f->account, path);
        mem_fail_after(f->account, 0);
        if (status != OTT_OK && status != OTT_ERR_MEMORY) fail_msg("%s", status_text());
        unharmed += status == OTT_OK;
        assert_int_equal(mem_read(f->account).now, 0);
    }
    assert_true(unharmed < count / 4);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(opens_a_folder_or_a_file),
        TEST(says_what_is_not_there),
        TEST(flags_choose_the_special_tokens),
        TEST(merges_in_order_of_rank),
        TEST(merges_across_spaces),
        TEST(marks_the_beginning_only),
        TEST(added_tokens_swallow_white_space),
        TEST(refuses_texts),
        TEST(gives_up_on_endless_patterns),
        TEST(reads_the_neighboring_files),
        TEST(configuration_decides_over_the_template),
        TEST(refuses_bad_neighboring_files),
        TEST(streams_complete_characters),
        TEST(replaces_what_is_no_utf8),
        TEST(decodes_byte_tokens),
        TEST(decodes_ids_without_token),
        TEST(threads_agree),
        TEST(survives_failing_memory),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
