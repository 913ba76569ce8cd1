/* data/chat_row: reads a conversation from a JSON row: messages, ShareGPT's conversations or Alpaca's row. */
#ifndef DATA_CHAT_ROW_H
#define DATA_CHAT_ROW_H

#include "base/status.h"
#include <jansson.h>

typedef struct chat_row {
    json_t *messages; /* JSON list of messages */
    json_t *tools;    /* JSON list of tools; NULL: the row has no tools */
} chat_row;

/* Reads a row's conversation; close *out with chat_row_close. OTT_ERR_FORMAT names the invalid field. */
ott_status chat_row_read(const json_t *object, chat_row *out);
void chat_row_close(chat_row *row);

#endif
