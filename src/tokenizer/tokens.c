/* tokenizer/tokens: properties of tokens, and lists of ids. */
#include "tokenizer/internal.h"

const char *tokenizer_path(const tokenizer *t) {
    return t->path;
}

int64_t tokenizer_vocab(const tokenizer *t) {
    return t->vocab;
}

const char *tokenizer_token(const tokenizer *t, int64_t id) {
    return id >= 0 && id < t->vocab ? t->names.at[id].at : NULL;
}

int32_t tokenizer_find(const tokenizer *t, const char *text) {
    return text_index_find(&t->by_name, text, (int64_t)strlen(text));
}

bool tokenizer_has_chat_template(const tokenizer *t) {
    return t->chat_template;
}

bool tokenizer_is_special(const tokenizer *t, int64_t id) {
    return id >= 0 && id < t->vocab && t->added_by_id[id] && t->added_by_id[id]->special;
}

int32_t tokenizer_bos(const tokenizer *t) {
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

bool tokenizer_is_stop(const tokenizer *t, int64_t id) {
    if (id < 0) return false;
    for (int i = 0; i < t->stop_count; i++)
        if (t->stops[i] == id) return true;
    return id == t->eos;
}

ott_status tokenizer_ids_reserve(tokenizer_ids *ids, int64_t extra) {
    return mem_reserve(ids->account, MEM_DATA, ids->count + extra, "token ids", &ids->capacity, &ids->ids);
}

ott_status tokenizer_ids_append(tokenizer_ids *ids, int32_t id) {
    TRY(tokenizer_ids_reserve(ids, 1));
    ids->ids[ids->count++] = id;
    return OTT_OK;
}

void tokenizer_ids_free(tokenizer_ids *ids) {
    mem_free(ids->account, ids->ids);
    *ids = (tokenizer_ids){.account = ids->account};
}
