/*
 * tokenizer/chat: conversations as a model's own chat template writes them: tokenizer_config.json's chat_template (a text, or a
 * list of named ones of which "default" is taken), or the file chat_template.jinja beside tokenizer.json, which comes first.
 *
 * A conversation is a JSON list of messages, each an object with "role" and "content", as templates expect them.
 */
#ifndef TOKENIZER_CHAT_H
#define TOKENIZER_CHAT_H

#include "tokenizer/jinja/jinja.h"
#include "tokenizer/tokenizer.h"

typedef struct chat chat;

/* Zero-initialised: rendering is never stopped, and templates have no strftime_now. */
typedef struct chat_settings {
    const cancellation
        *cancellation; /* borrowed; stops rendering and encoding with OTT_ERR_STOPPED; NULL: never */
    /* data.chat_date, the day that strftime_now gives (midnight): "2026-11-24"; "": today; NULL, "undefined": templates have no
       strftime_now */
    const char *date;
} chat_settings;

void chat_today(char out[11]); /* the local day, as chat_settings.date */

/* OTT_ERR_NOT_FOUND: the tokenizer has no template. Errors name the file. `t` is borrowed. OTT_ERR_CONFIG: no such date. */
ott_status chat_open(mem *account, const tokenizer *t, const chat_settings *settings, chat **out);
void chat_close(chat *c); /* NULL is allowed */
/* Appends the template itself, whatever it says; errors as chat_open's. */
ott_status chat_read(mem *account, const tokenizer *t, str *out);

/* What a template is given of a row. Members of messages that are null are left out, as transformers does. */
typedef struct chat_conversation {
    const json_t *messages; /* a list of objects; else OTT_ERR_FORMAT */
    const json_t
        *tools; /* a list, of JSON schemas of the functions that the assistant may call; NULL: none */
} chat_conversation;

/* Appends the conversation's text; asks: with what begins the assistant's next turn behind it. */
ott_status chat_render(const chat *c, const chat_conversation *of, bool asks, str *out);

/*
 * Appends the conversation's tokens, and in learned[ids->count], which grows with them, 1 for each token of an assistant's turn: of
 * what is between {% generation %} and its end where the template marks it, else of what each assistant message adds to the
 * text that asks for it, its end of turn too. A turn begins behind as many tokens as the text before it has alone.
 * Takes a time that is linear in the messages if jinja_render_prefixes knows the turns and the template writes added tokens
 * between them. OTT_ERR_UNSUPPORTED: the conversation takes too many steps; or a template that does not mark its turns writes
 * the same messages otherwise when more follow, in a way that leaves no end of a turn.
 */
ott_status chat_encode(const chat *c, tokenizer_scratch *s, const chat_conversation *of, tokenizer_ids *ids,
                       uint8_t **learned);

#endif
