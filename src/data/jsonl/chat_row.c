/* data/jsonl/chat_row: reads messages and tools from a row. */
#include "data/jsonl/chat_row.h"
#include "base/json/json_member.h"
#include "base/json/json_text.h"
#include <string.h>

/* Returns the role for ShareGPT's "from"; NULL if it is unknown. */
static const char *role_of(const char *from) {
    static const char *const words[][2] = {
        {"human", "user"},          {"user", "user"},       {"gpt", "assistant"},
        {"chatgpt", "assistant"},   {"bing", "assistant"},  {"bard", "assistant"},
        {"assistant", "assistant"}, {"model", "assistant"}, {"system", "system"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(from, words[i][0]) == 0) return words[i][1];
    return NULL;
}

static ott_status add_row_message(json_t *messages, const char *role, const json_t *content) {
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", content);
    return json_array_append_new(messages, message) == 0
               ? OTT_OK
               : status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
}

static ott_status read_turns(const json_t *turns, json_t *messages) {
    for (size_t i = 0; i < json_array_size(turns); i++) {
        const json_t *turn = json_array_get(turns, i), *value = json_object_get(turn, "value");
        const char *from = json_string_value(json_object_get(turn, "from")),
                   *role = from ? role_of(from) : NULL;
        if (!role)
            return status_fail(OTT_ERR_FORMAT, "conversations[%zu].from is \"%s\": use human, gpt or system",
                               i, from ? str_show(from).text : "");
        if (!json_is_string(value))
            return status_fail(OTT_ERR_FORMAT, "conversations[%zu] has no text under \"value\"", i);
        TRY(add_row_message(messages, role, value));
    }
    return OTT_OK;
}

/* Alpaca's row: the user message is the instruction and, on the next line, the input; the assistant message
   is the output. */
static ott_status read_alpaca(const json_t *object, json_t *messages) {
    const json_t *instruction, *output, *input = json_object_get(object, "input");
    TRY(json_row_text(object, "instruction", &instruction));
    TRY(json_row_text(object, "output", &output));
    if (input && !json_is_null(input) && !json_is_string(input))
        return status_fail(OTT_ERR_FORMAT, "input is %s, not a text", json_kind_name(input));
    json_t *text = json_string_length(input)
                       ? json_sprintf("%s\n%s", json_string_value(instruction), json_string_value(input))
                       : json_incref((json_t *)instruction);
    ott_status status = add_row_message(messages, "user", text);
    json_decref(text);
    return status == OTT_OK ? add_row_message(messages, "assistant", output) : status;
}

/* Reads the messages of a row; release with json_decref. */
static ott_status read_messages(const json_t *object, json_t **out) {
    json_t *messages = json_object_get(object, "messages"), *turns = json_object_get(object, "conversations");
    ott_status status;
    *out = NULL;
    if (json_is_array(messages)) return *out = json_incref(messages), OTT_OK;
    if (!json_is_array(turns) && (messages || turns) && !json_object_get(object, "instruction"))
        return status_fail(OTT_ERR_FORMAT, "%s is %s, not a list", messages ? "messages" : "conversations",
                           json_kind_name(messages ? messages : turns));
    *out = json_array();
    if (!*out) return status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
    if (json_is_array(turns))
        status = read_turns(turns, *out);
    else if (json_object_get(object, "instruction"))
        status = read_alpaca(object, *out);
    else
        status = status_fail(
            OTT_ERR_FORMAT,
            "has neither \"messages\" nor \"conversations\", a list, nor \"instruction\" and \"output\"; set "
            "data.format to the format of the rows");
    if (status != OTT_OK) json_decref(*out), *out = NULL;
    return status;
}

/* Reads the tools of a row: a list, or a list as JSON text; NULL if it has none. Release with json_decref. */
static ott_status read_tools(const json_t *object, json_t **out) {
    json_t *tools = json_object_get(object, "tools");
    json_error_t error;
    *out = NULL;
    if (!tools || json_is_null(tools)) return OTT_OK;
    if (json_is_string(tools))
        TRY(json_row_parse(json_string_value(tools), (int64_t)json_string_length(tools), out, &error));
    else
        *out = json_incref(tools);
    if (json_is_array(*out)) return OTT_OK;
    const char *kind = *out ? json_kind_name(*out) : "a text that is not JSON";
    json_decref(*out);
    *out = NULL;
    return status_fail(OTT_ERR_FORMAT, "tools is %s: it takes a list of functions' JSON schemas, or its text",
                       kind);
}

ott_status chat_row_read(const json_t *object, chat_conversation *out) {
    json_t *messages, *tools = NULL;
    TRY(read_messages(object, &messages));
    ott_status status = read_tools(object, &tools);
    *out = (chat_conversation){messages, tools};
    if (status != OTT_OK) chat_row_close(out);
    return status;
}

void chat_row_close(chat_conversation *c) {
    json_decref((json_t *)c->messages);
    json_decref((json_t *)c->tools);
    *c = (chat_conversation){0};
}
