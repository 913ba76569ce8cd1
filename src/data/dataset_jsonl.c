/* data/dataset_jsonl: reads files with a JSON object on each line: documents, prompts with completions,
   HellaSwag, SQuAD, instructions and conversations. */
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "base/json/json_text.h"
#include "data/chat_row.h"
#include "data/corpus.h"
#include "data/row_text.h"
#include "tokenizer/chat.h"
#include "tokenizer/text/text.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row_reader row_reader;
/* Adds the sample or documents of a JSON row to the corpus r->c. `row`: the row's index. */
typedef ott_status (*add_row)(row_reader *r, const json_t *object, int64_t row);

/* State of reading the rows of all files. */
struct row_reader {
    corpus c;
    add_row add;
    int64_t rows;       /* number of rows so far, in all files */
    int64_t begin, end; /* range of rows to read */
    bool counting;      /* true: only count rows, add none */
    /* HellaSwag: whether to remove the context's last token and the ending's first token */
    bool strip_context, strip_target;
    chat *template;   /* chat template for conversations; else NULL */
    uint8_t *learned; /* 1 for each token of the last conversation that is a target */
};

/* ---- fields ---- */

static ott_status add_sample_text(corpus *c, const json_t *text, unsigned flags) {
    return corpus_add(c, json_string_value(text), (int64_t)json_string_length(text), flags);
}

/* Reads the text of a field. `key` is the config key that names the field, for messages. */
static ott_status read_field(const json_t *object, const char *field, const char *key, const json_t **text) {
    char reason[480];
    ott_status status = json_row_text(object, field, text);
    if (status != OTT_ERR_FORMAT) return status;
    snprintf(reason, sizeof reason, "%s", status_text());
    return status_fail(status, "%s: set %s to a field with a text", reason, key);
}

/* ---- documents, and prompts with completions ---- */

static ott_status add_jsonl_document(row_reader *r, const json_t *object, int64_t row) {
    (void)row;
    const json_t *text;
    TRY(read_field(object, r->c.source->text_field, "data.text_field", &text));
    if (json_string_length(text) == 0) return OTT_OK;
    TRY(corpus_add_bos(&r->c));
    TRY(add_sample_text(&r->c, text, 0));
    TRY(corpus_add_eos(&r->c));
    return corpus_end(&r->c, 0);
}

static ott_status add_completion(row_reader *r, const json_t *object, int64_t row) {
    (void)row;
    const json_t *prompt, *completion;
    TRY(read_field(object, r->c.source->prompt_field, "data.prompt_field", &prompt));
    TRY(read_field(object, r->c.source->completion_field, "data.completion_field", &completion));
    TRY(corpus_add_bos(&r->c));
    TRY(add_sample_text(&r->c, prompt, 0));
    int64_t length = corpus_length(&r->c);
    TRY(add_sample_text(&r->c, completion, 0));
    TRY(corpus_add_eos(&r->c));
    return corpus_end(&r->c, length);
}

/* ---- HellaSwag ---- */

/* Reads a label, which is an integer. Hugging Face's copy of the data stores it as text. */
static bool read_label(const json_t *value, int64_t *out) {
    char *end;
    const char *text = json_string_value(value);
    if (json_is_integer(value)) return *out = json_integer_value(value), true;
    if (!text || *text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *end == 0 && errno == 0;
}

static ott_status find_ending(const json_t *object, const json_t **ending) {
    const json_t *endings, *label;
    int64_t index;
    *ending = NULL;
    TRY(json_row_field(object, "endings", &endings));
    if (!json_is_array(endings))
        return status_fail(OTT_ERR_FORMAT, "endings is %s, not a list", json_kind_name(endings));
    TRY(json_row_field(object, "label", &label));
    if (!read_label(label, &index))
        return status_fail(OTT_ERR_FORMAT, "label is %s, not an integer: HellaSwag's test rows have none",
                           json_is_string(label) && !json_string_length(label) ? "empty"
                                                                               : json_kind_name(label));
    int64_t count = (int64_t)json_array_size(endings);
    if (index < 0 || index >= count)
        return status_fail(OTT_ERR_FORMAT,
                           "label = %" PRId64 " is out of range: the row has %" PRId64 " endings", index,
                           count);
    *ending = json_array_get(endings, (size_t)index);
    if (json_is_string(*ending)) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "endings[%" PRId64 "] is %s, not a text", index,
                       json_kind_name(*ending));
}

/* AutoModel tokenizes this many rows at a time. It decides for all of them, by the first row, which special
   tokens to remove. */
#define MAP_BATCH 1000

/* Context and ending are tokenized separately, each with the tokenizer's special tokens. If a text ends with
   a special token (EOS), the context's last token is removed. If a text begins with one (BOS), the ending's
   first token is removed. */
static ott_status add_hellaswag(row_reader *r, const json_t *object, int64_t row) {
    const json_t *context, *ending;
    const tokenizer *t = r->c.source->tokenizer;
    tokenizer_ids *ids = &r->c.ids;
    unsigned flags = TOKENIZER_ADD_SPECIAL | TOKENIZER_MATCH_SPECIAL;
    TRY(json_row_text(object, "ctx", &context));
    TRY(find_ending(object, &ending));
    TRY(add_sample_text(&r->c, context, flags));
    int64_t length = corpus_length(&r->c);
    if (length == 0) return status_fail(OTT_ERR_FORMAT, "ctx has no tokens");
    bool first = row % MAP_BATCH == 0;
    if (first) r->strip_context = t && tokenizer_is_special(t, ids->ids[ids->count - 1]);
    if (r->strip_context) ids->count--, length--;
    int64_t target = ids->count;
    TRY(add_sample_text(&r->c, ending, flags));
    if (first) r->strip_target = t && ids->count > target && tokenizer_is_special(t, ids->ids[target]);
    if (r->strip_target && ids->count > target) {
        memmove(ids->ids + target, ids->ids + target + 1,
                (size_t)(ids->count - target - 1) * sizeof *ids->ids);
        ids->count--;
    }
    return corpus_end(&r->c, length);
}

/* ---- context, question and answer ---- */

/* Returns the answer without surrounding white space, like Python's strip. */
static text_view stripped(const json_t *answer) {
    text_view text = {json_string_value(answer), (int64_t)json_string_length(answer)};
    int64_t spaces = text_spaces_at_start(text, true);
    text.at += spaces;
    text.bytes -= spaces;
    text.bytes -= text_spaces_at_end(text, true);
    return text;
}

/* Adds a sample of a prompt and an answer. The tokenizer may merge the end of the prompt with the answer. So
   the prompt is also tokenized alone. If that gives n tokens, the sample's first n tokens carry no loss. */
static ott_status add_answer(corpus *c, str *prompt, text_view answer) {
    const unsigned flags = TOKENIZER_ADD_SPECIAL | TOKENIZER_MATCH_SPECIAL;
    const tokenizer *t = c->source->tokenizer;
    tokenizer_ids *ids = &c->ids;
    int64_t before = ids->count;
    TRY(str_finish(prompt));
    TRY(corpus_add(c, prompt->text, prompt->length, flags));
    int64_t unlearned = ids->count - before;
    ids->count = before;
    str_append_bytes(prompt, answer.at, answer.bytes);
    TRY(str_finish(prompt));
    TRY(corpus_add(c, prompt->text, prompt->length, flags));
    int32_t eos = t ? tokenizer_eos(t) : -1;
    bool ends = eos >= 0 && (ids->count == before || ids->ids[ids->count - 1] != eos);
    if (ends) TRY(tokenizer_ids_append(ids, eos));
    int64_t most = corpus_length(c) - ends; /* the EOS is a target */
    return corpus_end(c, unlearned < most ? unlearned : most);
}

/* Finds the answer; "" for SQuAD 2's questions without an answer. */
static ott_status find_answer(const json_t *object, text_view *out) {
    const json_t *answers, *texts;
    *out = (text_view){"", 0};
    TRY(json_row_field(object, "answers", &answers));
    texts = json_object_get(answers, "text");
    if (!json_is_array(texts))
        return status_fail(OTT_ERR_FORMAT, "answers is %s, without a list of texts under \"text\"",
                           json_kind_name(answers));
    if (json_array_size(texts) == 0) return OTT_OK;
    if (!json_is_string(json_array_get(texts, 0)))
        return status_fail(OTT_ERR_FORMAT, "answers.text[0] is %s, not a text",
                           json_kind_name(json_array_get(texts, 0)));
    *out = stripped(json_array_get(texts, 0));
    return OTT_OK;
}

static ott_status add_squad(row_reader *r, const json_t *object, int64_t row) {
    (void)row;
    const json_t *context, *question;
    text_view answer;
    str prompt = {.account = r->c.ids.account};
    TRY(json_row_text(object, "context", &context));
    TRY(json_row_text(object, "question", &question));
    TRY(find_answer(object, &answer));
    str_append(&prompt, "Context: ");
    str_append_bytes(&prompt, json_string_value(context), (int64_t)json_string_length(context));
    str_append(&prompt, " Question: ");
    str_append_bytes(&prompt, json_string_value(question), (int64_t)json_string_length(question));
    str_append(&prompt, " Answer: ");
    ott_status status = add_answer(&r->c, &prompt, answer);
    str_free(&prompt);
    return status;
}

static ott_status append_field(const json_t *object, const char *field, const char *key, str *prompt) {
    const json_t *text;
    if (!*field) return OTT_OK;
    TRY(read_field(object, field, key, &text));
    str_append_bytes(prompt, json_string_value(text), (int64_t)json_string_length(text));
    str_append(prompt, " ");
    return OTT_OK;
}

static ott_status add_instruction(row_reader *r, const json_t *object, int64_t row) {
    (void)row;
    const dataset_source *s = r->c.source;
    const json_t *answer;
    str prompt = {.account = r->c.ids.account};
    TRY(read_field(object, s->completion_field, "data.completion_field", &answer));
    ott_status status = append_field(object, s->context_field, "data.context_field", &prompt);
    if (status == OTT_OK) status = append_field(object, s->prompt_field, "data.prompt_field", &prompt);
    text_view text = {json_string_value(answer), (int64_t)json_string_length(answer)};
    if (status == OTT_OK) status = add_answer(&r->c, &prompt, text);
    str_free(&prompt);
    return status;
}

/* ---- conversations ---- */

static ott_status encode_row(row_reader *r, const json_t *object, tokenizer_ids *ids) {
    chat_row row;
    TRY(chat_row_read(object, &row));
    ott_status status = chat_encode(r->template, r->c.scratch, &(chat_conversation){row.messages, row.tools},
                                    ids, &r->learned);
    chat_row_close(&row);
    return status;
}

static ott_status add_conversation(row_reader *r, const json_t *object, int64_t row) {
    tokenizer_ids ids = {.account = r->c.ids.account};
    bool learns = false;
    (void)row;
    ott_status status = encode_row(r, object, &ids);
    for (int64_t i = 0; status == OTT_OK && i < ids.count && !learns; i++) learns = r->learned[i];
    if (status == OTT_OK && !learns)
        status = status_fail(OTT_ERR_FORMAT, "no message is the assistant's: there is nothing to learn");
    if (status == OTT_OK) status = corpus_add_ids(&r->c, &ids);
    if (status == OTT_OK) status = corpus_end_learned(&r->c, r->learned);
    tokenizer_ids_free(&ids);
    return status;
}

/* ---- rows ---- */

static ott_status read_jsonl_row(row_reader *r, text_view text, int64_t row) {
    json_error_t error;
    json_t *object;
    TRY(json_row_parse(text.at, text.bytes, &object, &error));
    if (!object)
        return status_fail(OTT_ERR_FORMAT, "is not JSON: %s at byte %d of the row", error.text,
                           error.position);
    ott_status status = json_is_object(object)
                            ? r->add(r, object, row)
                            : status_fail(OTT_ERR_FORMAT, "is %s, not a JSON object", json_kind_name(object));
    json_decref(object);
    return status;
}

static ott_status read_jsonl_rows(row_reader *r, const char *path, const char *text, int64_t bytes) {
    data_rows rows = data_rows_begin(text, bytes);
    text_view row;
    for (;;) {
        TRY(cancellation_check(r->c.source->cancellation));
        ott_status status = data_rows_next(&rows, &row);
        if (status == OTT_OK && !row.at) return OTT_OK;
        int64_t number = r->rows++;
        bool wanted = !r->counting && number >= r->begin && number < r->end;
        if (status == OTT_OK && wanted) status = read_jsonl_row(r, row, number - r->begin);
        if (status == OTT_ERR_STOPPED) return status;
        if (status != OTT_OK) return status_context(status, "%s:%" PRId64, path, rows.line);
    }
}

static ott_status read_row_files(row_reader *r) {
    mem *account = r->c.ids.account;
    r->rows = 0;
    for (int64_t i = 0; i < r->c.source->count; i++) {
        char *text;
        int64_t bytes;
        const char *path = r->c.source->paths[i];
        TRY(dataset_file_read(account, path, r->c.source->cancellation, &text, &bytes));
        ott_status status =
            bytes ? read_jsonl_rows(r, path, text, bytes) : status_fail(OTT_ERR_FORMAT, "%s: is empty", path);
        mem_free(account, text);
        TRY(status);
    }
    return OTT_OK;
}

/* Sets the range of rows to read. If only a share of the rows is read, a first pass counts them. */
static ott_status choose_rows(row_reader *r) {
    const dataset_source *s = r->c.source;
    r->end = INT64_MAX;
    if (s->from_share > 0 || s->to_share < 1) {
        r->counting = true;
        TRY(read_row_files(r));
        r->counting = false;
        r->begin = (int64_t)floor(s->from_share * (double)r->rows);
        if (s->to_share < 1) r->end = (int64_t)floor(s->to_share * (double)r->rows);
    }
    if (s->limit > 0 && r->end - r->begin > s->limit) r->end = r->begin + s->limit;
    return OTT_OK;
}

static ott_status open_jsonl_rows(mem *account, const dataset_source *s, add_row add, bool samples,
                                  dataset **out) {
    row_reader r = {.add = add};
    ott_status status;
    *out = NULL;
    TRY(dataset_check_share(s));
    TRY(corpus_open(account, s, samples, &r.c));
    if (add == add_conversation)
        TRY_OUT(chat_open(account, s->tokenizer,
                          &(chat_settings){.cancellation = s->cancellation, .date = s->chat_date},
                          &r.template));
    TRY_OUT(choose_rows(&r));
    TRY_OUT(read_row_files(&r));
    if (r.c.documents == 0)
        TRY_OUT(status_fail(OTT_ERR_FORMAT, "%s: has no rows with text%s", s->paths[0],
                            r.rows > 0 ? " in the part that is read" : ""));
    TRY_OUT(corpus_finish(&r.c, out));
out:
    chat_close(r.template);
    mem_free(account, r.learned);
    corpus_close(&r.c);
    return status;
}

ott_status dataset_open_jsonl(mem *account, const dataset_source *s, dataset **out) {
    bool completions = s->prompt_field[0] != 0;
    return open_jsonl_rows(account, s, completions ? add_completion : add_jsonl_document, completions, out);
}

ott_status dataset_open_hellaswag(mem *account, const dataset_source *s, dataset **out) {
    return open_jsonl_rows(account, s, add_hellaswag, true, out);
}

ott_status dataset_open_squad(mem *account, const dataset_source *s, dataset **out) {
    return open_jsonl_rows(account, s, add_squad, true, out);
}

ott_status dataset_open_instructions(mem *account, const dataset_source *s, dataset **out) {
    return open_jsonl_rows(account, s, add_instruction, true, out);
}

ott_status dataset_open_chat(mem *account, const dataset_source *s, dataset **out) {
    return open_jsonl_rows(account, s, add_conversation, true, out);
}

/* ---- kinds of rows ---- */

#define FIRST_ROW_LIMIT (4 << 20) /* maximum bytes of a file's first row */

static dataset_row_kind row_kind(const json_t *row) {
    static const struct {
        dataset_row_kind kind;
        const char *fields[3];
    } kinds[] = {{ROWS_HELLASWAG, {"ctx", "endings", "label"}},
                 {ROWS_SQUAD, {"context", "question", "answers"}},
                 {ROWS_MESSAGES, {"messages", "messages", "messages"}},
                 {ROWS_MESSAGES, {"conversations", "conversations", "conversations"}},
                 {ROWS_ALPACA, {"instruction", "output", "output"}}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int found = 0;
        for (int k = 0; k < 3; k++) found += json_object_get(row, kinds[i].fields[k]) != NULL;
        if (found == 3) return kinds[i].kind;
    }
    return ROWS_OTHER;
}

ott_status dataset_first_row(mem *account, const char *path, dataset_row_kind *out) {
    file_reader r;
    void *memory = NULL;
    ott_status status;
    *out = ROWS_OTHER;
    TRY(file_reader_open(path, &r));
    json_t *row = NULL;
    json_error_t error;
    int64_t bytes = r.bytes < FIRST_ROW_LIMIT ? r.bytes : FIRST_ROW_LIMIT;
    TRY_OUT(mem_alloc(account, MEM_OTHER, bytes + 1, "the first row", &memory));
    TRY_OUT(file_reader_read(&r, 0, memory, bytes));
    data_rows rows = data_rows_begin(memory, bytes);
    text_view first;
    if (data_rows_next(&rows, &first) != OTT_OK || !first.at) goto out; /* the full read reports the error */
    TRY_OUT(json_row_parse(first.at, first.bytes, &row, &error));
    *out = row_kind(row);
    json_decref(row);
out:
    mem_free(account, memory);
    file_reader_close(&r);
    return status;
}
