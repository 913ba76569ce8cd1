/*
 * Compares tokenizers of real models with ids from Hugging Face's engine. The files are in OTTAVA_SHARED, or
 * in ../shared next to the sources. Without them the test is skipped.
 */
#include "tokenizer/tokenizer_case.h"
#include "base/file/file.h"
#include "tokenizer/describe.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct model {
    const char *name;
    int64_t vocab;
    const char *bos, *eos;     /* text of BOS and EOS; NULL: the model's files name none */
    bool adds_bos, byte_level; /* byte_level: decoding gives back every text */
} model;

static const char *shared_path(const char *rest, const char *name, char out[512]) {
    const char *shared = getenv("OTTAVA_SHARED");
    snprintf(out, 512, "%s/data/", shared ? shared : TEST_SOURCE_DIR "/../shared");
    snprintf(out + strlen(out), 512 - strlen(out), rest, name);
    return out;
}

static void check_text(folder *f, const tokenizer *t, const json_t *text, bool comes_back,
                       const char *expected) {
    const char *bytes = json_string_value(text);
    int64_t count = (int64_t)json_string_length(text);
    char *ids = case_ids(f, t, bytes, count, TOKENIZER_MATCH_SPECIAL);
    if (strcmp(ids, expected) != 0) fail_msg("\"%s\":\n%s\nshould be\n%s", bytes, ids, expected);
    if (comes_back) assert_decodes(f, t, ids, false, bytes, count, true);
    free(ids);
}

/* True if decoding the ids must give back the text. A byte-level tokenizer gives back every text, except that
   Qwen 2.5 applies NFC and so gives back only ASCII texts. */
static bool comes_back(const model *m, const json_t *text) {
    const char *bytes = json_string_value(text);
    bool ascii = true;
    for (size_t i = 0; i < json_string_length(text); i++) ascii = ascii && !(bytes[i] & 0x80);
    return m->byte_level && (ascii || strcmp(m->name, "qwen2.5") != 0);
}

static void check_vectors(folder *f, const model *m, const tokenizer *t) {
    char path[512], *line = NULL, *expected = NULL;
    size_t line_capacity = 0, expected_capacity = 0;
    FILE *strings = fopen(shared_path("vectors/strings.jsonl", "", path), "r");
    FILE *ids = fopen(shared_path("vectors/ids_%s.txt", m->name, path), "r");
    int count = 0;
    assert_non_null(strings);
    assert_non_null(ids);
    for (; getline(&line, &line_capacity, strings) >= 0; count++) {
        json_t *text = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_true(json_is_string(text));
        assert_true(getline(&expected, &expected_capacity, ids) >= 0);
        expected[strcspn(expected, "\n")] = '\0';
        check_text(f, t, text, comes_back(m, text), expected);
        json_decref(text);
    }
    assert_int_equal(count, 769);
    free(line);
    free(expected);
    fclose(strings);
    fclose(ids);
}

static void check_ends(folder *f, const model *m, const tokenizer *t) {
    assert_int_equal(tokenizer_vocab(t), m->vocab);
    assert_int_equal(tokenizer_bos(t), m->bos ? tokenizer_find(t, m->bos) : -1);
    assert_int_equal(tokenizer_eos(t), m->eos ? tokenizer_find(t, m->eos) : -1);
    char *with = case_ids(f, t, "", 0, TOKENIZER_ADD_SPECIAL), bos[16] = "";
    if (m->adds_bos) snprintf(bos, sizeof bos, "%d", tokenizer_bos(t));
    assert_string_equal(with, bos);
    free(with);
}

/* Converts the characters of a byte-level token to the bytes that they represent. */
static void byte_text(const char *name, str *out) {
    static unsigned char byte_of[0x180];
    for (int byte = 0; byte < 256 && !byte_of[0xff]; byte++) {
        char one[3] = "";
        bool two = tokenizer_byte_name((unsigned char)byte, one) == 2;
        byte_of[two ? (one[0] & 0x1f) << 6 | (one[1] & 0x3f) : one[0]] = (unsigned char)byte;
    }
    for (; *name; name++) {
        int c = (unsigned char)*name;
        if (c >= 0x80) c = (c & 0x1f) << 6 | (*++name & 0x3f);
        str_append_bytes(out, &byte_of[c], 1);
    }
}

/* Writes the tokenizer's byte-level vocabulary as tiktoken does: on each line a token in base64 and its id.
   */
static const char *write_tiktoken(folder *f, const char *name, int64_t tokens, const char *json_path) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    tokenizer *t;
    str out = {.account = f->account};
    if (tokenizer_open(f->account, json_path, &t) != OTT_OK) fail_msg("%s", status_text());
    for (int32_t id = 0; id < tokens; id++) {
        str bytes = {.account = f->account};
        byte_text(tokenizer_token(t, id), &bytes);
        for (int64_t i = 0; i < bytes.length; i += 3) {
            int64_t left = bytes.length - i;
            uint32_t bits = 0;
            for (int k = 0; k < 3; k++) bits = bits << 8 | (k < left ? (unsigned char)bytes.text[i + k] : 0);
            char four[4];
            for (int k = 0; k < 4; k++) four[k] = k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=';
            str_append_bytes(&out, four, 4);
        }
        str_printf(&out, " %d\n", id);
        str_free(&bytes);
    }
    assert_int_equal(str_finish(&out), OTT_OK);
    tokenizer_close(t);
    const char *path = folder_write(f, name, out.text, out.length);
    str_free(&out);
    return path;
}

static void check_model(void **state, const model *m) {
    char path[512];
    tokenizer *t;
    if (!file_exists(shared_path("tokenizers/%s/tokenizer.json", m->name, path))) {
        print_message("SKIPPED: the tokenizer of %s is missing: %s (set OTTAVA_SHARED)\n", m->name, path);
        skip();
    }
    shared_path("tokenizers/%s", m->name, path);
    folder *f = *state;
    if (tokenizer_open(f->account, path, &t) != OTT_OK) fail_msg("%s", status_text());
    check_ends(f, m, t);
    check_vectors(f, m, t);
    tokenizer_close(t);
}

static void llama_3_1(void **state) {
    check_model(state, &(model){"llama-3.1", 128256, "<|begin_of_text|>", NULL, true, true});
}
static void mistral_7b(void **state) {
    check_model(state, &(model){"mistral-7b-v0.1", 32000, "<s>", "</s>", true, false});
}
static void mistral_nemo(void **state) {
    check_model(state, &(model){"mistral-nemo-2407", 131072, "<s>", NULL, true, true});
}
static void phi_4(void **state) {
    check_model(state, &(model){"phi-4", 100352, NULL, NULL, false, true});
}
static void qwen_2_5(void **state) {
    check_model(state, &(model){"qwen2.5", 151665, NULL, "<|im_end|>", false, true});
}

/* The tokenizer.model of Llama's original folder gives the ids of the tokenizer.json. */
static void llama_3_1_original(void **state) {
    const model m = {"llama-3.1", 128256, "<|begin_of_text|>", "<|end_of_text|>", true, true};
    char path[512];
    tokenizer *t;
    if (!file_exists(shared_path("tokenizers/%s/tokenizer.json", m.name, path))) {
        print_message("SKIPPED: the tokenizer of %s is missing: %s (set OTTAVA_SHARED)\n", m.name, path);
        skip();
    }
    folder *f = *state;
    if (tokenizer_open(f->account, write_tiktoken(f, "tokenizer.model", 128000, path), &t) != OTT_OK)
        fail_msg("%s", status_text());
    check_ends(f, &m, t);
    check_vectors(f, &m, t);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(llama_3_1, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(mistral_7b, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(mistral_nemo, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(phi_4, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(qwen_2_5, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(llama_3_1_original, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
