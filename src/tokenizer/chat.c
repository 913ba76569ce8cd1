/* tokenizer/chat: finds the template, renders conversations, and marks the assistant's tokens. */
#include "tokenizer/chat.h"
#include "base/file/file.h"
#include "base/text/text.h"
#include "tokenizer/internal.h"
#include <inttypes.h>
#include <stdlib.h>

struct chat {
    mem *account;
    const tokenizer *tokenizer;
    jinja *template;
    char path[PATH_MAX]; /* path of the template's file */
    const cancellation *cancellation;
    struct tm today;
    bool has_date;
};

/* Maximum steps (jinja.h) of all renderings of a conversation together; there may be one per message. */
enum { ROW_STEPS_MOST = 2 * JINJA_STEPS_MOST };

/* ---- the date ---- */

static ott_status read_date(const char *date, struct tm *out) {
    struct tm day = {0};
    char again[40] = "";
    const char *end = strptime(date, "%Y-%m-%d", &day);
    const time_t seconds = end && *end == '\0' ? timegm(&day) : -1;
    if (seconds != -1 && gmtime_r(&seconds, out))
        snprintf(again, sizeof again, "%04d-%02d-%02d", out->tm_year + 1900, out->tm_mon + 1, out->tm_mday);
    /* a text that is no date, or 2026-02-30, comes back different */
    if (strcmp(again, date) == 0) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "data.chat_date = \"%s\" is not a date: set it to a date such as 2026-11-24, or to \"undefined\"",
        str_show(date).text);
}

void chat_today(char out[11]) {
    struct tm day;
    time_t now = time(NULL);
    if (!localtime_r(&now, &day) || text_strftime(out, 11, "%Y-%m-%d", &day) != 10) *out = 0;
}

/* ---- the template ---- */

static const json_t *choose_template(const json_t *value) {
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++) {
        const json_t *named = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(named, "name"));
        if (name && strcmp(name, "default") == 0) return json_object_get(named, "template");
    }
    return value;
}

static ott_status read_template_member(chat *c, str *out) {
    json_t *config;
    TRY(json_read_file(c->account, c->path, JSON_DECODE_INT_AS_REAL, &config));
    const json_t *text = choose_template(json_object_get(config, "chat_template"));
    ott_status status = OTT_OK;
    if (json_is_string(text))
        str_append_bytes(out, json_string_value(text), (int64_t)json_string_length(text));
    else
        status = text ? status_fail(OTT_ERR_FORMAT,
                                    "%s: chat_template is neither a text nor a list with a \"default\" one",
                                    c->path)
                      : status_fail(OTT_ERR_NOT_FOUND,
                                    "%s: has no chat_template, and its folder has no chat_template.jinja",
                                    c->path);
    json_decref(config);
    return status == OTT_OK ? str_finish(out) : status;
}

static ott_status read_chat_template(chat *c, str *out) {
    const tokenizer *t = c->tokenizer;
    if (t->is_gguf) {
        TRY(file_path(c->path, "%s", t->path));
        if (!t->chat_template)
            return status_fail(OTT_ERR_NOT_FOUND, "%s: has no tokenizer.chat_template", t->path);
        str_append_bytes(out, t->gguf_template.at, t->gguf_template.bytes);
        return str_finish(out);
    }
    if (tokenizer_neighbour(c->tokenizer, "chat_template.jinja", c->path) && file_exists(c->path)) {
        char *text;
        int64_t bytes;
        TRY(file_read(c->account, c->path, JINJA_TEXT_MOST, &text, &bytes));
        str_append_bytes(out, text, bytes);
        mem_free(c->account, text);
        return str_finish(out);
    }
    tokenizer_neighbour(c->tokenizer, "tokenizer_config.json", c->path);
    return read_template_member(c, out);
}

ott_status chat_read(mem *account, const tokenizer *t, str *out) {
    chat c = {.account = account, .tokenizer = t};
    return read_chat_template(&c, out);
}

static ott_status parse_template(chat *c, const char *date) {
    str text = {.account = c->account};
    char today[11];
    chat_today(today);
    c->has_date = date && strcmp(date, "undefined") != 0;
    if (c->has_date) TRY(read_date(*date ? date : today, &c->today));
    ott_status status = read_chat_template(c, &text);
    if (status == OTT_OK)
        status = status_context(jinja_open(c->account, text.text, text.length, &c->template),
                                "%s: chat template", c->path);
    str_free(&text);
    return status;
}

ott_status chat_open(mem *account, const tokenizer *t, const chat_settings *settings, chat **out) {
    chat *c;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(chat), "chat template", &c));
    *c = (chat){.account = account, .tokenizer = t, .cancellation = settings->cancellation};
    ott_status status = parse_template(c, settings->date);
    if (status != OTT_OK) return chat_close(c), status;
    return *out = c, OTT_OK;
}

void chat_close(chat *c) {
    if (!c) return;
    jinja_close(c->template);
    mem_free(c->account, c);
}

/* ---- rendering ---- */

static const char *token_text(const chat *c, int32_t id) {
    const char *text = id >= 0 ? tokenizer_token(c->tokenizer, id) : NULL;
    return text ? text : "";
}

static ott_status make_context(const chat *c, const chat_conversation *conversation, bool asks,
                               json_t **out) {
    *out = json_pack("{s:O, s:O?, s:b, s:s, s:s}", "messages", conversation->messages, "tools",
                     conversation->tools, "add_generation_prompt", asks, "bos_token",
                     token_text(c, tokenizer_bos(c->tokenizer)), "eos_token",
                     token_text(c, tokenizer_eos(c->tokenizer)));
    return *out ? OTT_OK : status_fail(OTT_ERR_MEMORY, "out of memory for the variables of a chat template");
}

/* Rendering state of a conversation. Its messages have no null members. */
typedef struct rendering {
    const chat *c;
    const json_t *tools;
    jinja_budget budget;
    jinja_settings settings;
} rendering;

static void begin_rendering(rendering *r, const chat *c, const json_t *tools) {
    *r = (rendering){.c = c, .tools = tools, .budget = {.most = ROW_STEPS_MOST}};
    r->settings = (jinja_settings){
        .cancellation = c->cancellation, .budget = &r->budget, .today = c->has_date ? &c->today : NULL};
}

typedef struct prefix_texts {
    jinja_prefix *items; /* [count] prefixes of a conversation */
    int64_t count;
    str *tails;
} prefix_texts;

/* Appends the text of the messages to `out`. generation: receives the spans inside {% generation %}.
   prefixes: receives the texts of the first messages. At least one of these two must be NULL. */
static ott_status render_messages(rendering *r, const json_t *messages, bool asks, str *out,
                                  jinja_spans *generation, const prefix_texts *prefixes) {
    json_t *context;
    const jinja *t = r->c->template;
    ott_status status = make_context(r->c, &(chat_conversation){messages, r->tools}, asks, &context);
    if (status == OTT_OK)
        status = prefixes ? jinja_render_prefixes(t, context, &r->settings, out, prefixes->items,
                                                  prefixes->count, prefixes->tails)
                          : jinja_render(t, context, &r->settings, out, generation);
    json_decref(context);
    return status == OTT_ERR_STOPPED ? status : status_context(status, "%s: chat template", r->c->path);
}

static json_t *without_nulls(json_t *message) {
    const char *key;
    json_t *value, *out = json_copy(message);
    void *next;
    json_object_foreach_safe(out, next, key, value) {
        if (json_is_null(value)) json_object_del(out, key);
    }
    return out;
}

/* Removes null members: templates accept missing members, but print or refuse null. Release the result with
   json_decref. */
static ott_status clean_messages(const json_t *messages, json_t **out) {
    const size_t count = json_array_size(messages);
    *out = json_array();
    if (!*out) return status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
    for (size_t i = 0; i < count; i++) {
        json_t *message = json_array_get(messages, i);
        if (!json_is_object(message))
            return status_fail(OTT_ERR_FORMAT, "messages[%zu] is %s, not an object with a role and a content",
                               i, json_kind_name(message));
        json_t *clean = without_nulls(message);
        if (!clean || json_array_append_new(*out, clean) != 0)
            return status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
    }
    return OTT_OK;
}

ott_status chat_render(const chat *c, const chat_conversation *conversation, bool asks, str *out) {
    rendering r;
    json_t *messages;
    begin_rendering(&r, c, conversation->tools);
    ott_status status = clean_messages(conversation->messages, &messages);
    if (status == OTT_OK) status = render_messages(&r, messages, asks, out, NULL, NULL);
    json_decref(messages);
    return status;
}

/* ---- turns ---- */

typedef struct encoder {
    rendering r;
    tokenizer_scratch *s;
    json_t *messages;
    str text;          /* text of the full conversation */
    jinja_spans turns; /* the assistant's turns in the text */
} encoder;

static bool is_assistant(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

static ott_status first_messages(const json_t *messages, size_t count, json_t **out) {
    *out = json_copy((json_t *)messages);
    while (*out && json_array_size(*out) > count) json_array_remove(*out, json_array_size(*out) - 1);
    return *out ? OTT_OK : status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
}

static ott_status fail_not_prefix(const encoder *e, int64_t count) {
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s: chat template: the conversation does not begin with the text of its first %" PRId64
        " messages, so the ends of assistant turns are unknown; mark the turns in the "
        "template with {%% generation %%}",
        e->r.c->path, count);
}

static bool text_begins_with(const encoder *e, int64_t at, const char *part, int64_t bytes) {
    return bytes <= e->text.length - at &&
           (bytes == 0 || memcmp(e->text.text + at, part, (size_t)bytes) == 0);
}

/* Renders only the first `count` messages. *out: the number of bytes of their text. */
static ott_status measure_prefix(encoder *e, int64_t count, bool asks, int64_t *out) {
    str part = {.account = e->r.c->account};
    json_t *first;
    TRY(first_messages(e->messages, (size_t)count, &first));
    ott_status status = render_messages(&e->r, first, asks, &part, NULL, NULL);
    json_decref(first);
    *out = part.length;
    if (status == OTT_ERR_UNSUPPORTED && e->r.budget.taken > ROW_STEPS_MOST)
        status = status_fail(OTT_ERR_UNSUPPORTED,
                             "%s: chat template: the template reads how many messages follow, so it is "
                             "rendered again for each of the assistant's turns, and %zu messages take more "
                             "than %d steps; mark the turns in the template with {%% generation %%}",
                             e->r.c->path, json_array_size(e->messages), ROW_STEPS_MOST);
    if (status == OTT_OK && !text_begins_with(e, 0, part.text, part.length))
        status = fail_not_prefix(e, count);
    str_free(&part);
    return status;
}

/* Sets *out to the length of the text of the first p->count messages. Fails if e->text does not begin with
   this text. same: number of bytes that e->text has in common with the rendered text that p refers to. */
static ott_status find_prefix_end(encoder *e, const jinja_prefix *p, const str *tails, int64_t same,
                                  bool asks, int64_t *out) {
    if (!p->known) return measure_prefix(e, p->count, asks, out);
    *out = p->shared + p->bytes;
    if (p->shared > same || !text_begins_with(e, p->shared, tails->text + p->at, p->bytes))
        return fail_not_prefix(e, p->count);
    return OTT_OK;
}

/* Allocates a prefix for each assistant message. It has the messages before index which[i] and, if `with`,
   this message. */
static ott_status plan_prefixes(const encoder *e, const int64_t *which, bool with, prefix_texts *out) {
    mem *account = e->r.c->account;
    TRY(mem_alloc_array(account, MEM_OTHER, e->turns.count, sizeof *out->items, "turns of a conversation",
                        &out->items));
    out->count = e->turns.count;
    for (int64_t i = 0; i < out->count; i++) out->items[i].count = which[i] + with;
    return OTT_OK;
}

/* Renders e->text. The end of a turn is the length of the text of the messages up to and with this turn. */
static ott_status find_ends(encoder *e, const int64_t *which) {
    str tails = {.account = e->r.c->account};
    prefix_texts p = {.tails = &tails};
    const int64_t all = (int64_t)json_array_size(e->messages);
    ott_status status = plan_prefixes(e, which, true, &p);
    if (p.count > 0 && which[p.count - 1] + 1 == all) p.count--;
    if (status == OTT_OK) status = render_messages(&e->r, e->messages, false, &e->text, NULL, &p);
    for (int64_t i = 0; status == OTT_OK && i < e->turns.count; i++) {
        e->turns.items[i].end = e->text.length;
        if (i < p.count)
            status = find_prefix_end(e, &p.items[i], &tails, e->text.length, false, &e->turns.items[i].end);
    }
    mem_free(e->r.c->account, p.items);
    str_free(&tails);
    return status;
}

static int64_t same_bytes(const str *a, const str *b) {
    int64_t same = 0, most = a->length < b->length ? a->length : b->length;
    while (same < most && a->text[same] == b->text[same]) same++;
    return same;
}

/* Sets the begin of each turn: the end of the earlier messages and the generation prompt. One rendering, of
   the messages before the last turn, also finds the begin of the earlier turns. */
static ott_status find_begins(encoder *e, const int64_t *which) {
    str asking = {.account = e->r.c->account}, tails = {.account = e->r.c->account};
    prefix_texts p = {.tails = &tails};
    json_t *before_last = NULL;
    ott_status status = plan_prefixes(e, which, false, &p);
    if (status != OTT_OK || p.count == 0) goto out;
    const int64_t last = --p.count, skip = which[0] == 0; /* 0 messages: render the prefix separately */
    const prefix_texts later = {p.items + skip, p.count > skip ? p.count - skip : 0, p.tails};
    TRY_OUT(first_messages(e->messages, (size_t)which[last], &before_last));
    TRY_OUT(render_messages(&e->r, before_last, true, &asking, NULL, &later));
    const int64_t same = same_bytes(&asking, &e->text);
    e->turns.items[last].begin = asking.length;
    if (same < asking.length) TRY_OUT(fail_not_prefix(e, which[last]));
    for (int64_t i = 0; status == OTT_OK && i < last; i++)
        TRY_OUT(find_prefix_end(e, &p.items[i], &tails, same, true, &e->turns.items[i].begin));
out:
    json_decref(before_last);
    mem_free(e->r.c->account, p.items);
    str_free(&asking);
    str_free(&tails);
    return status;
}

static ott_status find_turns(encoder *e) {
    const int64_t count = (int64_t)json_array_size(e->messages);
    mem *account = e->r.c->account;
    int64_t *which;
    TRY(mem_alloc_array(account, MEM_OTHER, count, sizeof(int64_t), "turns of a conversation", &which));
    ott_status status = mem_alloc_array(account, MEM_OTHER, count, sizeof *e->turns.items,
                                        "turns of a conversation", &e->turns.items);
    if (status == OTT_OK) {
        for (int64_t i = 0; i < count; i++)
            if (is_assistant(json_array_get(e->messages, (size_t)i))) which[e->turns.count++] = i;
        status = find_ends(e, which);
    }
    if (status == OTT_OK) status = find_begins(e, which);
    mem_free(account, which);
    return status;
}

/* ---- tokens ---- */

static int compare_positions(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Lists the byte positions where turns begin or end, ascending, without duplicates; returns their count. */
static int64_t list_prefixes(const encoder *e, int64_t *prefixes) {
    int64_t count = 0, kept = 0;
    for (int64_t i = 0; i < e->turns.count; i++) {
        prefixes[count++] = e->turns.items[i].begin;
        prefixes[count++] = e->turns.items[i].end;
    }
    if (count) qsort(prefixes, (size_t)count, sizeof *prefixes, compare_positions);
    for (int64_t i = 0; i < count; i++)
        if (kept == 0 || prefixes[kept - 1] != prefixes[i]) prefixes[kept++] = prefixes[i];
    return kept;
}

static int64_t tokens_before(const tokenizer_prefixes *c, int64_t byte) {
    const int64_t *found = bsearch(&byte, c->at, (size_t)c->count, sizeof byte, compare_positions);
    return found ? c->ids[found - c->at] : 0;
}

/* Sets learned[k] = 1 for the tokens k of all turns. If n tokens precede a turn, it begins at token n. */
static void mark_turns(const encoder *e, const tokenizer_prefixes *prefixes, int64_t count,
                       uint8_t *learned) {
    for (int64_t i = 0; i < e->turns.count; i++) {
        int64_t begin = tokens_before(prefixes, e->turns.items[i].begin),
                end = tokens_before(prefixes, e->turns.items[i].end);
        for (int64_t k = begin; k < end && k < count; k++) learned[k] = 1;
    }
}

static ott_status encode_and_mark(encoder *e, tokenizer_prefixes *prefixes, tokenizer_ids *ids,
                                  uint8_t **learned) {
    const chat *c = e->r.c;
    const int64_t before = ids->count;
    ott_status status = tokenizer_encode_prefixes(c->tokenizer, e->s, e->text.text ? e->text.text : "",
                                                  e->text.length, TOKENIZER_MATCH_SPECIAL, prefixes, ids);
    TRY(status == OTT_ERR_STOPPED ? status : status_context(status, "%s: chat template", c->path));
    TRY(mem_grow(ids->account, MEM_DATA, ids->count, "which tokens are learned", learned));
    memset(*learned + before, 0, (size_t)(ids->count - before));
    mark_turns(e, prefixes, ids->count - before, *learned + before);
    return OTT_OK;
}

static ott_status encode_conversation(encoder *e, const json_t *messages, tokenizer_ids *ids,
                                      uint8_t **learned) {
    const chat *c = e->r.c;
    void *memory;
    TRY(clean_messages(messages, &e->messages));
    TRY(jinja_marks_generation(c->template)
            ? render_messages(&e->r, e->messages, false, &e->text, &e->turns, NULL)
            : find_turns(e));
    TRY(mem_alloc_array(c->account, MEM_OTHER, 4 * e->turns.count, sizeof(int64_t), "turns of a conversation",
                        &memory));
    tokenizer_prefixes prefixes = {.at = memory, .ids = (int64_t *)memory + 2 * e->turns.count};
    prefixes.count = list_prefixes(e, memory);
    ott_status status = encode_and_mark(e, &prefixes, ids, learned);
    mem_free(c->account, memory);
    return status;
}

ott_status chat_encode(const chat *c, tokenizer_scratch *s, const chat_conversation *conversation,
                       tokenizer_ids *ids, uint8_t **learned) {
    encoder e = {.s = s, .text = {.account = c->account}, .turns = {.account = c->account}};
    begin_rendering(&e.r, c, conversation->tools);
    ott_status status = encode_conversation(&e, conversation->messages, ids, learned);
    json_decref(e.messages);
    jinja_spans_free(&e.turns);
    str_free(&e.text);
    return status;
}
