/* Files that are invalid or unsupported give one clear error each. They never open as a different
   tokenizer. */
#include "tokenizer/tokenizer_case.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void refuse_text(folder *f, const char *text, int64_t bytes, const char *message) {
    tokenizer *t;
    const char *path = folder_write(f, "tokenizer.json", text, bytes < 0 ? (int64_t)strlen(text) : bytes);
    ott_status status = tokenizer_open(f->account, path, &t);
    if (status != OTT_ERR_FORMAT)
        fail_msg("%s instead of \"%s\"", status ? status_text() : "it opens", message);
    assert_null(t);
    assert_error_names("/tokenizer.json: ");
    assert_error_names(message);
}

static void refuses_what_is_no_json(void **state) {
    folder *f = *state;
    char deep[20001];
    refuse_text(f, "", -1, "invalid JSON");
    refuse_text(f, "{\"model\": {\"vocab\": {\"a\": 0", -1, "invalid JSON");
    refuse_text(f, "[]", -1, "not a JSON object");
    refuse_text(f, "{\"a\": 1, \"a\": 2}", -1, "duplicate object key");
    refuse_text(f, "{\"model\": \"\xc3(\"}", -1, "not UTF-8 at byte 11");
    refuse_text(f, "{\"model\": \"\xff\"}", -1, "not UTF-8 at byte 11");
    refuse_text(f, "{\"model\": \"\\ud800\"}", -1, "invalid JSON");
    refuse_text(f, "{\"model\": 1e999}", -1, "invalid JSON");
    refuse_text(f, "{\"a\0\": 1}", 9, "invalid JSON");
    memset(deep, '[', 20000);
    deep[20000] = '\0';
    memcpy(deep, "{\"a\":", 5);
    refuse_text(f, deep, -1, "maximum parsing depth reached");
    refuse_text(f, "{}", -1, "model is missing or not an object");
}

typedef struct change {
    const char *path, *value; /* value: NULL deletes the member */
    const char *message;
} change;

static void refuse_all(folder *f, const change *changes, size_t count, ott_status expected) {
    for (size_t i = 0; i < count; i++) {
        json_t *root = case_bytes("t h|th e");
        case_set(root, changes[i].path, changes[i].value);
        case_refuse(f, root, expected, changes[i].message);
    }
}

#define REFUSE_ALL(state, changes, expected)                                                                 \
    refuse_all(*(state), changes, sizeof(changes) / sizeof *(changes), expected)

static void refuses_malformed_models(void **state) {
    static const change changes[] = {
        {"model", NULL, "model is missing or not an object"},
        {"model", "[]", "model is missing or not an object"},
        {"model.type", "3", "model.type is not a string"},
        {"model.vocab", NULL, "model.vocab is missing or not an object"},
        {"model.vocab", "[[\"a\", -1.0]]", "model.vocab is missing or not an object"},
        {"model.vocab", "{}", "model.vocab has no tokens"},
        {"model.vocab.a", "-1", "the id of token 'a' is not an integer of 0 or more"},
        {"model.vocab.a", "1073741824",
         "token 'a' has the id 1073741824, far beyond the others: with 258 tokens, ids below 66568 are"},
        {"model.vocab.a", "9223372036854775807", "token 'a' has the id 9223372036854775807, far beyond"},
        {"model.vocab.a", "1.0", "the id of token 'a'"},
        {"model.vocab.a", "\"1\"", "the id of token 'a'"},
        {"model.vocab.a", "98", "have the same id 98"},
        {"model.merges", NULL, "model.merges is missing or not an array"},
        {"model.merges", "{}", "model.merges is missing or not an array"},
        {"model.merges", "[\"th\"]", "merge 0 is not a pair of tokens"},
        {"model.merges", "[\"t h\", \"a b c\"]", "merge 1 is not a pair of tokens"},
        {"model.merges", "[[\"t\"]]", "merge 0 is not a pair of tokens"},
        {"model.merges", "[[\"t\", \"h\", \"e\"]]", "merge 0 is not a pair of tokens"},
        {"model.merges", "[[\"t\", 3]]", "merge 0 is not a pair of tokens"},
        {"model.merges", "[7]", "merge 0 is not a pair of tokens"},
        {"model.merges", "[\"zz h\"]", "the left part 'zz' of merge 0 is not in the vocabulary"},
        {"model.merges", "[\"h zz\"]", "the right part 'zz' of merge 0 is not in the vocabulary"},
        {"model.merges", "[\"t h\", \"z z\"]", "the result 'zz' of merge 1 is not in the vocabulary"},
        {"model.merges", "[\"t \"]", "the right part '' of merge 0 is not in the vocabulary"},
        {"model.ignore_merges", "1", "ignore_merges is a whole number, not true or false"},
    };
    REFUSE_ALL(state, changes, OTT_ERR_FORMAT);
}

static void refuses_malformed_parts(void **state) {
    static const change changes[] = {
        {"added_tokens", "{}", "added_tokens is not an array"},
        {"added_tokens", "[3]", "added_tokens: content of token 0 is missing or not a string"},
        {"added_tokens", "[{\"id\": 1}]", "content of token 0 is missing or not a string"},
        {"added_tokens", "[{\"content\": \"<s>\"}]", "the id of token '<s>'"},
        {"added_tokens", "[{\"id\": -5, \"content\": \"<s>\"}]", "the id of token '<s>'"},
        {"added_tokens", "[{\"id\": 99999999, \"content\": \"<s>\"}]",
         "token '<s>' has the id 99999999, far beyond the others"},
        {"added_tokens", "[{\"id\": 97, \"content\": \"<s>\"}]", "'<s>' has the id 97 of 'a'"},
        {"added_tokens", "[{\"id\": 400, \"content\": \"a\"}]",
         "'a' has the id 400, but 97 in the vocabulary"},
        {"added_tokens", "[{\"id\": 400, \"content\": \"<s>\"}, {\"id\": 400, \"content\": \"<t>\"}]",
         "two tokens have the id 400"},
        {"added_tokens", "[{\"id\": 400, \"content\": \"<s>\"}, {\"id\": 401, \"content\": \"<s>\"}]",
         "'<s>' has the id 401, but 400"},
        {"added_tokens", "[{\"id\": 400, \"content\": \"<s>\", \"lstrip\": 1}]",
         "lstrip is a whole number, not true or false"},
        {"pre_tokenizer", "3", "pre_tokenizer: type is missing"},
        {"pre_tokenizer", "{\"type\": \"Sequence\"}", "pre_tokenizer: pretokenizers is missing"},
        {"pre_tokenizer", "{\"type\": \"Split\"}", "pre_tokenizer: Split: behavior is missing"},
        {"pre_tokenizer", "{\"type\": \"Split\", \"behavior\": \"Isolated\"}",
         "pre_tokenizer: Split: pattern is neither a String nor a Regex"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}",
         "replacement 'ab' is not one character"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"\"}",
         "replacement '' is not one character"},
        {"pre_tokenizer", "{\"type\": \"Metaspace\"}", "replacement is missing"},
        {"normalizer", "{\"type\": \"Prepend\"}", "normalizer: Prepend: prepend is missing"},
        {"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}}", "content is missing"},
        {"decoder", "{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}",
         "start is -1; 0 to "},
        {"post_processor", "{\"type\": \"TemplateProcessing\"}", "single is missing or not an array"},
        {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}",
         "the Sequence A exactly once"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\"}}]}",
         "the Sequence A exactly once"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}",
         "special_tokens has no ids for '<s>'"},
        {"post_processor",
         "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}],"
         " \"special_tokens\": {\"<s>\": {\"ids\": [9999]}}}",
         "there is no token with the id 9999"},
    };
    REFUSE_ALL(state, changes, OTT_ERR_FORMAT);
}

static void names_what_is_not_supported(void **state) {
    static const change changes[] = {
        {"model.type", "\"WordPiece\"", "model.type 'WordPiece' is not supported"},
        {"model.dropout", "0.1", "model.dropout is not supported"},
        {"model.continuing_subword_prefix", "\"##\"",
         "model.continuing_subword_prefix '##' is not supported"},
        {"model.end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix '</w>' is not supported"},
        {"normalizer", "{\"type\": \"Precompiled\"}",
         "normalizer: Precompiled: this normalizer is not supported"},
        {"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}",
         "an empty pattern"},
        {"pre_tokenizer", "{\"type\": \"UnicodeScripts\"}",
         "UnicodeScripts: this pre-tokenizer is not supported"},
        {"pre_tokenizer",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}",
         "pre_tokenizer: Digits: a pre-tokenizer after ByteLevel is not supported"},
        {"pre_tokenizer", "{\"type\": \"Split\", \"behavior\": \"Sideways\"}",
         "behavior 'Sideways' is not supported"},
        {"decoder", "{\"type\": \"WordPiece\"}", "decoder: WordPiece: this decoder is not supported"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"ByteFallback\"}]}",
         "decoder: ByteFallback: is not supported at this position"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteLevel\"}, {\"type\": \"ByteLevel\"}]}",
         "decoder: ByteLevel: is not supported after another decoder"},
        {"decoder",
         "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"},"
         " {\"type\": \"Strip\", \"content\": \" \", \"start\": 0, \"stop\": 1}]}",
         "decoder: Strip: stop > 0 after Fuse"},
        {"post_processor", "{\"type\": \"BertProcessing\"}",
         "BertProcessing: this post-processor is not supported"},
    };
    REFUSE_ALL(state, changes, OTT_ERR_UNSUPPORTED);
}

/* Patterns are refused if PCRE2 refuses them, or if PCRE2 and Oniguruma would match different texts. */
static void refuses_doubtful_patterns(void **state) {
    static const char *const regexes[][2] = {
        {"a(b", "is not understood: missing closing parenthesis"},
        {"\\\\p{Nonsense}", "is not understood"},
        {"[\\\\S\\\\n]", "\\S or \\W inside brackets"},
        {"a{1,3}+", "{n,m}+"},
        {"(?m:.)", "of the inline options only i"},
        {"(?s)a", "of the inline options only i"},
        {"(*UTF8)a", "(* is not supported"},
        {"[a&&b]", "&& inside brackets"},
        {"[a[bc]]", "brackets inside brackets"},
        {"[[:punct:]]", "brackets inside brackets"},
        {"\\\\bfoo", "word boundaries"},
        {"a\\\\K", "\\K, \\Q and \\E"},
        {"\\\\h", "\\h (a hexadecimal digit"},
        {"a\\\\", "ends in a backslash"},
        {"a\\u0000b", "a NUL is not supported"},
        {"\\\\C", "is not understood"},
    };
    for (size_t i = 0; i < sizeof regexes / sizeof *regexes; i++) {
        char part[256];
        json_t *root = case_bytes("");
        snprintf(part, sizeof part,
                 "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}",
                 regexes[i][0]);
        case_set(root, "pre_tokenizer", part);
        case_refuse(*state, root, OTT_ERR_UNSUPPORTED, regexes[i][1]);
    }
}

static void limits_nesting_and_steps(void **state) {
    char part[8192] = "";
    for (int i = 0; i < 20; i++) strcat(part, "{\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < 20; i++) strcat(part, "]}");
    json_t *root = case_bytes("");
    case_set(root, "normalizer", part);
    case_refuse(*state, root, OTT_ERR_FORMAT, "normalizer: more than 8 Sequences in each other");
    strcpy(part, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}");
    for (int i = 0; i < 64; i++) strcat(part, ", {\"type\": \"NFC\"}");
    root = case_bytes("");
    case_set(root, "normalizer", strcat(part, "]}"));
    case_refuse(*state, root, OTT_ERR_UNSUPPORTED, "normalizer: NFC: more than 64 steps");
}

/* ---- files and texts that would take forever, or all memory ---- */

static json_t *split_by(const char *regex) {
    char part[256];
    json_t *root = case_bytes("");
    snprintf(part, sizeof part,
             "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}", regex);
    case_set(root, "pre_tokenizer", part);
    return root;
}

static char *repeat(const char *part, int times) {
    size_t bytes = strlen(part);
    char *text = malloc(bytes * (size_t)times + 1);
    assert_non_null(text);
    for (int i = 0; i < times; i++) memcpy(text + bytes * (size_t)i, part, bytes);
    text[bytes * (size_t)times] = '\0';
    return text;
}

/* One limit applies to the steps of all searches in a text together. With these patterns, each search takes
   few steps, but all searches of the text take more than the limit. */
static void gives_up_on_endless_backtracking(void **state) {
    folder *f = *state;
    static const struct {
        const char *regex, *part;
        int times;
    } cases[] = {{"(x+x+)+[yz]", "x", 60},       {"(x+x+)+[yz]", "xxxxxxxxxxxxxxxxxx ", 20000},
                 {"(x|x)*y|x", "x", 5000},       {"(?:x?){30}x{30}[yz]", "x", 40000},
                 {"(x+)(x+)[yz]|x", "x", 30000}, {"x+[yz]|x", "x", 300000},
                 {"x+[yz]", "x", 300000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[64], *text = repeat(cases[i].part, cases[i].times);
        tokenizer *t = case_open(f, split_by(cases[i].regex));
        char *ids = case_ids(f, t, text, -1, 0);
        snprintf(message, sizeof message, "the %d steps allowed for a text",
                 1000000 + 1024 * (int)strlen(text));
        if (!strstr(ids, "fails at byte ") || !strstr(ids, message))
            fail_msg("%s: \"%.200s\" instead of \"%s\"", cases[i].regex, ids, message);
        free(ids);
        free(text);
        tokenizer_close(t);
    }
}

/* A pattern may backtrack once over a long run. */
static void allows_long_runs(void **state) {
    folder *f = *state;
    tokenizer *t = case_open(f, split_by("x*[yz]|x+"));
    char *text = repeat("x", 300000), *ids = case_ids(f, t, text, -1, 0);
    if (strstr(ids, "fails at byte")) fail_msg("%s", ids);
    free(ids);
    free(text);
    tokenizer_close(t);
}

/* An id may be larger than the number of tokens (as in Phi-4), but not much larger. */
static void limits_the_largest_id(void **state) {
    folder *f = *state;
    json_t *root = case_bytes("");
    case_set(root, "added_tokens", "[{\"id\": 66559, \"content\": \"<s>\"}]");
    int64_t before = mem_read(f->account).peak;
    tokenizer *t = case_open(f, root);
    assert_int_equal(tokenizer_vocab(t), 66560);
    tokenizer_close(t);
    assert_true(mem_read(f->account).peak - before < 16 << 20);
    root = case_bytes("");
    case_set(root, "added_tokens", "[{\"id\": 66564, \"content\": \"<s>\"}]");
    case_refuse(f, root, OTT_ERR_FORMAT,
                "token '<s>' has the id 66564, far beyond the others: with 257 tokens, ids below 66564 are");
    root = case_bytes("");
    case_set(root, "added_tokens", "[{\"id\": 1073741824, \"content\": \"<s>\"}]");
    case_refuse(f, root, OTT_ERR_FORMAT, "token '<s>' has the id 1073741824, far beyond the others");
}

static json_t *with_added_text(const char *content, const char *more) {
    char part[2048];
    json_t *root = case_bytes("");
    snprintf(part, sizeof part, "[{\"id\": 300, \"content\": \"%s\"%s}]", content, more);
    case_set(root, "added_tokens", part);
    return root;
}

static void limits_added_tokens(void **state) {
    folder *f = *state;
    char *longest = repeat("a", 1024), *longer = repeat("a", 1025);
    tokenizer *t = case_open(f, with_added_text(longest, ""));
    char *ids = case_ids(f, t, longer, -1, 0);
    assert_string_equal(ids, "300 97"); /* in case_bytes the id of a byte is the byte */
    free(ids);
    tokenizer_close(t);
    case_refuse(
        f, with_added_text(longer, ""), OTT_ERR_UNSUPPORTED,
        "added_tokens: "
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."
        "' (id 300) has 1025 bytes; at most 1024 are supported");
    json_t *root = with_added_text(longest, ", \"normalized\": true");
    case_set(root, "normalizer", "{\"type\": \"Prepend\", \"prepend\": \"b\"}");
    case_refuse(f, root, OTT_ERR_UNSUPPORTED, "(id 300) has 1025 bytes once normalized; at most 1024");
    free(longest);
    free(longer);
}

/* Changes each byte of a valid file, one at a time, and truncates the file at each byte. The file must be
   refused, or open and encode a text. */
static void survives_any_damage(void **state) {
    folder *f = *state;
    json_t *root = case_json("ab\xe2\x96\x81", "a b|\xe2\x96\x81 ab");
    case_set(root, "added_tokens", "[{\"id\": 9, \"content\": \"<s>\", \"special\": true}]");
    case_set(root, "pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}");
    case_set(root, "normalizer",
             "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"b+\"}, \"content\": \"b\"}");
    case_set(root, "decoder", "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}");
    int64_t bytes;
    case_write(f, root);
    char *good = folder_read(f, "tokenizer.json", &bytes), *bad = malloc((size_t)bytes);
    assert_non_null(bad);
    for (int64_t i = 0; i < 2 * bytes; i++) {
        static const char replacements[] = "0\"]x\xff";
        tokenizer *t;
        memcpy(bad, good, (size_t)bytes);
        bad[i % bytes] = replacements[i % 5];
        const char *path = folder_write(f, "tokenizer.json", bad, i < bytes ? bytes : i - bytes);
        if (tokenizer_open(f->account, path, &t) != OTT_OK) continue;
        char *ids = case_ids(f, t, "abb ba<s> <s>", -1, TOKENIZER_MATCH_SPECIAL);
        free(ids);
        tokenizer_close(t);
    }
    free(bad);
    mem_free(f->account, good);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(refuses_what_is_no_json),
        TEST(refuses_malformed_models),
        TEST(refuses_malformed_parts),
        TEST(names_what_is_not_supported),
        TEST(refuses_doubtful_patterns),
        TEST(limits_nesting_and_steps),
        TEST(gives_up_on_endless_backtracking),
        TEST(allows_long_runs),
        TEST(limits_the_largest_id),
        TEST(limits_added_tokens),
        TEST(survives_any_damage),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
