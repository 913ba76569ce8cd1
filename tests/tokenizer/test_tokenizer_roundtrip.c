/*
 * decode(encode(x)) = x, except for changes that the tokenizer defines, for random texts and small tokenizers
 * of every kind: Llama 3, Mistral Nemo, Qwen 2.5, Phi-4, Mistral 7B and Llama 2.
 */
#include "tokenizer/tokenizer_case.h"
#include "base/rng.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <utf8proc.h>

#define MARK "\xe2\x96\x81"
enum { TEXTS = 3000, LONGEST = 80 }; /* LONGEST: maximum number of characters of a text */

#define WORDS_OF_LLAMA                                                                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "                   \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS_OF_QWEN                                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "                        \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS_OF_NEMO                                                                                        \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}"       \
    "\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"      \
    "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|"             \
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

#define BYTE_MERGES                                                                                          \
    "t h|th e|\xc4\xa0 the|a n|an d|\xc4\xa0 and|' s|\xc4\x8a \xc4\x8a|1 2|\xc3\x83 \xc2\xa9|i n|in g"
#define CHARACTER_MERGES "t h|th e|" MARK " the|a n|an d|" MARK " and|i n|in g|" MARK " " MARK "|e r"

/* ---- the tokenizers ---- */

static json_t *split_bytes(const char *regex, const char *behavior, const char *invert) {
    char part[1024];
    json_t *root = case_bytes(BYTE_MERGES);
    snprintf(
        part, sizeof part,
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"},"
        " \"behavior\": \"%s\", \"invert\": %s}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"
        " \"use_regex\": false}]}",
        regex, behavior, invert);
    case_set(root, "pre_tokenizer", part);
    return root;
}

static json_t *llama_3(void) {
    json_t *root = split_bytes(WORDS_OF_LLAMA, "Isolated", "false");
    case_set(root, "model.ignore_merges", "true");
    return root;
}

static json_t *nemo(void) {
    json_t *root = split_bytes(WORDS_OF_NEMO, "Isolated", "false");
    case_set(root, "model.ignore_merges", "true");
    return root;
}

static json_t *qwen(void) {
    json_t *root = split_bytes(WORDS_OF_QWEN, "Isolated", "false");
    case_set(root, "normalizer", "{\"type\": \"NFC\"}");
    return root;
}

static json_t *phi_4(void) {
    return split_bytes(WORDS_OF_LLAMA, "Removed", "true");
}

static json_t *mistral(void) {
    return case_characters(CHARACTER_MERGES);
}

static json_t *llama_2(void) {
    json_t *root = case_characters(CHARACTER_MERGES);
    case_set(root, "pre_tokenizer", "null");
    case_set(root, "normalizer",
             "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"" MARK "\"},"
             " {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" MARK "\"}]}");
    return root;
}

/* ---- the expected text ---- */

static void same(const str *text, str *out) {
    str_append_bytes(out, text->text, text->length);
}

static void composed(const str *text, str *out) {
    utf8proc_uint8_t *nfc;
    utf8proc_ssize_t bytes = utf8proc_map((const utf8proc_uint8_t *)text->text, text->length, &nfc,
                                          UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(bytes >= 0);
    str_append_bytes(out, nfc, bytes);
    free(nfc);
}

/* Writes the text with a space for each U+2581. A U+2581 at the beginning is left out. */
static void without_marks(const str *text, str *out) {
    for (int64_t i = 0; i < text->length;) {
        bool mark = text->length - i >= 3 && memcmp(text->text + i, MARK, 3) == 0;
        str_append_bytes(out, mark ? " " : text->text + i, 1);
        i += mark ? 3 : 1;
    }
}

/* Mistral's tokenizer adds no U+2581 before a text that begins with U+2581 or a space. But its decoder
   removes the U+2581 at the beginning of any text. */
static void without_first_space(const str *text, str *out) {
    without_marks(text, out);
    if (out->text[0] != ' ') return;
    memmove(out->text, out->text + 1, (size_t)out->length);
    out->length--;
}

static const struct {
    const char *name;
    json_t *(*make)(void);
    void (*becomes)(const str *text, str *out);
} kinds[] = {{"Llama 3", llama_3, same},
             {"Mistral Nemo", nemo, same},
             {"Qwen 2.5", qwen, composed},
             {"Phi-4", phi_4, same},
             {"Mistral 7B", mistral, without_first_space},
             {"Llama 2", llama_2, without_marks}};

/* ---- random texts ---- */

static const char *const pieces[] = {
    "the", " and", "  ", "\n\n", "\r\n",     "'s",        "'LL",      "ing",          "123",
    "...", "\t",   "/",  MARK,   "\xcc\x81", "e\xcc\x81", "\xc3\xa9", "\xe4\xb8\xad", "\xf0\x9f\x98\x80"};

static int32_t random_codepoint(uint64_t stream, uint64_t i) {
    static const int32_t ends[] = {0x80, 0x80, 0x250, 0x800, 0x3100, 0xd800, 0x110000};
    int32_t c = (int32_t)(rng_u32(3, stream, 3 * i + 1) % (uint32_t)ends[rng_u32(3, stream, 3 * i) % 7]);
    return c >= 0xd800 && c < 0xe000 ? c - 0x800 : c;
}

static void random_text(uint64_t number, str *out) {
    uint64_t length = 1 + rng_u32(3, 2 * number, 0) % LONGEST;
    out->length = 0;
    for (uint64_t i = 1; i <= length; i++) {
        utf8proc_uint8_t bytes[4];
        if (rng_u32(3, 2 * number, 3 * i + 2) % 2)
            str_append(out, pieces[rng_u32(3, 2 * number, 3 * i) % (sizeof pieces / sizeof *pieces)]);
        else
            str_append_bytes(out, bytes, utf8proc_encode_char(random_codepoint(2 * number, i), bytes));
    }
}

/* ---- round trips ---- */

typedef struct trip {
    const char *name;
    const tokenizer *t;
    tokenizer_scratch *s;
    tokenizer_ids ids;
    str text, wanted, back;
} trip;

static void check_back(const trip *r, const char *way) {
    if (r->back.length == r->wanted.length &&
        memcmp(r->back.text ? r->back.text : "", r->wanted.text ? r->wanted.text : "",
               (size_t)r->wanted.length) == 0)
        return;
    fail_msg("%s, %s: \"%s\" is decoded to \"%s\"", r->name, way, r->text.text, r->back.text);
}

static void there_and_back(trip *r, void (*becomes)(const str *, str *)) {
    r->ids.count = r->wanted.length = r->back.length = 0;
    becomes(&r->text, &r->wanted);
    if (tokenizer_encode(r->t, r->s, r->text.text, r->text.length, TOKENIZER_MATCH_SPECIAL, &r->ids) !=
        OTT_OK)
        fail_msg("%s: %s", r->name, status_text());
    assert_int_equal(tokenizer_decode(r->t, r->ids.ids, r->ids.count, false, &r->back), OTT_OK);
    check_back(r, "at once");
    r->back.length = 0;
    tokenizer_stream stream = tokenizer_stream_start(r->t, false);
    for (int64_t i = 0; i < r->ids.count; i++)
        assert_int_equal(tokenizer_stream_push(&stream, r->ids.ids[i], &r->back), OTT_OK);
    assert_int_equal(tokenizer_stream_finish(&stream, &r->back), OTT_OK);
    check_back(r, "id by id");
}

static void texts_come_back(void **state) {
    folder *f = *state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        tokenizer *t = case_open(f, kinds[k].make());
        trip r = {.name = kinds[k].name,
                  .t = t,
                  .ids = {.account = f->account},
                  .text = {.account = f->account},
                  .wanted = {.account = f->account},
                  .back = {.account = f->account}};
        assert_int_equal(tokenizer_scratch_open(f->account, t, &r.s), OTT_OK);
        for (uint64_t n = 0; n < TEXTS; n++) {
            random_text(n, &r.text);
            there_and_back(&r, kinds[k].becomes);
        }
        tokenizer_ids_free(&r.ids);
        str_free(&r.text);
        str_free(&r.wanted);
        str_free(&r.back);
        tokenizer_scratch_close(r.s);
        tokenizer_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(texts_come_back, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
