/* eval/row: lm-eval's rules for the texts of HellaSwag (EleutherAI lm-evaluation-harness,
   tasks/hellaswag/utils.py). As in Python, a character is a code point, and white space is Unicode's. */
#include "eval/row.h"
#include "base/json/json_member.h"
#include "base/json/json_text.h"

/* Replaces `from` by `to` everywhere, in one pass from left to right. */
static void replace_all_text(const str *in, const char *from, const char *to, str *out) {
    const char *at = in->text ? in->text : "", *end = at + in->length, *found;
    size_t size = strlen(from);
    while ((found = memmem(at, (size_t)(end - at), from, size))) {
        str_append_bytes(out, at, found - at);
        str_append(out, to);
        at = found + size;
    }
    str_append_bytes(out, at, end - at);
}

/* Like Python's re.sub("\\[.*?\\]", ""): removes text in brackets that is on one line. */
static void drop_brackets(const str *in, str *out) {
    const char *at = in->text ? in->text : "", *end = at + in->length;
    while (at < end) {
        const char *open = memchr(at, '[', (size_t)(end - at));
        if (!open) open = end;
        str_append_bytes(out, at, open - at);
        const char *close = open < end ? memchr(open, ']', (size_t)(end - open)) : NULL;
        bool one_line = close && !memchr(open, '\n', (size_t)(close - open));
        if (!one_line && open < end) str_append_bytes(out, open, 1);
        at = one_line ? close + 1 : open + (open < end);
    }
}

void eval_clean(text_view text, str *out) {
    str stripped = {.account = out->account}, titled = {.account = out->account},
        plain = {.account = out->account};
    int64_t first = text_spaces_at_start(text, true), last = text.bytes - text_spaces_at_end(text, true);
    if (first < last) str_append_bytes(&stripped, text.at + first, last - first);
    replace_all_text(&stripped, " [title]", ". ", &titled);
    drop_brackets(&titled, &plain);
    replace_all_text(&plain, "  ", " ", out);
    out->failed = out->failed || stripped.failed || titled.failed || plain.failed;
    str_free(&stripped);
    str_free(&titled);
    str_free(&plain);
}

static ott_status read_text_member(const json_t *object, const char *name, text_view *out) {
    const json_t *value;
    TRY(json_row_text(object, name, &value));
    *out = (text_view){json_string_value(value), (int64_t)json_string_length(value)};
    return OTT_OK;
}

static ott_status read_endings(const json_t *object, eval_row *row) {
    const json_t *endings;
    TRY(json_row_field(object, "endings", &endings));
    TRY(json_member(object, "endings", JSON_KIND_LIST, JSON_NEEDED, &endings));
    if (json_array_size(endings) != EVAL_ENDINGS)
        return status_fail(OTT_ERR_FORMAT, "endings has %zu texts; HellaSwag has %d",
                           json_array_size(endings), EVAL_ENDINGS);
    for (size_t i = 0; i < EVAL_ENDINGS; i++) {
        const json_t *ending = json_array_get(endings, i);
        if (!json_is_string(ending))
            return status_fail(OTT_ERR_FORMAT, "endings[%zu] is %s, not a text", i, json_kind_name(ending));
        row->raw_ending[i] = (text_view){json_string_value(ending), (int64_t)json_string_length(ending)};
    }
    return OTT_OK;
}

/* Reads the label: an integer, or a text with an integer, as in Hugging Face's copy of the data. */
static ott_status read_row_label(const json_t *object, int *out) {
    const json_t *value;
    TRY(json_row_field(object, "label", &value));
    const char *text = json_string_value(value);
    if (text && !*text) return status_fail(OTT_ERR_FORMAT, "label is empty: HellaSwag's test rows have none");
    int64_t label = -1;
    if (json_is_integer(value)) label = json_integer_value(value);
    if (text && text[0] >= '0' && text[0] <= '9' && !text[1]) label = text[0] - '0';
    if (label < 0 || label >= EVAL_ENDINGS) return status_fail(OTT_ERR_FORMAT, "label is not 0, 1, 2 or 3");
    *out = (int)label;
    return OTT_OK;
}

/* Writes clean(activity_label + ": " + ctx_a + " " + ctx_b.capitalize()). */
static ott_status make_query(const json_t *object, str *out) {
    text_view label, a, b;
    str query = {.account = out->account};
    TRY(read_text_member(object, "activity_label", &label));
    TRY(read_text_member(object, "ctx_a", &a));
    TRY(read_text_member(object, "ctx_b", &b));
    str_append_bytes(&query, label.at, label.bytes);
    str_append(&query, ": ");
    str_append_bytes(&query, a.at, a.bytes);
    str_append(&query, " ");
    text_change_case(b, TEXT_CAPITAL, &query);
    if (str_finish(&query) == OTT_OK) eval_clean((text_view){query.text, query.length}, out);
    out->failed = out->failed || query.failed;
    str_free(&query);
    return OTT_OK;
}

/* Writes context and endings to row->memory, which may move as it grows. Then sets the pointers to them. */
static ott_status make_row_texts(eval_row *row) {
    int64_t end[EVAL_ENDINGS + 1];
    if (json_object_get(row->object, "activity_label") && json_object_get(row->object, "ctx_a") &&
        json_object_get(row->object, "ctx_b"))
        TRY(make_query(row->object, &row->memory));
    else
        eval_clean(row->raw_context, &row->memory);
    end[0] = row->memory.length;
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        eval_clean(row->raw_ending[i], &row->memory);
        end[i + 1] = row->memory.length;
    }
    TRY(str_finish(&row->memory));
    const char *text = row->memory.text ? row->memory.text : "";
    row->context = (text_view){text, end[0]};
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        row->ending[i] = (text_view){text + end[i], end[i + 1] - end[i]};
        row->characters[i] = text_characters(row->ending[i]);
        if (row->characters[i] == 0)
            return status_fail(OTT_ERR_FORMAT,
                               "endings[%d] has no text: its loss for each character is undefined", i);
    }
    return OTT_OK;
}

/* Reads ctx. If the row has none, makes it from ctx_a and ctx_b, as in the published data. */
static ott_status read_context(eval_row *row) {
    text_view a, b;
    if (json_object_get(row->object, "ctx")) return read_text_member(row->object, "ctx", &row->raw_context);
    if (!json_object_get(row->object, "ctx_a"))
        return status_fail(OTT_ERR_FORMAT, "the row has neither ctx_a and ctx_b nor ctx");
    TRY(read_text_member(row->object, "ctx_a", &a));
    TRY(read_text_member(row->object, "ctx_b", &b));
    json_t *joined = json_sprintf("%.*s%s%.*s", (int)a.bytes, a.at, b.bytes ? " " : "", (int)b.bytes, b.at);
    if (!joined || json_object_set_new(row->object, "ctx", joined) != 0)
        return status_fail(OTT_ERR_MEMORY, "out of memory: a row");
    return read_text_member(row->object, "ctx", &row->raw_context);
}

ott_status eval_row_read(mem *account, const char *line, int64_t bytes, eval_row *out) {
    json_error_t error;
    *out = (eval_row){.memory = {.account = account}};
    TRY(json_text_parse(line, bytes, JSON_REJECT_DUPLICATES, &out->object, &error));
    if (!out->object)
        return status_fail(OTT_ERR_FORMAT, "is not JSON: %s at byte %d of the line", error.text,
                           error.position);
    if (!json_is_object(out->object)) return status_fail(OTT_ERR_FORMAT, "is not a JSON object");
    TRY(read_context(out));
    TRY(read_endings(out->object, out));
    TRY(read_row_label(out->object, &out->label));
    return make_row_texts(out);
}

void eval_row_free(eval_row *row) {
    json_decref(row->object);
    str_free(&row->memory);
    row->object = NULL;
}
