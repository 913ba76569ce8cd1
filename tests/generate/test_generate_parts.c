/*
 * Tests the parts of generation: sampling compared with a simple version, stop strings for every division of
 * a text into pieces, and text to tokens and back through a tokenizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/collected.h"
#include "generate/sampler.h"
#include "generate/text.h"
#include "train/train_fixture.h"

/* ---- sampling ---- */

#define TOKENS 9
static const float given[TOKENS] = {1.5f, -0.5f, 3.0f, 3.0f, 0.25f, -2.0f, 2.0f, 0.0f, 9.0f};
/* CHOICES: number of tokens that may be chosen. The token after them has the largest logit, and must never be
   chosen. */
enum { CHOICES = 8, DRAWS = 20000 };

static ott_generate_options sampling(double temperature, int64_t top_k, double top_p, double penalty) {
    return (ott_generate_options){
        .temperature = temperature, .top_k = top_k, .top_p = top_p, .repetition_penalty = penalty, .seed = 3};
}

/* Computes the probability of each token, by Hugging Face's processors in their order. Sorts all tokens. */
static void naive(const ott_generate_options *o, const bool *seen, double p[CHOICES]) {
    int order[CHOICES];
    double sum = 0, mass = 0;
    for (int i = 0; i < CHOICES; i++) {
        double logit = (double)given[i];
        if (seen[i]) logit = logit > 0 ? logit / o->repetition_penalty : logit * o->repetition_penalty;
        p[i] = exp(logit / o->temperature);
        order[i] = i;
    }
    for (int i = 1; i < CHOICES; i++) /* insertion sort, which is stable */
        for (int j = i; j > 0 && p[order[j]] > p[order[j - 1]]; j--) {
            int swap = order[j];
            order[j] = order[j - 1];
            order[j - 1] = swap;
        }
    int64_t limit = o->top_k > 0 && o->top_k < CHOICES ? o->top_k : CHOICES;
    for (int64_t i = 0; i < limit; i++) sum += p[order[i]];
    for (int64_t i = 0; i < CHOICES; i++) {
        bool kept = i < limit && mass < o->top_p * sum;
        mass += kept ? p[order[i]] : 0;
        p[order[i]] = kept ? p[order[i]] : 0;
    }
    for (int i = 0; i < CHOICES; i++) p[i] /= mass;
}

static int32_t choose(sampler *s) {
    int32_t token;
    memcpy(s->logits, given, sizeof given);
    FIXTURE_OK(sampler_choose(s, &token));
    return token;
}

/* Draws many tokens. Their frequencies must match the probabilities, and excluded tokens must not occur. */
static void check_frequencies(const ott_generate_options *o, const int32_t *text, int64_t count) {
    mem *account;
    sampler s;
    int drawn[TOKENS] = {0};
    bool seen[TOKENS] = {false};
    double wanted[CHOICES];
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(sampler_open(account, o, TOKENS, CHOICES, &s));
    for (int64_t i = 0; i < count; i++) seen[text[i]] = true;
    naive(o, seen, wanted);
    for (int i = 0; i < DRAWS; i++) {
        memset(s.seen, 0, TOKENS * sizeof *s.seen);
        sampler_note(&s, text, count);
        drawn[choose(&s)]++;
    }
    for (int i = 0; i < CHOICES; i++) {
        double spread = 4.5 * sqrt(wanted[i] * (1 - wanted[i]) * DRAWS);
        if (fabs(drawn[i] - wanted[i] * DRAWS) > spread)
            fail_msg("top_k %d, top_p %g, penalty %g: token %d was chosen %d times, not %g", (int)o->top_k,
                     o->top_p, o->repetition_penalty, i, drawn[i], wanted[i] * DRAWS);
    }
    assert_int_equal(drawn[CHOICES], 0);
    sampler_close(&s);
    mem_close(account);
}

static void tokens_are_as_likely_as_they_should_be(void **state) {
    (void)state;
    const int32_t text[] = {2, 5, 2};
    const ott_generate_options cases[] = {
        sampling(1, 0, 1, 1),     sampling(0.5, 0, 1, 1),   sampling(1, 3, 1, 1),    sampling(2, 0, 0.7, 1),
        sampling(1.5, 5, 0.8, 1), sampling(1, 100, 1, 1.7), sampling(1, 4, 0.9, 0.6)};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_frequencies(&cases[i], text, 3);
}

/* Returns the token that one draw after the given text chooses. */
static int32_t first_choice(const ott_generate_options *o, const int32_t *text, int64_t count) {
    mem *account;
    sampler s;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(sampler_open(account, o, TOKENS, CHOICES, &s));
    sampler_note(&s, text, count);
    int32_t token = choose(&s);
    sampler_close(&s);
    mem_close(account);
    return token;
}

static void greedy_takes_the_first_of_the_most_likely(void **state) {
    (void)state;
    ott_generate_options o = sampling(0, 0, 1, 1);
    assert_int_equal(first_choice(&o, NULL, 0), 2); /* the first of tokens 2 and 3, whose logits are equal */
    for (o.seed = 0; o.seed < 20; o.seed++) {
        ott_generate_options one = sampling(1, 1, 1, 1);
        one.seed = o.seed;
        assert_int_equal(first_choice(&one, NULL, 0), 2);
    }
}

/* The repetition penalty works at temperature 0 too. Tokens that were chosen count as part of the text. */
static void a_penalty_turns_the_choice(void **state) {
    (void)state;
    mem *account;
    sampler s;
    ott_generate_options o = sampling(0, 0, 1, 2);
    assert_int_equal(first_choice(&o, (const int32_t[]){2}, 1), 3);
    assert_int_equal(first_choice(&o, (const int32_t[]){2, 3}, 2), 6);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(sampler_open(account, &o, TOKENS, CHOICES, &s));
    /* After three choices, the chosen tokens' logits 3.0, 3.0 and 2.0 count as 1.5, 1.5 and 1.0. Then three
       tokens have the largest logit 1.5; the first of them is token 0. */
    static const int32_t expected[] = {2, 3, 6, 0};
    for (int i = 0; i < 4; i++) assert_int_equal(choose(&s), expected[i]);
    sampler_close(&s);
    mem_close(account);
}

static void logits_that_are_none_are_refused(void **state) {
    (void)state;
    mem *account;
    sampler s;
    int32_t token;
    ott_generate_options o = sampling(1, 0, 1, 1);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(sampler_open(account, &o, TOKENS, CHOICES, &s));
    memcpy(s.logits, given, sizeof given);
    s.logits[4] = NAN;
    assert_int_equal(sampler_choose(&s, &token), OTT_ERR_DIVERGED);
    assert_non_null(strstr(status_text(), "logit of token 4 is NaN"));
    s.logits[4] = INFINITY;
    assert_int_equal(sampler_choose(&s, &token), OTT_ERR_DIVERGED);
    s.logits[4] = -INFINITY; /* a logit of -infinity is no error: the token is never chosen */
    FIXTURE_OK(sampler_choose(&s, &token));
    sampler_close(&s);
    mem_close(account);
}

/* ---- stop strings ---- */

static void show(void *user, const char *text) {
    assert_true(*text != '\0');
    collect(user, text);
}

/* Passes a text to the filter in pieces of `step` bytes, and collects the output. Returns whether the filter
   found a stop string; the rest of the text is not passed then. */
static bool filtered(const char *const *stop, int count, const char *text, size_t step, collected *shown) {
    mem *account;
    bool stopped = false;
    FIXTURE_OK(mem_open(&account));
    text_filter f = {.stop = stop, .count = count, .held = {.account = account}};
    *shown = (collected){0};
    for (size_t at = 0; !stopped && at < strlen(text); at += step) {
        str piece = {.account = account};
        str_append_bytes(&piece, text + at, (int64_t)(strlen(text) - at < step ? strlen(text) - at : step));
        FIXTURE_OK(text_filter_push(&f, &piece, show, shown, &stopped));
        str_free(&piece);
    }
    text_filter_finish(&f, show, shown);
    str_free(&f.held);
    mem_close(account);
    return stopped;
}

static void text_ends_before_the_first_stop(void **state) {
    (void)state;
    static const char *const stops[] = {"abc", "abab", "\n\n", "c d"};
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"xyz", "xyz"},       {"x abc y", "x "},        {"ababab", ""},   {"aababc", "a"},      {"ab", "ab"},
        {"line\n", "line\n"}, {"line\n\nmore", "line"}, {"xc dabc", "x"}, {"aaabab abc", "aa"}, {"c", "c"},
        {"abac dabc", "aba"}, {"ab\n\nabc", "ab"},      {"abc d", ""},
    };
    static collected shown;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 12; step++) {
            bool stopped = filtered(stops, 4, cases[i].text, step, &shown);
            assert_string_equal(shown.text, cases[i].shown);
            assert_int_equal(stopped, shown.length < strlen(cases[i].text));
        }
    assert_false(filtered(NULL, 0, "abc", 1, &shown));
    assert_string_equal(shown.text, "abc");
}

/* Text that cannot be the beginning of a stop string is written immediately. */
static void only_what_is_uncertain_is_held_back(void **state) {
    (void)state;
    mem *account;
    bool stopped;
    static collected shown;
    const char *const stops[] = {"END"};
    FIXTURE_OK(mem_open(&account));
    text_filter f = {.stop = stops, .count = 1, .held = {.account = account}};
    static const char *const pieces[] = {"aE", "N", "E", "x"}, *const after[] = {"a", "a", "aEN", "aENEx"};
    for (int i = 0; i < 4; i++) {
        str piece = {.account = account};
        str_append(&piece, pieces[i]);
        FIXTURE_OK(text_filter_push(&f, &piece, show, &shown, &stopped));
        assert_string_equal(shown.text, after[i]);
        str_free(&piece);
    }
    str_free(&f.held);
    mem_close(account);
}

/* ---- text and tokens ---- */

#define VOCAB 300
enum { BOS = 1, EOS = 2, FIRST_BYTE = 3, SPACE = 259 }; /* ids; after SPACE come a, b, c and "ab" */

/* Writes a tokenizer like Llama 2's: it adds a space before the text and BOS before that, and characters
   without a token become byte tokens. */
static void write_tokenizer(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}, {\"id\": 2, \"content\":"
          " \"</s>\", \"special\": true}], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Metaspace\","
          " \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"first\", \"split\": false},"
          " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\":"
          " \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [],"
          " \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}}},"
          " \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\":"
          " {\"String\": \"\xe2\x96\x81\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\":"
          " \"Fuse\"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}, \"model\":"
          " {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"byte_fallback\": true, \"vocab\": {\"<unk>\": 0,"
          " \"<s>\": 1, \"</s>\": 2",
          file);
    for (int byte = 0; byte < 256; byte++) fprintf(file, ", \"<0x%02X>\": %d", byte, FIRST_BYTE + byte);
    fputs(
        ", \"\xe2\x96\x81\": 259, \"a\": 260, \"b\": 261, \"c\": 262, \"ab\": 263}, \"merges\": [\"a b\"]}}",
        file);
    assert_int_equal(fclose(file), 0);
    char config_path[160];
    snprintf(config_path, sizeof config_path, "%.*s_config.json", (int)(strlen(path) - 5), path);
    file = fopen(config_path, "w");
    assert_non_null(file);
    fputs("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", file);
    assert_int_equal(fclose(file), 0);
}

static void assert_ids(const tokenizer_ids *ids, int64_t from, const int32_t *expected, int64_t count) {
    assert_int_equal(ids->count - from, count);
    assert_memory_equal(ids->ids + from, expected, (size_t)count * sizeof *expected);
}

static void bytes_are_tokens(void **state) {
    (void)state;
    mem *account;
    text_codec c;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(text_codec_open(account, "", 200, &c));
    tokenizer_ids ids = {.account = account};
    str text = {.account = account};
    assert_int_equal(c.choices, 200);
    FIXTURE_OK(text_codec_encode(&c, "Az", &ids));
    assert_ids(&ids, 0, (const int32_t[]){'A', 'z'}, 2);
    /* bytes 195 and 169 form one character */
    assert_int_equal(text_codec_encode(&c, "b\xc3\xa9", &ids), OTT_OK);
    assert_int_equal(text_codec_encode(&c, "b\xe2", &ids), OTT_ERR_ARGUMENT);
    assert_int_equal(ids.count, 5); /* the ids of the failed call are not added */
    FIXTURE_OK(text_codec_decode(&c, 'q', &text));
    FIXTURE_OK(text_codec_decode(&c, 0, &text));
    assert_string_equal(text.text, "q");
    assert_false(text_codec_ends(&c, 0));
    tokenizer_ids_free(&ids);
    str_free(&text);
    text_codec_close(&c);
    mem_close(account);
}

static void a_tokenizer_begins_and_ends_texts(void **state) {
    const fixture *f = *state;
    mem *account;
    text_codec c;
    char path[160];
    snprintf(path, sizeof path, "%s/tokenizer.json", f->folder);
    write_tokenizer(path);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(text_codec_open(account, path, VOCAB, &c));
    tokenizer_ids ids = {.account = account};
    assert_int_equal(c.choices, 264); /* rows of the table that are padding are no choices */
    FIXTURE_OK(text_codec_encode(&c, "ab c", &ids));
    assert_ids(&ids, 0, (const int32_t[]){BOS, SPACE, 263, SPACE, 262}, 5);
    str text = {.account = account};
    FIXTURE_OK(text_codec_decode(&c, SPACE, &text)); /* only the first space of a text is left out */
    FIXTURE_OK(text_codec_decode(&c, FIRST_BYTE + 0xc3, &text));
    assert_string_equal(text.text, " ");
    FIXTURE_OK(text_codec_decode(&c, FIRST_BYTE + 0xa9, &text));
    assert_string_equal(text.text, " \xc3\xa9");
    int64_t before = ids.count;
    FIXTURE_OK(text_codec_encode(&c, "a", &ids)); /* a text that is continued gets no second BOS */
    assert_true(ids.count > before && ids.ids[before] != BOS);
    assert_true(text_codec_ends(&c, EOS));
    assert_false(text_codec_ends(&c, SPACE));
    tokenizer_ids_free(&ids);
    str_free(&text);
    text_codec_close(&c);
    mem_close(account);
}

static void a_tokenizer_larger_than_the_model(void **state) {
    const fixture *f = *state;
    mem *account;
    text_codec c;
    char path[160];
    snprintf(path, sizeof path, "%s/tokenizer.json", f->folder);
    write_tokenizer(path);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(text_codec_open(account, path, 262, &c));
    tokenizer_ids ids = {.account = account};
    assert_int_equal(text_codec_encode(&c, "abc", &ids), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "the prompt has token 263 of "));
    assert_int_equal(ids.count, 0);
    FIXTURE_OK(text_codec_encode(&c, "b", &ids));
    tokenizer_ids_free(&ids);
    text_codec_close(&c);
    mem_close(account);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_as_likely_as_they_should_be),
        cmocka_unit_test(greedy_takes_the_first_of_the_most_likely),
        cmocka_unit_test(a_penalty_turns_the_choice),
        cmocka_unit_test(logits_that_are_none_are_refused),
        cmocka_unit_test(text_ends_before_the_first_stop),
        cmocka_unit_test(only_what_is_uncertain_is_held_back),
        cmocka_unit_test(bytes_are_tokens),
        cmocka_unit_test(a_tokenizer_begins_and_ends_texts),
        cmocka_unit_test(a_tokenizer_larger_than_the_model),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
