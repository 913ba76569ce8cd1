/*
 * tokenizer/chat: renders conversations with a model's chat template: the file chat_template.jinja next to
 * tokenizer.json, or else chat_template of tokenizer_config.json (a text, or a list of named templates;
 * "default" is used).
 *
 * A conversation is a JSON list of messages. Each message is an object with "role" and "content".
 */
#ifndef TOKENIZER_CHAT_H
#define TOKENIZER_CHAT_H

#include "tokenizer/jinja/jinja.h"
#include "tokenizer/tokenizer.h"

typedef struct chat chat;

/* Zero-initialized: rendering cannot be stopped, and templates have no strftime_now. */
typedef struct chat_settings {
    /* borrowed; stops rendering and encoding with OTT_ERR_STOPPED; NULL: never */
    const cancellation *cancellation;
    /* data.chat_date: the date that strftime_now returns, at midnight ("2026-11-24"). "": today. NULL or
       "undefined": templates have no strftime_now. */
    const char *date;
} chat_settings;

void chat_today(char out[11]); /* today in local time, in the format of chat_settings.date */

/* Opens the template of `t` (borrowed). OTT_ERR_NOT_FOUND: the tokenizer has no template. OTT_ERR_CONFIG: the
   date is invalid. Errors name the file. */
ott_status chat_open(mem *account, const tokenizer *t, const chat_settings *settings, chat **out);
void chat_close(chat *c); /* does nothing for NULL */
/* Appends the template's source, without parsing it. Errors as for chat_open. */
ott_status chat_read(mem *account, const tokenizer *t, str *out);

/* Input of a template. Message members that are null are left out, as in transformers. */
typedef struct chat_conversation {
    const json_t *messages; /* list of objects; anything else is OTT_ERR_FORMAT */
    const json_t *tools; /* list of JSON schemas of the functions that the assistant may call; NULL: none */
} chat_conversation;

/* Appends the conversation's text. asks: also append the beginning of the assistant's next turn. */
ott_status chat_render(const chat *c, const chat_conversation *conversation, bool asks, str *out);

/*
 * Appends the conversation's tokens to ids, and enlarges *learned to ids->count. Sets learned[i] to 1 if
 * token i is of an assistant turn. If the template has {% generation %}, a turn is the text inside it.
 * Otherwise a turn is the text that an assistant message adds to the generation prompt, including its end of
 * turn. If the text before a turn has n tokens when encoded separately, the turn begins at token n.
 *
 * The time is linear in the number of messages if jinja_render_prefixes finds the ends of turns, and if there
 * are added tokens between turns. OTT_ERR_UNSUPPORTED: the conversation takes too many steps; or a template
 * without {% generation %} renders earlier messages differently if more follow, so the end of a turn is
 * unknown.
 */
ott_status chat_encode(const chat *c, tokenizer_scratch *s, const chat_conversation *conversation,
                       tokenizer_ids *ids, uint8_t **learned);

#endif
