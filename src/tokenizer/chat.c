/* tokenizer/chat: finding the template, rendering conversations, and which tokens are the assistant's. */
#include "tokenizer/chat.h"
#include "base/file.h"
#include "tokenizer/internal.h"
#include <inttypes.h>

struct chat {
    mem *account;
    const tokenizer *tokenizer;
    jinja *template;
    const char *path; /* of the file that the template is in; in memory */
    arena *memory;
};

/* ---- the template ---- */

static ott_status neighbour_path(chat *c, const char *name) {
    const char *own = tokenizer_path(c->tokenizer), *slash = strrchr(own, '/');
    return arena_printf(c->memory, &c->path, "%.*s%s", slash ? (int)(slash - own) + 1 : 0, own, name);
}

static ott_status read_template_file(chat *c, str *out) {
    char *text;
    int64_t bytes;
    TRY(file_read(c->account, c->path, JINJA_TEXT_MOST, &text, &bytes));
    str_append_bytes(out, text, bytes);
    mem_free(c->account, text);
    return str_finish(out);
}

/* Of named templates the default one. */
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
                                    "%s: has no chat_template, and there is no chat_template.jinja beside it",
                                    c->path);
    json_decref(config);
    return status == OTT_OK ? str_finish(out) : status;
}

static ott_status read_template(chat *c, str *out) {
    TRY(arena_open(c->account, MEM_OTHER, &c->memory));
    TRY(neighbour_path(c, "chat_template.jinja"));
    if (file_exists(c->path)) return read_template_file(c, out);
    TRY(neighbour_path(c, "tokenizer_config.json"));
    return read_template_member(c, out);
}

ott_status chat_read(mem *account, const tokenizer *t, str *out) {
    chat c = {.account = account, .tokenizer = t};
    ott_status status = read_template(&c, out);
    arena_close(c.memory);
    return status;
}

static ott_status parse_template(chat *c) {
    str text = {.account = c->account};
    ott_status status = read_template(c, &text);
    if (status == OTT_OK) {
        status = jinja_open(c->account, text.text, text.length, &c->template);
        if (status != OTT_OK) status = status_context(status, "%s: chat template", c->path);
    }
    str_free(&text);
    return status;
}

ott_status chat_open(mem *account, const tokenizer *t, chat **out) {
    void *memory;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(chat), "chat template", &memory));
    chat *c = memory;
    *c = (chat){.account = account, .tokenizer = t};
    ott_status status = parse_template(c);
    if (status == OTT_OK)
        *out = c;
    else
        chat_close(c);
    return status;
}

void chat_close(chat *c) {
    if (!c) return;
    jinja_close(c->template);
    arena_close(c->memory);
    mem_free(c->account, c);
}

/* ---- rendering ---- */

/* An object takes the value over. */
static bool put(json_t *object, const char *key, json_t *value) {
    return value && json_object_set_new(object, key, value) == 0;
}

static const char *token_text(const chat *c, int32_t id) {
    const char *text = id >= 0 ? tokenizer_token(c->tokenizer, id) : NULL;
    return text ? text : "";
}

static ott_status make_context(const chat *c, const chat_conversation *of, bool asks, json_t **out) {
    json_t *tools = of->tools ? json_incref((json_t *)of->tools) : json_null();
    *out = json_object();
    bool made = put(*out, "messages", json_incref((json_t *)of->messages)) && put(*out, "tools", tools) &&
                put(*out, "add_generation_prompt", json_boolean(asks)) &&
                put(*out, "bos_token", json_string(token_text(c, tokenizer_bos(c->tokenizer)))) &&
                put(*out, "eos_token", json_string(token_text(c, tokenizer_eos(c->tokenizer))));
    return made ? OTT_OK : status_fail(OTT_ERR_MEMORY, "out of memory for the variables of a chat template");
}

static ott_status render(const chat *c, const chat_conversation *of, bool asks, str *out,
                         jinja_spans *generation) {
    json_t *context;
    ott_status status = make_context(c, of, asks, &context);
    if (status == OTT_OK) status = jinja_render(c->template, context, out, generation);
    json_decref(context);
    return status == OTT_OK ? OTT_OK : status_context(status, "%s: chat template", c->path);
}

ott_status chat_render(const chat *c, const chat_conversation *of, bool asks, str *out) {
    return render(c, of, asks, out, NULL);
}

/* ---- tokens ---- */

typedef struct encoder {
    const chat *c;
    tokenizer_scratch *s;
    const chat_conversation *of;
    str text;          /* of the whole conversation */
    jinja_spans turns; /* of the assistant, in the text */
} encoder;

/* The first `count` messages. */
static json_t *first_messages(const json_t *messages, size_t count) {
    json_t *first = json_array();
    for (size_t i = 0; first && i < count; i++)
        if (json_array_append(first, json_array_get(messages, i)) != 0) {
            json_decref(first);
            return NULL;
        }
    return first;
}

/* How many bytes of the text the first messages make; asks: with what begins the next turn. */
static ott_status measure(encoder *e, size_t count, bool asks, int64_t *out) {
    str part = {.account = e->c->account};
    json_t *first = first_messages(e->of->messages, count);
    if (!first) return status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
    ott_status status = render(e->c, &(chat_conversation){first, e->of->tools}, asks, &part, NULL);
    json_decref(first);
    *out = part.length;
    bool begins = part.length <= e->text.length &&
                  (part.length == 0 || memcmp(part.text, e->text.text, (size_t)part.length) == 0);
    str_free(&part);
    if (status != OTT_OK || begins) return status;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s: chat template: the conversation does not begin with the text of its first %zu messages, so that "
        "no "
        "end of the assistant's turns can be told; mark them in the template with {%% generation %%}",
        e->c->path, count);
}

static bool is_assistant(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "assistant") == 0;
}

static ott_status add_turn(encoder *e, int64_t begin, int64_t end) {
    jinja_spans *s = &e->turns;
    void *of = s->of;
    TRY(mem_grow(s->account, MEM_OTHER, (s->count + 1) * (int64_t)sizeof *s->of, "turns of a conversation",
                 &of));
    s->of = of;
    s->of[s->count++] = (jinja_span){begin, end};
    return OTT_OK;
}

static ott_status find_turns(encoder *e) {
    const size_t count = json_array_size(e->of->messages);
    for (size_t i = 0; i < count; i++) {
        int64_t begin, end = e->text.length;
        if (!is_assistant(json_array_get(e->of->messages, i))) continue;
        TRY(measure(e, i, true, &begin));
        if (i + 1 < count) TRY(measure(e, i + 1, false, &end));
        TRY(add_turn(e, begin, end));
    }
    return OTT_OK;
}

/* How many tokens the first bytes of the text have alone. */
static ott_status count_tokens(encoder *e, int64_t bytes, int64_t *out) {
    tokenizer_ids ids = {.account = e->c->account};
    ott_status status =
        tokenizer_encode(e->c->tokenizer, e->s, e->text.text, bytes, TOKENIZER_MATCH_SPECIAL, &ids);
    *out = ids.count;
    tokenizer_ids_free(&ids);
    return status;
}

/* learned[from ...] of the tokens that were just appended. */
static ott_status mark_turns(encoder *e, int64_t count, uint8_t *learned) {
    for (int64_t i = 0; i < e->turns.count; i++) {
        int64_t begin, end;
        TRY(count_tokens(e, e->turns.of[i].begin, &begin));
        TRY(count_tokens(e, e->turns.of[i].end, &end));
        for (int64_t k = begin; k < end && k < count; k++) learned[k] = 1;
    }
    return OTT_OK;
}

static ott_status encode(encoder *e, tokenizer_ids *ids, uint8_t **learned) {
    const chat *c = e->c;
    const int64_t before = ids->count;
    void *block = *learned;
    bool marked = jinja_marks_generation(c->template);
    TRY(render(c, e->of, false, &e->text, marked ? &e->turns : NULL));
    if (!marked) TRY(find_turns(e));
    TRY(tokenizer_encode(c->tokenizer, e->s, e->text.text ? e->text.text : "", e->text.length,
                         TOKENIZER_MATCH_SPECIAL, ids));
    TRY(mem_grow(ids->account, MEM_DATA, ids->count, "which tokens are learned", &block));
    *learned = block;
    memset(*learned + before, 0, (size_t)(ids->count - before));
    return mark_turns(e, ids->count - before, *learned + before);
}

ott_status chat_encode(const chat *c, tokenizer_scratch *s, const chat_conversation *of, tokenizer_ids *ids,
                       uint8_t **learned) {
    encoder e = {.c = c, .s = s, .of = of, .text = {.account = c->account}, .turns = {.account = c->account}};
    ott_status status = encode(&e, ids, learned);
    jinja_spans_free(&e.turns);
    str_free(&e.text);
    return status;
}
