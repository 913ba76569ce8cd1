/* tokenizer/text/list: lists and indexes of texts. */
#include "tokenizer/text/text.h"

ott_status text_list_open(mem *account, int64_t count, int64_t blob_bytes, text_list *out) {
    *out = (text_list){.count = count};
    TRY(mem_alloc_array(account, MEM_DATA, count, sizeof *out->at, "texts of tokens", &out->at));
    return mem_alloc(account, MEM_DATA, blob_bytes, "texts of tokens", &out->blob);
}

void text_list_close(mem *account, text_list *list) {
    mem_free(account, list->at);
    mem_free(account, list->blob);
    *list = (text_list){0};
}

char *text_list_set(text_list *list, int32_t id, const char *text, int64_t bytes) {
    char *copy = memcpy(list->blob + list->used, text, (size_t)bytes);
    copy[bytes] = '\0';
    list->used += bytes + 1;
    list->at[id] = (text_view){copy, bytes};
    return copy;
}

ott_status text_index_open(mem *account, const text_list *list, int64_t capacity, text_index *out) {
    int64_t size = 64;
    while (size < 2 * capacity) size *= 2;
    *out = (text_index){.list = list, .mask = (uint64_t)size - 1};
    return mem_alloc_array(account, MEM_DATA, size, sizeof *out->slots, "index of tokens", &out->slots);
}

/* Returns the hash table's slot with this text, or else the free slot where it can be added. */
static int32_t *index_slot(const text_index *index, const char *text, int64_t bytes) {
    for (uint64_t i = text_hash(text, bytes);; i++) {
        int32_t *slot = &index->slots[i & index->mask];
        if (*slot == 0) return slot;
        const text_view *there = &index->list->at[*slot - 1];
        if (there->bytes == bytes && memcmp(there->at, text, (size_t)bytes) == 0) return slot;
    }
}

int32_t text_index_find(const text_index *index, const char *text, int64_t bytes) {
    return *index_slot(index, text, bytes) - 1;
}

bool text_index_add(text_index *index, int32_t id) {
    const text_view *text = &index->list->at[id];
    int32_t *slot = index_slot(index, text->at, text->bytes);
    if (*slot != 0) return false;
    *slot = id + 1;
    return true;
}
