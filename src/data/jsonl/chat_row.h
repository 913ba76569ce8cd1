/* data/jsonl/chat_row: reads a conversation from a row: messages, ShareGPT's conversations, Alpaca's row. */
#ifndef DATA_CHAT_ROW_H
#define DATA_CHAT_ROW_H

#include "tokenizer/chat.h"

/* Reads a row's conversation; close *out with chat_row_close. OTT_ERR_FORMAT names the invalid field. */
ott_status chat_row_read(const json_t *object, chat_conversation *out);
void chat_row_close(chat_conversation *c);

#endif
