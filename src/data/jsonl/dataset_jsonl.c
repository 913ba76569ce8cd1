/* data/jsonl/dataset_jsonl: reads files with a JSON object on each line: documents, prompts with completions,
   HellaSwag, SQuAD, instructions and conversations. */
#include "base/json/json_member.h"
#include "base/json/json_text.h"
#include "data/jsonl/chat_row.h"
#include "data/corpus.h"
#include "data/jsonl/row_text.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct row_reader row_reader;
/* Adds the sample or document of a JSON row to the corpus r->c. */
typedef ott_status (*add_row)(row_reader *r, const json_t *object);

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

static text_view json_view(const json_t *text) {
    return (text_view){json_string_value(text), (int64_t)json_string_length(text)};
}

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

static ott_status add_plain(row_reader *r, const json_t *object) {
    const dataset_source *s = r->c.source;
    const json_t *prompt, *text;
    if (!r->c.samples) {
        TRY(read_field(object, s->text_field, "data.text_field", &text));
        return corpus_add_document(&r->c, json_string_value(text), (int64_t)json_string_length(text));
    }
    TRY(read_field(object, s->prompt_field, "data.prompt_field", &prompt));
    TRY(read_field(object, s->completion_field, "data.completion_field", &text));
    TRY(corpus_add_bos(&r->c));
    TRY(add_sample_text(&r->c, prompt, 0));
    int64_t length = corpus_length(&r->c);
    TRY(add_sample_text(&r->c, text, 0));
    TRY(corpus_add_eos(&r->c));
    return corpus_end(&r->c, length, NULL);
}

/* ---- HellaSwag ---- */

/* Reads a label, which is an integer. Hugging Face's copy of the data stores it as text. */
static bool read_ending_label(const json_t *value, int64_t *out) {
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
    if (!read_ending_label(label, &index))
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
static ott_status add_hellaswag(row_reader *r, const json_t *object) {
    const json_t *context, *ending;
    const tokenizer *t = r->c.source->tokenizer;
    tokenizer_ids *ids = &r->c.ids;
    unsigned flags = TOKENIZER_ADD_SPECIAL | TOKENIZER_MATCH_SPECIAL;
    TRY(json_row_text(object, "ctx", &context));
    TRY(find_ending(object, &ending));
    TRY(add_sample_text(&r->c, context, flags));
    int64_t length = corpus_length(&r->c);
    if (length == 0) return status_fail(OTT_ERR_FORMAT, "ctx has no tokens");
    bool first = (r->rows - 1 - r->begin) % MAP_BATCH == 0;
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
    return corpus_end(&r->c, length, NULL);
}

/* ---- context, question and answer ---- */

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
    return corpus_end(c, unlearned < most ? unlearned : most, NULL);
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
    *out = json_view(json_array_get(texts, 0)); /* without surrounding white space, like Python's strip */
    int64_t spaces = text_spaces_at_start(*out, true);
    *out = (text_view){out->at + spaces, out->bytes - spaces};
    out->bytes -= text_spaces_at_end(*out, true);
    return OTT_OK;
}

static ott_status add_squad(row_reader *r, const json_t *object) {
    static const char *const marks[] = {"Context: ", " Question: "};
    static const char *const fields[] = {"context", "question"};
    const json_t *text[2];
    text_view answer;
    str prompt = {.account = r->c.ids.account};
    for (int i = 0; i < 2; i++) TRY(json_row_text(object, fields[i], &text[i]));
    TRY(find_answer(object, &answer));
    for (int i = 0; i < 2; i++) {
        str_append(&prompt, marks[i]);
        str_append_bytes(&prompt, json_string_value(text[i]), (int64_t)json_string_length(text[i]));
    }
    str_append(&prompt, " Answer: ");
    ott_status status = add_answer(&r->c, &prompt, answer);
    str_free(&prompt);
    return status;
}

static ott_status add_instruction(row_reader *r, const json_t *object) {
    const dataset_source *s = r->c.source;
    const char *const fields[] = {s->context_field, s->prompt_field};
    static const char *const keys[] = {"data.context_field", "data.prompt_field"};
    const json_t *answer, *text;
    str prompt = {.account = r->c.ids.account};
    ott_status status;
    TRY_OUT(read_field(object, s->completion_field, "data.completion_field", &answer));
    for (int i = 0; i < 2; i++) {
        if (!*fields[i]) continue;
        TRY_OUT(read_field(object, fields[i], keys[i], &text));
        str_append_bytes(&prompt, json_string_value(text), (int64_t)json_string_length(text));
        str_append(&prompt, " ");
    }
    status = add_answer(&r->c, &prompt, json_view(answer));
out:
    str_free(&prompt);
    return status;
}

/* ---- conversations ---- */

static ott_status add_conversation(row_reader *r, const json_t *object) {
    tokenizer_ids ids = {.account = r->c.ids.account};
    chat_conversation conversation;
    bool learns = false;
    TRY(chat_row_read(object, &conversation));
    ott_status status = chat_encode(r->template, r->c.scratch, &conversation, &ids, &r->learned);
    chat_row_close(&conversation);
    for (int64_t i = 0; status == OTT_OK && i < ids.count && !learns; i++) learns = r->learned[i];
    if (status == OTT_OK && !learns)
        status = status_fail(OTT_ERR_FORMAT, "no message is the assistant's: there is nothing to learn");
    if (status == OTT_OK) status = corpus_add_ids(&r->c, &ids);
    if (status == OTT_OK) status = corpus_end(&r->c, 0, r->learned);
    tokenizer_ids_free(&ids);
    return status;
}

/* ---- rows ---- */

static ott_status read_jsonl_row(row_reader *r, text_view text) {
    json_t *object;
    TRY(data_row_object(text, "row", &object));
    ott_status status = r->add(r, object);
    json_decref(object);
    return status;
}

static ott_status read_jsonl_rows(row_reader *r, const char *path, row_file *file) {
    text_view row;
    for (;;) {
        TRY(cancellation_check(r->c.source->cancellation));
        TRY(row_file_next(file, &row));
        if (!row.at) return OTT_OK;
        int64_t number = r->rows++;
        bool wanted = !r->counting && number >= r->begin && number < r->end;
        ott_status status = wanted ? read_jsonl_row(r, row) : OTT_OK;
        if (status == OTT_ERR_STOPPED) return status;
        if (status != OTT_OK) return status_context(status, "%s:%" PRId64, path, file->rows.line);
    }
}

static ott_status read_row_files(row_reader *r) {
    r->rows = 0;
    for (int64_t i = 0; i < r->c.source->count; i++) {
        row_file file;
        const char *path = r->c.source->paths[i];
        TRY(row_file_open(r->c.ids.account, path, &file));
        ott_status status = read_jsonl_rows(r, path, &file);
        row_file_close(&file);
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

ott_status dataset_open_rows(mem *account, const dataset_source *s, dataset_row_kind kind, dataset **out) {
    static const add_row adders[] = {[ROWS_OTHER] = add_plain,           [ROWS_HELLASWAG] = add_hellaswag,
                                     [ROWS_SQUAD] = add_squad,           [ROWS_INSTRUCTION] = add_instruction,
                                     [ROWS_MESSAGES] = add_conversation, [ROWS_ALPACA] = add_conversation};
    row_reader r = {.add = adders[kind]};
    ott_status status;
    *out = NULL;
    TRY(dataset_check_share(s));
    TRY(corpus_open(account, s, kind != ROWS_OTHER || *s->prompt_field, &r.c));
    if (r.add == add_conversation)
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
    text_file *file;
    void *memory = NULL;
    ott_status status;
    *out = ROWS_OTHER;
    TRY(text_file_open(account, path, &file));
    json_t *row = NULL;
    json_error_t error;
    int64_t bytes;
    TRY_OUT(mem_alloc(account, MEM_OTHER, FIRST_ROW_LIMIT, "the first row", &memory));
    TRY_OUT(text_file_read(file, memory, FIRST_ROW_LIMIT, &bytes));
    data_rows rows = data_rows_begin(memory, bytes);
    text_view first;
    if (data_rows_next(&rows, &first) != OTT_OK || !first.at) goto out; /* the full read reports the error */
    TRY_OUT(json_row_parse(first.at, first.bytes, &row, &error));
    *out = row_kind(row);
    json_decref(row);
out:
    mem_free(account, memory);
    text_file_close(file);
    return status;
}
