/*
 * Samples: HellaSwag with the same tokens as in AutoModel, prompts with completions, padding, and packing.
 * Packing may change the row of a sample and its position, but not its tokens and targets.
 */
#include "support/folder.h"
#include "base/file/file.h"
#include "data/rows.h"
#include "tokenizer/tokenizer_case.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- HellaSwag ---- */

/* Returns the path of `name` in the folder OTTAVA_SHARED, or else in ../shared next to the sources. Skips the
   test if the file is missing. */
static const char *shared(const char *name) {
    static char path[16][400];
    static int next;
    const char *base = getenv("OTTAVA_SHARED");
    char *out = path[next++ % 16];
    snprintf(out, sizeof path[0], "%s/%s", base ? base : TEST_SOURCE_DIR "/../shared", name);
    if (file_exists(out)) return out;
    fprintf(stderr, "SKIPPED: %s is missing; set OTTAVA_SHARED to the folder of reference data\n", out);
    skip();
    return NULL;
}

static const char *const models[] = {"llama-3.1", "mistral-7b-v0.1", "mistral-nemo-2407", "phi-4", "qwen2.5"};

static int32_t number_at(const json_t *list, size_t i) {
    const json_t *value = json_array_get(list, i);
    assert_true(json_is_integer(value));
    return (int32_t)json_integer_value(value);
}

static void check_sample(const char *model, const dataset *d, int64_t index, const json_t *expected) {
    const json_t *ids = json_object_get(expected, "input_ids"), *labels = json_object_get(expected, "labels");
    int64_t count = (int64_t)json_array_size(ids), wanted = 0;
    held_row h = rows_read(d, index);
    if (rows_document(d, &h.row, 0) != count)
        fail_msg("%s, row %d: %d tokens, not %d", model, (int)index, (int)rows_document(d, &h.row, 0),
                 (int)count);
    for (int64_t i = 0; i < count; i++) {
        if (h.row.token[i] != number_at(ids, (size_t)i))
            fail_msg("%s, row %d: token %d is %d, not %d", model, (int)index, (int)i, h.row.token[i],
                     number_at(ids, (size_t)i));
        if (h.row.target[i] != number_at(labels, (size_t)i))
            fail_msg("%s, row %d: label %d is %d, not %d", model, (int)index, (int)i, h.row.target[i],
                     number_at(labels, (size_t)i));
        assert_int_equal(h.row.position[i], i);
        wanted += h.row.target[i] >= 0;
    }
    for (int64_t i = count; i < dataset_length(d); i++) assert_int_equal(h.row.target[i], DATASET_NO_LABEL);
    assert_int_equal(h.row.labels, wanted);
    assert_int_equal(h.row.documents, count < dataset_length(d) ? 2 : 1);
    free(h.memory);
}

static void check_vectors(folder *f, const char *model, const char *rows) {
    char name[100];
    tokenizer *t;
    dataset *d;
    snprintf(name, sizeof name, "data/tokenizers/%s", model);
    assert_int_equal(tokenizer_open(f->account, shared(name), &t), OTT_OK);
    dataset_source s = rows_source(&rows);
    s.tokenizer = t;
    s.limit = 40;
    if (dataset_open_rows(f->account, &s, ROWS_HELLASWAG, &d) != OTT_OK) fail_msg("%s", status_text());
    assert_true(dataset_has_samples(d));
    rows_split(d, dataset_longest(d), false);
    assert_int_equal(dataset_rows(d), 40);
    snprintf(name, sizeof name, "data/vectors/hellaswag_%s.jsonl", model);
    FILE *file = fopen(shared(name), "r");
    static char line[1 << 16];
    int64_t index = 0;
    while (fgets(line, sizeof line, file)) {
        json_t *expected = json_loads(line, 0, NULL);
        assert_non_null(expected);
        check_sample(model, d, index++, expected);
        json_decref(expected);
    }
    assert_int_equal(index, 32);
    fclose(file);
    dataset_close(d);
    tokenizer_close(t);
}

static void hellaswag_is_automodels(void **state) {
    const char *rows = shared("data/hellaswag/hellaswag_train_3368.jsonl");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) check_vectors(*state, models[i], rows);
}

/* ---- packing ---- */

/* Expects that packed rows have the samples of the padded rows in the same order, token for token, and
   nothing else. */
static void check_packing(dataset *d, int64_t length) {
    rows_split(d, dataset_longest(d), false);
    int64_t samples = dataset_rows(d), width = dataset_length(d), labels = 0, packed_labels = 0;
    held_row *unpacked = calloc((size_t)samples, sizeof *unpacked);
    for (int64_t i = 0; i < samples; i++) {
        unpacked[i] = rows_read(d, i);
        labels += unpacked[i].row.labels;
        if (unpacked[i].row.documents == 1) unpacked[i].row.start[1] = (int32_t)width;
    }
    rows_split(d, length, true);
    assert_int_equal(dataset_samples(d) + dataset_left_out(d), samples);
    int64_t next = 0, used_before = 0;
    for (int64_t r = 0; r < dataset_rows(d); r++) {
        held_row h = rows_read(d, r);
        int64_t used = 0, first = -1;
        for (int64_t k = 0; k < h.row.documents; k++) {
            int64_t at = h.row.start[k], count = rows_document(d, &h.row, k);
            for (int64_t i = 0; i < count; i++) assert_int_equal(h.row.position[at + i], i);
            /* samples that are longer than a row are left out */
            while (next < samples && unpacked[next].row.start[1] > length) next++;
            bool sample = next < samples && unpacked[next].row.start[1] == count &&
                          memcmp(unpacked[next].row.token, h.row.token + at, (size_t)count * 4) == 0;
            if (!sample) { /* after the last sample: padding */
                assert_int_equal(k, h.row.documents - 1);
                for (int64_t i = at; i < length; i++) assert_true(h.row.token[i] == 0 && h.row.target[i] < 0);
                break;
            }
            assert_memory_equal(unpacked[next].row.target, h.row.target + at, (size_t)count * 4);
            if (first < 0) first = count;
            used += count;
            next++;
        }
        /* packing fills rows as far as possible: this row's first sample did not fit into the previous row */
        if (r > 0) assert_true(used_before + first > length);
        used_before = used;
        packed_labels += h.row.labels;
        free(h.memory);
    }
    assert_int_equal(next, samples);
    if (dataset_left_out(d) == 0) assert_int_equal(packed_labels, labels);
    for (int64_t i = 0; i < samples; i++) free(unpacked[i].memory);
    free(unpacked);
}

static void packing_moves_samples_only(void **state) {
    folder *f = *state;
    dataset *d;
    str text = {.account = f->account};
    for (int i = 0; i < 200; i++)
        str_printf(&text, "{\"q\": \"%.*s\", \"a\": \"%.*s\"}\n", 1 + i * 7 % 13, "abcdefghijklmno",
                   i * 5 % 11, "0123456789ABC");
    const char *path = folder_write_text(f, "t.jsonl", text.text);
    dataset_source s = rows_source(&path);
    s.prompt_field = "q";
    s.completion_field = "a";
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_OTHER, &d), OTT_OK);
    assert_int_equal(dataset_longest(d), 23);
    check_packing(d, 64);
    assert_int_equal(dataset_left_out(d), 0);
    check_packing(d, 23);
    check_packing(d, 15);
    assert_true(dataset_left_out(d) > 0);
    check_packing(d, 4096);
    assert_int_equal(dataset_rows(d), 1);
    assert_int_equal(dataset_make_rows(d, &(dataset_row_options){.length = 0}), OTT_ERR_CONFIG);
    dataset_close(d);
    str_free(&text);
}

static void packs_hellaswag(void **state) {
    folder *f = *state;
    tokenizer *t;
    dataset *d;
    const char *rows = shared("data/hellaswag/hellaswag_train_3368.jsonl");
    assert_int_equal(tokenizer_open(f->account, shared("data/tokenizers/qwen2.5"), &t), OTT_OK);
    dataset_source s = rows_source(&rows);
    s.tokenizer = t;
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_HELLASWAG, &d), OTT_OK);
    check_packing(d, 1024);
    assert_int_equal(dataset_samples(d), 3368);
    check_packing(d, 64);
    assert_true(dataset_left_out(d) > 0);
    dataset_close(d);
    tokenizer_close(t);
}

/* ---- prompts and completions ---- */

static void loss_is_on_the_completion(void **state) {
    folder *f = *state;
    dataset *d;
    const char *path = folder_write_text(
        f, "t.jsonl", "{\"p\": \"ab\", \"c\": \"xyz\"}\n\n{\"p\": \"\", \"c\": \"q\\u00e9\"}");
    dataset_source s = rows_source(&path);
    s.prompt_field = "p";
    s.completion_field = "c";
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_OTHER, &d), OTT_OK);
    rows_split(d, 6, false);
    assert_int_equal(dataset_rows(d), 2);
    held_row h = rows_read(d, 0);
    assert_memory_equal(h.row.token, ((int32_t[]){'a', 'b', 'x', 'y', 'z', 0}), 24);
    assert_memory_equal(h.row.target, ((int32_t[]){-100, 'x', 'y', 'z', -100, -100}), 24);
    assert_memory_equal(h.row.position, ((int32_t[]){0, 1, 2, 3, 4, 0}), 24);
    assert_true(h.row.documents == 2 && h.row.start[1] == 5 && h.row.labels == 3);
    free(h.memory);
    h = rows_read(d, 1);
    assert_memory_equal(h.row.token, ((int32_t[]){'q', 0xc3, 0xa9, 0, 0, 0}), 24);
    assert_memory_equal(h.row.target, ((int32_t[]){0xc3, 0xa9, -100, -100, -100, -100}), 24);
    free(h.memory);
    rows_split(d, 8, true);
    assert_int_equal(dataset_rows(d), 1);
    h = rows_read(d, 0);
    assert_true(h.row.documents == 2 && h.row.start[1] == 5); /* the row is full and has no padding */
    free(h.memory);
    dataset_close(d);
}

/* ---- errors ---- */

static void refuse(folder *f, dataset_row_kind kind, const char *text, const char *place,
                   const char *message) {
    dataset *d;
    const char *path = folder_write_text(f, "bad.jsonl", text);
    dataset_source s = rows_source(&path);
    ott_status status = dataset_open_rows(f->account, &s, kind, &d);
    if (status != OTT_ERR_FORMAT) fail_msg("%s: status %d: %s", text, status, status_text());
    assert_null(d);
    assert_error_names(place);
    assert_error_names(message);
}

#define GOOD "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 1}\n"

static void bad_rows_are_named(void **state) {
    folder *f = *state;
    const dataset_row_kind text = ROWS_OTHER, hs = ROWS_HELLASWAG;
    refuse(f, text, "", "/bad.jsonl: ", "is empty");
    refuse(f, text, "\n\n  \r\n", "/bad.jsonl: ", "no rows");
    refuse(f, text, "{\"text\": \"a\"}\n{\"text\": \n", "/bad.jsonl:2: ", "is not JSON");
    refuse(f, text, "[1]\n", "/bad.jsonl:1: ", "is a whole number, not a JSON object");
    refuse(f, text, "\n{\"text\": 5}\n", "/bad.jsonl:2: ", "text is a whole number, not a text");
    refuse(f, text, "{\"body\": \"a\", \"id\": 1}\n", "/bad.jsonl:1: ", "no field \"text\"; it has body, id");
    refuse(f, text, "{}\n", "/bad.jsonl:1: ", "it has none");
    refuse(f, text, "{\"text\": \"a\", \"text\": \"b\"}\n", "/bad.jsonl:1: ", "duplicate");
    refuse(f, text, "{\"text\": \"\xff\"}\n", "/bad.jsonl:1: ", "0xff");
    refuse(f, hs, GOOD "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 1}\n",
           "/bad.jsonl:2: ", "label = 1 is out of range: the row has 1 endings");
    refuse(f, hs, "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": -1}\n", ":1: ", "label = -1");
    refuse(f, hs, "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": \"\"}\n", ":1: ", "label is empty");
    refuse(f, hs, "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": \"99999999999999999999\"}\n",
           ":1: ", "label is");
    refuse(f, hs, "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0.5}\n", ":1: ", "label is a number");
    refuse(f, hs, "{\"ctx\": \"a\", \"endings\": [2], \"label\": 0}\n",
           ":1: ", "endings[0] is a whole number");
    refuse(f, hs, "{\"ctx\": \"a\", \"endings\": \"b\", \"label\": 0}\n",
           ":1: ", "endings is a text, not a list");
    refuse(f, hs, "{\"endings\": [\"b\"], \"label\": 0}\n", ":1: ", "no field \"ctx\"");
    refuse(f, hs, GOOD "{\"context\": \"a\", \"endings\": [\"b\"], \"label\": 0}\n",
           ":2: ", "no field \"ctx\"; it has context, endings, label");
    refuse(f, hs, "{\"ctx\": \"\", \"endings\": [\"b\"], \"label\": 0}\n", ":1: ", "ctx has no tokens");
}

static void label_may_be_a_text(void **state) {
    folder *f = *state;
    dataset *d;
    dataset_row_kind kind;
    const char *path =
        folder_write_text(f, "t.jsonl", "{\"ctx\": \"a\", \"endings\": [\"b\", \"cd\"], \"label\": \"1\"}\n");
    dataset_source s = rows_source(&path);
    assert_int_equal(dataset_first_row(f->account, path, &kind), OTT_OK);
    assert_int_equal(kind, ROWS_HELLASWAG);
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_HELLASWAG, &d), OTT_OK);
    rows_split(d, 3, false);
    held_row h = rows_read(d, 0);
    assert_memory_equal(h.row.token, ((int32_t[]){'a', 'c', 'd'}), 12);
    assert_memory_equal(h.row.target, ((int32_t[]){'c', 'd', -100}), 12);
    free(h.memory);
    assert_int_equal(dataset_make_rows(d, &(dataset_row_options){.length = 2}), OTT_ERR_CONFIG);
    assert_error_names("train.seq_len = 2 is shorter than every sample");
    assert_error_names("the longest has 3");
    dataset_close(d);
    path = folder_write_text(f, "t.jsonl", "{\"text\": \"a\"}");
    assert_int_equal(dataset_first_row(f->account, path, &kind), OTT_OK);
    assert_int_equal(kind, ROWS_OTHER);
    path = folder_write_text(f, "t.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}");
    assert_int_equal(dataset_first_row(f->account, path, &kind), OTT_OK);
    assert_int_equal(kind, ROWS_ALPACA);
    path = folder_write_text(f, "t.jsonl", "{\"messages\": []}");
    assert_int_equal(dataset_first_row(f->account, path, &kind), OTT_OK);
    assert_int_equal(kind, ROWS_MESSAGES);
}

/* ---- context, question and answer ---- */

/* Expects a row's tokens, and the same targets as in AutoModel. */
static void expect_sample(dataset *d, int64_t row, const char *text, int64_t unlearned) {
    int64_t count = (int64_t)strlen(text) - 1; /* the last token is a target, but no input */
    held_row h = rows_read(d, row);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(h.row.token[i], (unsigned char)text[i]);
        assert_int_equal(h.row.target[i], i + 1 < unlearned ? -100 : (unsigned char)text[i + 1]);
    }
    free(h.memory);
}

static void squad_rows_are_those_of_automodel(void **state) {
    static const char rows[] =
        "{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [\" yes\\u00a0\", \"no\"]}}\n"
        "{\"context\": \"c\", \"question\": \"qq\", \"answers\": {\"text\": []}}\n";
    folder *f = *state;
    dataset *d;
    dataset_row_kind kind;
    const char *path = folder_write_text(f, "t.jsonl", rows);
    dataset_source s = rows_source(&path);
    assert_int_equal(dataset_first_row(f->account, path, &kind), OTT_OK);
    assert_int_equal(kind, ROWS_SQUAD);
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_SQUAD, &d), OTT_OK);
    assert_true(dataset_has_samples(d));
    rows_split(d, 40, false);
    assert_int_equal(dataset_rows(d), 2);
    expect_sample(d, 0, "Context: c Question: q Answer: yes", 31);
    /* no answer and no EOS fit into the row, so it has no target */
    expect_sample(d, 1, "Context: c Question: qq Answer: ", 32);
    dataset_close(d);
    path = folder_write_text(f, "t.jsonl",
                             "{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": \"a\"}}");
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_SQUAD, &d), OTT_ERR_FORMAT);
    assert_error_names("t.jsonl:1: answers is an object, without a list of texts");
}

static void instructions_are_joined_by_spaces(void **state) {
    folder *f = *state;
    dataset *d;
    const char *path =
        folder_write_text(f, "t.jsonl", "{\"a\": \"one\", \"b\": \"two\", \"c\": \" three\"}\n");
    dataset_source s = rows_source(&path);
    s.context_field = "a";
    s.prompt_field = "b";
    s.completion_field = "c";
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_INSTRUCTION, &d), OTT_OK);
    rows_split(d, 20, false);
    expect_sample(d, 0, "one two  three", 8);
    dataset_close(d);
    s.context_field = "";
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_INSTRUCTION, &d), OTT_OK);
    rows_split(d, 20, false);
    expect_sample(d, 0, "two  three", 4);
    dataset_close(d);
    s.prompt_field = "question";
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_INSTRUCTION, &d), OTT_ERR_FORMAT);
    assert_error_names("the row has no field \"question\"; it has a, b, c");
}

/* If a token covers the end of the prompt and the beginning of the completion, the number of tokens of the
   prompt alone decides which tokens are targets. */
static void what_carries_no_loss_is_counted(void **state) {
    folder *f = *state;
    dataset *d;
    tokenizer *t;
    json_t *root = case_bytes("\u0120 y|e s|\u0120y es");
    t = case_open(f, root);
    const char *path = folder_write_text(
        f, "t.jsonl", "{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [\"yes\"]}}\n");
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_SQUAD, &d), OTT_OK);
    /* The prompt has 31 tokens. With the answer it also has 31, as its last token becomes " yes". So no token
       is left as a target. */
    rows_split(d, 40, false);
    held_row h = rows_read(d, 0);
    assert_int_equal(h.row.labels, 0);
    free(h.memory);
    dataset_close(d);
    tokenizer_close(t);
}

/* ---- conversations ---- */

static void refuse_chat(folder *f, const tokenizer *t, const char *row, const char *message);

#define CHAT_TEMPLATE                                                                                        \
    "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt "     \
    "%}<a>{% endif %}"

static tokenizer *chat_tokenizer(folder *f, const char *template) {
    folder_write_text(f, "chat_template.jinja", template);
    return case_open(f, case_bytes(""));
}

/* Expects a row of one sample. The expected text has a "^" under each character of a target. */
static void expect_turns(const tokenizer *t, const dataset *d, int64_t index, const char *text,
                         const char *targets) {
    held_row h = rows_read(d, index);
    int64_t count = rows_document(d, &h.row, 0);
    assert_int_equal(count, strlen(text));
    for (int64_t i = 0; i < count; i++) {
        const char one[] = {text[i], 0};
        assert_int_equal(h.row.token[i], tokenizer_find(t, text[i] == '\n' ? "\xc4\x8a" : one));
        if (i > 0 && (h.row.target[i - 1] >= 0) != (targets[i] == '^'))
            fail_msg("row %d: %.*s[%c]: target %d", (int)index, (int)i, text, text[i], h.row.target[i - 1]);
    }
    free(h.memory);
}

static void only_the_assistant_is_learned(void **state) {
    static const char rows[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": "
        "\"yo\"}, "
        "{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"ok\"}]}\n"
        "{\"conversations\": [{\"from\": \"system\", \"value\": \"s\"}, {\"from\": \"human\", \"value\": "
        "\"h\"}, "
        "{\"from\": \"gpt\", \"value\": \"g\"}, {\"from\": \"human\", \"value\": \"x\"}]}\n"
        "{\"instruction\": \"do\", \"input\": \"it\", \"output\": \"done\"}\n"
        "{\"instruction\": \"do\", \"input\": \"\", \"output\": \"!\"}\n";
    static const char *const marks[] = {
        CHAT_TEMPLATE,
        "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }}</>{% endgeneration %}{% else %}{{ m.content }}</>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<a>{% endif %}"};
    folder *f = *state;
    for (int i = 0; i < 2; i++) {
        dataset *d;
        tokenizer *t = chat_tokenizer(f, marks[i]);
        const char *path = folder_write_text(f, "t.jsonl", rows);
        dataset_source s = rows_source(&path);
        s.tokenizer = t;
        if (dataset_open_rows(f->account, &s, ROWS_MESSAGES, &d) != OTT_OK) fail_msg("%s", status_text());
        rows_split(d, 64, false);
        assert_int_equal(dataset_rows(d), 4);
        expect_turns(t, d, 0, "<u>hi</><a>yo</><u>q</><a>ok</>", "           ^^^^^          ^^^^^");
        expect_turns(t, d, 1, "<s>s</><u>h</><a>g</><u>x</>", "                 ^^^^       ");
        expect_turns(t, d, 2, "<u>do\nit</><a>done</>", "              ^^^^^^^");
        expect_turns(t, d, 3, "<u>do</><a>!</>", "           ^^^^");
        dataset_close(d);
        tokenizer_close(t);
    }
}

/* Whenever the template renders messages of a row, it gets the row's tools, and the messages have their extra
   fields (tool_calls). */
static void templates_see_tools(void **state) {
    static const char rows[] =
        "{\"tools\": [{\"n\": 1}], \"messages\": [{\"role\": \"user\", \"content\": \"u\"}, "
        "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": "
        "\"f\"}}]}, "
        "{\"role\": \"tool\", \"content\": \"t\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}\n"
        "{\"tools\": \"[2, 3]\", \"instruction\": \"u\", \"output\": \"a\"}\n"
        "{\"tools\": null, \"instruction\": \"u\", \"output\": \"a\"}\n";
    folder *f = *state;
    dataset *d;
    tokenizer *t = chat_tokenizer(
        f, "{% if tools %}{{ tools | length }}:{% endif %}{% for m in messages %}<{{ m.role[0] }}>"
           "{{ m.content }}{% for c in m.tool_calls %}!{{ c.function.name }}{% endfor %}</>{% endfor %}"
           "{% if add_generation_prompt %}<a>{% endif %}");
    const char *path = folder_write_text(f, "t.jsonl", rows);
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    if (dataset_open_rows(f->account, &s, ROWS_MESSAGES, &d) != OTT_OK) fail_msg("%s", status_text());
    rows_split(d, 64, false);
    assert_int_equal(dataset_rows(d), 3);
    expect_turns(t, d, 0, "1:<u>u</><a>!f</><t>t</><a>a</>", "            ^^^^^          ^^^^");
    expect_turns(t, d, 1, "2:<u>u</><a>a</>", "            ^^^^");
    expect_turns(t, d, 2, "<u>u</><a>a</>", "          ^^^^");
    dataset_close(d);
    tokenizer_close(t);
}

/* Like transformers, the renderer removes null members of a message. If it did not, these templates would
   write "None" for a null member, or fail because they loop over it. */
static void null_members_are_left_out(void **state) {
    static const char rows[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"u\", \"tool_calls\": null, \"name\": null}, "
        "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"f\": null}]}, "
        "{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": null}]}\n";
    folder *f = *state;
    dataset *d;
    tokenizer *t = chat_tokenizer(
        f,
        "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% if 'tool_calls' in m %}"
        "{% for c in m.tool_calls %}!{{ c.f }}{% endfor %}{% endif %}{% if m.name is defined %}?{% endif %}"
        "</>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}");
    const char *path = folder_write_text(f, "t.jsonl", rows);
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    if (dataset_open_rows(f->account, &s, ROWS_MESSAGES, &d) != OTT_OK) fail_msg("%s", status_text());
    rows_split(d, 64, false);
    expect_turns(t, d, 0, "<u>u</><a>!None</><a>a</>", "          ^^^^^^^^   ^^^^");
    dataset_close(d);
    tokenizer_close(t);
}

/* The template's date comes from a key of the configuration, never from the clock. */
static void templates_get_the_day(void **state) {
    static const char rows[] = "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}\n";
    static const char *const days[][2] = {{"2026-02-03", "03 Feb 2026 Tuesday 34 00:00"},
                                          {"undefined", "no day"}};
    folder *f = *state;
    tokenizer *t =
        chat_tokenizer(f, "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y %A %-j %H:%M') }}"
                          "{% else %}no day{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}");
    const char *path = folder_write_text(f, "t.jsonl", rows);
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    for (int i = 0; i < 2; i++) {
        dataset *d;
        str text = {.account = f->account};
        s.chat_date = days[i][0];
        if (dataset_open_rows(f->account, &s, ROWS_MESSAGES, &d) != OTT_OK) fail_msg("%s", status_text());
        rows_split(d, 64, false);
        held_row h = rows_read(d, 0);
        assert_int_equal(tokenizer_decode(t, h.row.token, rows_document(d, &h.row, 0), false, &text), OTT_OK);
        text.text[text.length - 1] = 0; /* removes the character after the message */
        assert_string_equal(text.text, days[i][1]);
        free(h.memory);
        str_free(&text);
        dataset_close(d);
    }
    for (int i = 0; i < 3; i++) {
        static const char *const wrong[] = {"2026-02-30", "3 Feb 2026", "2026-2-3"};
        dataset *d;
        s.chat_date = wrong[i];
        assert_int_equal(dataset_open_rows(f->account, &s, ROWS_MESSAGES, &d), OTT_ERR_CONFIG);
        assert_error_names("data.chat_date");
        assert_error_names(wrong[i]);
    }
    tokenizer_close(t);
}

/* State of a stop callback: it counts its calls in `asked`, and requests a stop after `most` calls. */
typedef struct call_counter {
    int64_t asked, most;
} call_counter;

static bool count_question(void *user) {
    call_counter *c = user;
    return ++c->asked > c->most;
}

static tokenizer *end_tokenizer(folder *f, const char *template) {
    json_t *root = case_bytes("");
    folder_write_text(f, "chat_template.jinja", template);
    case_set(root, "added_tokens",
             "[{\"id\": 5000, \"content\": \"<end>\", \"special\": true, \"normalized\": false}]");
    return case_open(f, root);
}

/* Returns how often reading a conversation of `turns` turns calls the stop callback. */
static int64_t work_of_turns(folder *f, const tokenizer *t, int turns) {
    str row = {.account = f->account};
    call_counter c = {.most = INT64_MAX};
    dataset *d;
    str_append(&row, "{\"messages\": [");
    for (int i = 0; i < turns; i++)
        str_printf(&row, "%s{\"role\": \"%s\", \"content\": \"turn %d\"}", i ? ", " : "",
                   i & 1 ? "assistant" : "user", i);
    str_append(&row, "]}\n");
    assert_int_equal(str_finish(&row), OTT_OK);
    const char *path = folder_write_text(f, "t.jsonl", row.text);
    const cancellation w = {.stop = count_question, .user = &c};
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    s.cancellation = &w;
    if (dataset_open_rows(f->account, &s, ROWS_MESSAGES, &d) != OTT_OK)
        fail_msg("%d turns: %s", turns, status_text());
    assert_int_equal(dataset_tokens(d) > 10 * turns, 1);
    dataset_close(d);
    str_free(&row);
    return c.asked;
}

/* With ten times as many turns, reading a conversation calls the stop callback at most twelve times as often,
   whether or not the template marks turns. */
static void long_conversations_take_linear_work(void **state) {
    static const char *const templates[] = {
        "{% for m in messages %}<{{ m.role[0] }}>{{ m.content | trim }}<end>{% endfor %}"
        "{% if add_generation_prompt %}<a>{% endif %}",
        "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content "
        "}}"
        "<end>{% endgeneration %}{% else %}{{ m.content }}<end>{% endif %}{% endfor %}"};
    for (int i = 0; i < 2; i++) {
        tokenizer *t = end_tokenizer(*state, templates[i]);
        int64_t few = work_of_turns(*state, t, 1600), many = work_of_turns(*state, t, 16000);
        if (many > 12 * few) fail_msg("template %d: %d and %d questions", i, (int)few, (int)many);
        tokenizer_close(t);
    }
}

/* If a conversation must be rendered again for each turn, reading it fails after a limited number of steps.
   The message says how to change the template. */
static void long_conversations_are_limited(void **state) {
    static const char *const templates[] = {
        "{% set n = messages | length %}{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<end>{% "
        "endfor %}"
        "{% if add_generation_prompt %}<a>{% endif %}",
        "{% for m in messages %}<{{ m.role[0] }}>{{ m.content * 1000 }}</>{% endfor %}"
        "{% if add_generation_prompt %}<a>{% endif %}"};
    static const char *const words[] = {"16000 messages take more than 20000000 steps; mark the turns",
                                        "no added token (as <|im_end|>) is"};
    folder *f = *state;
    for (int i = 0; i < 2; i++) {
        str row = {.account = f->account};
        tokenizer *t = end_tokenizer(f, templates[i]);
        str_append(&row, "{\"messages\": [");
        for (int k = 0; k < 16000 >> 2 * i; k++)
            str_printf(&row, "%s{\"role\": \"%s\", \"content\": \"t\"}", k ? ", " : "",
                       k & 1 ? "assistant" : "user");
        str_append(&row, "]}\n");
        assert_int_equal(str_finish(&row), OTT_OK);
        refuse_chat(f, t, row.text, words[i]);
        str_free(&row);
        tokenizer_close(t);
    }
}

static void refuse_chat(folder *f, const tokenizer *t, const char *row, const char *message) {
    dataset *d;
    const char *path = folder_write_text(f, "t.jsonl", row);
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    ott_status status = dataset_open_rows(f->account, &s, ROWS_MESSAGES, &d);
    if (status == OTT_OK || !strstr(status_text(), message)) fail_msg("%s: %s", row, status_text());
}

static void conversations_are_refused_by_line(void **state) {
    folder *f = *state;
    tokenizer *t = chat_tokenizer(f, CHAT_TEMPLATE);
    refuse_chat(f, t, "{\"text\": \"a\"}", "t.jsonl:1: has neither \"messages\" nor \"conversations\"");
    refuse_chat(f, t, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
                ":1: no message is the assistant's");
    refuse_chat(f, t, "{\"conversations\": [{\"from\": \"cat\", \"value\": \"a\"}]}",
                "conversations[0].from is \"cat\"");
    refuse_chat(f, t, "{\"conversations\": [{\"from\": \"gpt\"}]}",
                "conversations[0] has no text under \"value\"");
    refuse_chat(f, t, "{\"instruction\": \"a\"}", "no field \"output\"");
    refuse_chat(f, t, "{\"instruction\": \"a\", \"input\": 5, \"output\": \"b\"}",
                "input is a whole number, not a text");
    refuse_chat(f, t, "{\"messages\": 5}", ":1: messages is a whole number, not a list");
    refuse_chat(f, t, "{\"messages\": [1]}", ":1: messages[0] is a whole number, not an object");
    refuse_chat(f, t, "{\"messages\": [{}]}", "chat_template.jinja: chat template: line 1: ");
    refuse_chat(f, t, "{\"messages\": [], \"tools\": {}}", ":1: tools is an object: it takes a list");
    refuse_chat(f, t, "{\"messages\": [], \"tools\": \"[\"}", ":1: tools is a text that is not JSON");
    tokenizer_close(t);
    t = chat_tokenizer(f, "{% for m in messages %}{{ m.content }}{{ loop.length }}{% endfor %}");
    refuse_chat(f, t,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                "\"content\": \"b\"}]}",
                "does not begin with the text of its first 1 messages");
    tokenizer_close(t);
    t = chat_tokenizer(f, "{{ x");
    refuse_chat(f, t, "{\"messages\": []}", "chat_template.jinja: chat template: line 1: {{ has no }}");
    tokenizer_close(t);
}

/* ---- stops ---- */

typedef ott_status (*open_data)(mem *account, const dataset_source *s, dataset **out);

static ott_status open_messages(mem *account, const dataset_source *s, dataset **out) {
    return dataset_open_rows(account, s, ROWS_MESSAGES, out);
}

static ott_status open_documents(mem *account, const dataset_source *s, dataset **out) {
    return dataset_open_rows(account, s, ROWS_OTHER, out);
}

/* Reading and tokenizing call the stop callback, within a row and between rows. If it asks to stop, they end
   with OTT_ERR_STOPPED. */
static void stops_when_asked(void **state) {
    static const char template[] = "{% for i in range(100000) %}{{ i }}{% endfor %}{{ messages[0].content }}";
    folder *f = *state;
    tokenizer *t = chat_tokenizer(f, template);
    str rows = {.account = f->account};
    for (int i = 0; i < 50; i++)
        str_append(&rows,
                   "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}], \"text\": \"b\"}\n");
    assert_int_equal(str_finish(&rows), OTT_OK);
    const char *path = folder_write_text(f, "t.jsonl", rows.text);
    static const struct {
        open_data open;
        int64_t most;
    } cases[] = {{open_messages, 5}, /* the 6th call asks to stop, within the first row */
                 {open_documents, 40},
                 {dataset_open_text, 0},
                 {dataset_open_bytes, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        call_counter c = {.most = cases[i].most};
        const cancellation w = {.stop = count_question, .user = &c};
        dataset *d;
        dataset_source s = rows_source(&path);
        s.tokenizer = t;
        s.cancellation = &w;
        if (cases[i].open(f->account, &s, &d) != OTT_ERR_STOPPED)
            fail_msg("case %d: cancellation does not stop it: %s", (int)i, status_text());
        assert_null(d);
        /* after it asked to stop, the callback is not called again */
        assert_int_equal(c.asked, cases[i].most + 1);
    }
    str_free(&rows);
    tokenizer_close(t);
}

/* ---- one array of rows, large integers ---- */

static void expect_documents(folder *f, const char *name, const char *text, int64_t count) {
    dataset *d;
    const char *path = folder_write_text(f, name, text);
    dataset_source s = rows_source(&path);
    if (dataset_open_rows(f->account, &s, ROWS_OTHER, &d) != OTT_OK) fail_msg("%s: %s", text, status_text());
    assert_int_equal(dataset_tokens(d), count);
    dataset_close(d);
}

static void refuse_documents(folder *f, const char *text, const char *message) {
    dataset *d;
    const char *path = folder_write_text(f, "t.json", text);
    dataset_source s = rows_source(&path);
    ott_status status = dataset_open_rows(f->account, &s, ROWS_OTHER, &d);
    if (status != OTT_ERR_FORMAT || !strstr(status_text(), message)) fail_msg("%s: %s", text, status_text());
}

static void a_file_may_be_one_array(void **state) {
    folder *f = *state;
    dataset_row_kind kind;
    const char *alpaca = folder_write_text(
        f, "alpaca.json",
        "\n[\n  {\n    \"instruction\": \"a, [b]\",\n    \"output\": \"\\\"}\"\n  },\n {}]\n");
    assert_int_equal(dataset_first_row(f->account, alpaca, &kind), OTT_OK);
    assert_int_equal(kind, ROWS_ALPACA);
    expect_documents(f, "t.json",
                     "[{\"text\": \"ab]},\"}, {\"text\": \"c\", \"n\": [1, {\"k\": \"\\\"\"}]}\n]\n", 6);
    expect_documents(f, "t.json", "[{\"text\": \"a\"}]", 1);
    expect_documents(f, "t.jsonl",
                     "{\"text\": \"a\", \"id\": 18446744073709551615, \"k\": \"99999999999999999999\"}\n"
                     "{\"text\": \"b\", \"id\": -9223372036854775809, \"r\": 12345678901234567890.5}\n",
                     2);
    refuse_documents(f, "[{\"text\": \"a\"},\n{\"text\": \"b\"}", "t.json:2: the file's array has no end");
    refuse_documents(f, "[{\"text\": \"a\"}\n{\"text\": \"b\"}]",
                     "t.json:2: a comma is missing between two rows");
    refuse_documents(f, "[{\"text\": \"a\"}]\n{}",
                     "t.json:2: there is text after the end of the file's array");
    refuse_documents(f, "[{\"text\": \"a\"},\n\n5]", "t.json:3: is a whole number, not a JSON object");
    refuse_documents(f, "[]", "t.json: has no rows with text");
    refuse_documents(f, "[", "t.json:1: the file's array has no end");
    refuse_documents(f, "[{\"text\": tru}]", "t.json:1: is not JSON");
}

/* ---- parts and limits ---- */

static void shares_and_limits_count_rows(void **state) {
    folder *f = *state;
    dataset *d;
    str text = {.account = f->account};
    for (int i = 0; i < 10; i++)
        str_printf(&text, "{\"ctx\": \"a\", \"endings\": [\"%d\"], \"label\": 0}\n", i);
    const char *path = folder_write_text(f, "t.jsonl", text.text);
    static const struct {
        double from, to;
        int64_t limit;
        int first, count;
    } cases[] = {
        {0, 1, 0, 0, 10}, {0, 0.75, 0, 0, 7}, {0.75, 1, 0, 7, 3}, {0, 1, 4, 0, 4}, {0.5, 1, 2, 5, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dataset_source s = rows_source(&path);
        s.from_share = cases[i].from;
        s.to_share = cases[i].to;
        s.limit = cases[i].limit;
        assert_int_equal(dataset_open_rows(f->account, &s, ROWS_HELLASWAG, &d), OTT_OK);
        rows_split(d, 2, false);
        assert_int_equal(dataset_rows(d), cases[i].count);
        held_row h = rows_read(d, 0);
        assert_int_equal(h.row.token[1], '0' + cases[i].first);
        free(h.memory);
        dataset_close(d);
    }
    str_free(&text);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    const char *path = folder_write_text(f, "t.jsonl", GOOD GOOD);
    dataset_source s = rows_source(&path);
    dataset *d = NULL;
    for (int64_t n = 1; !d; n++) {
        mem_fail_after(f->account, n);
        ott_status status = dataset_open_rows(f->account, &s, ROWS_HELLASWAG, &d);
        assert_true(status == (d ? OTT_OK : OTT_ERR_MEMORY));
    }
    for (int64_t n = 1; dataset_rows(d) == 0; n++) {
        mem_fail_after(f->account, n);
        ott_status status = dataset_make_rows(d, &(dataset_row_options){.length = 2});
        assert_true(status == (dataset_rows(d) ? OTT_OK : OTT_ERR_MEMORY));
    }
    mem_fail_after(f->account, 0);
    dataset_close(d);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(hellaswag_is_automodels),
        TEST(packing_moves_samples_only),
        TEST(packs_hellaswag),
        TEST(loss_is_on_the_completion),
        TEST(bad_rows_are_named),
        TEST(label_may_be_a_text),
        TEST(squad_rows_are_those_of_automodel),
        TEST(instructions_are_joined_by_spaces),
        TEST(what_carries_no_loss_is_counted),
        TEST(only_the_assistant_is_learned),
        TEST(templates_see_tools),
        TEST(null_members_are_left_out),
        TEST(templates_get_the_day),
        TEST(long_conversations_take_linear_work),
        TEST(long_conversations_are_limited),
        TEST(stops_when_asked),
        TEST(a_file_may_be_one_array),
        TEST(conversations_are_refused_by_line),
        TEST(shares_and_limits_count_rows),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
