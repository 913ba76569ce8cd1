/* tokenizer/bpe: encodes a piece of text. It starts with bytes or characters. Then it repeatedly merges the
   adjacent pair with the smallest rank (the leftmost of equal ranks). Short words search all pairs, long
   words use a heap. A cache keeps short words. */
#include "tokenizer/internal.h"
#include <inttypes.h>

enum {
    CACHE_KEY = 34,        /* maximum bytes of a cached word */
    CACHE_IDS = 7,         /* maximum ids of a cached word */
    CACHE_SLOTS = 1 << 16, /* the slots take 4 MiB */
    SHORT_WORD = 40        /* with at most this many symbols, searching all pairs is faster than a heap */
};

typedef struct cache_slot {
    unsigned char bytes, count; /* bytes == 0: the slot is free */
    char key[CACHE_KEY];
    int32_t ids[CACHE_IDS];
} cache_slot;
_Static_assert(sizeof(cache_slot) == 64, "a slot must fill one cache line");

/* A symbol of a long word, in a doubly linked list within an array. */
typedef struct symbol {
    int32_t id;             /* -1: merged into its left neighbor */
    int32_t previous, next; /* index of the neighbor; -1: none */
} symbol;

typedef struct candidate {
    int32_t rank, at; /* at: index of the pair's left symbol */
    int32_t id;       /* id of the merged symbol */
} candidate;

struct bpe_work {
    cache_slot cache[CACHE_SLOTS];
    tokenizer_ids start; /* the word's symbols before merging */
    symbol *symbols;
    candidate *heap;
    int64_t symbol_capacity, heap_capacity, heap_count;
};

ott_status bpe_open(mem *account, bpe_work **out) {
    TRY(mem_alloc(account, MEM_SCRATCH, sizeof(bpe_work), "tokenizer scratch", out));
    (*out)->start.account = account;
    return OTT_OK;
}

void bpe_close(mem *account, bpe_work *work) {
    if (!work) return;
    tokenizer_ids_free(&work->start);
    mem_free(account, work->symbols);
    mem_free(account, work->heap);
    mem_free(account, work);
}

/* ---- the first symbols ---- */

static ott_status fail_no_token(const char *what, text_view piece, int64_t at, int bytes) {
    char hex[16] = "";
    for (int i = 0; i < bytes; i++)
        snprintf(hex + 2 * i, sizeof hex - 2 * (size_t)i, "%02x", (unsigned char)piece.at[at + i]);
    return status_fail(OTT_ERR_FORMAT,
                       "the %s '%.*s' (hexadecimal %s) has no token, and the tokenizer has no unk_token",
                       what, bytes, piece.at + at, hex);
}

static ott_status start_bytes(const bpe_model *m, text_view piece, tokenizer_ids *out) {
    TRY(tokenizer_ids_reserve(out, piece.bytes));
    for (int64_t i = 0; i < piece.bytes; i++) {
        int32_t id = m->byte_ids[(unsigned char)piece.at[i]];
        if (id < 0) id = m->unk;
        if (id < 0) return fail_no_token("byte", piece, i, 1);
        bool fuse = id == m->unk && m->fuse_unk && out->count > 0 && out->ids[out->count - 1] == id;
        if (!fuse) out->ids[out->count++] = id;
    }
    return OTT_OK;
}

/* Appends the token "<0xNN>" of each byte of a character. False, without a change, if a token is missing. */
static bool append_fallback(const bpe_model *m, const char *bytes, int count, tokenizer_ids *out) {
    for (int i = 0; i < count; i++)
        if (m->byte_ids[(unsigned char)bytes[i]] < 0) return false;
    for (int i = 0; i < count; i++) out->ids[out->count++] = m->byte_ids[(unsigned char)bytes[i]];
    return true;
}

/* As in Hugging Face, the id of the unknown token is appended late: before the next known character, or at
   the end. So ids of byte-fallback tokens in between come first. */
static ott_status start_characters(const tokenizer *t, text_view piece, tokenizer_ids *out) {
    const bpe_model *m = &t->model;
    bool unknown = false;
    int bytes;
    TRY(tokenizer_ids_reserve(out, piece.bytes));
    for (int64_t i = 0; i < piece.bytes; i += bytes) {
        unsigned char lead = (unsigned char)piece.at[i];
        bytes = text_character_bytes(lead);
        int32_t id = lead < 0x80 ? m->ascii[lead] : text_index_find(&t->by_piece, piece.at + i, bytes);
        if (id < 0 && m->byte_fallback && append_fallback(m, piece.at + i, bytes, out)) continue;
        if (id < 0 && m->unk < 0) return fail_no_token("character", piece, i, bytes);
        if (unknown && (id >= 0 || !m->fuse_unk)) out->ids[out->count++] = m->unk;
        unknown = id < 0;
        if (id >= 0) out->ids[out->count++] = id;
    }
    if (unknown) out->ids[out->count++] = m->unk;
    return OTT_OK;
}

/* ---- merging a short word ---- */

static int32_t merge_rank(const bpe_model *m, const int32_t *pair, int32_t *merged) {
    const merge_slot *slot = bpe_merge_find(m, (uint32_t)pair[0], (uint32_t)pair[1]);
    *merged = slot ? slot->id : -1;
    return slot ? slot->rank : INT32_MAX;
}

static void remove_at(int32_t *values, int at, int count) {
    memmove(values + at, values + at + 1, (size_t)(count - at - 1) * sizeof *values);
}

/* Merges ids[count] in place. Returns the number of ids that remain. */
static int merge_short(const bpe_model *m, int32_t *ids, int count) {
    int32_t ranks[SHORT_WORD], merged[SHORT_WORD]; /* rank and id for symbols i, i + 1 */
    for (int i = 0; i + 1 < count; i++) ranks[i] = merge_rank(m, ids + i, &merged[i]);
    while (count > 1) {
        int best = 0;
        for (int i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == INT32_MAX) break;
        ids[best] = merged[best];
        remove_at(ids, best + 1, count);
        if (best + 2 < count) { /* entries of later pairs move with their symbols */
            remove_at(ranks, best + 1, count - 1);
            remove_at(merged, best + 1, count - 1);
        }
        count--;
        if (best > 0) ranks[best - 1] = merge_rank(m, ids + best - 1, &merged[best - 1]);
        if (best + 1 < count) ranks[best] = merge_rank(m, ids + best, &merged[best]);
    }
    return count;
}

/* ---- merging a long word ---- */

static bool goes_before(candidate a, candidate b) {
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_push(bpe_work *w, candidate c) {
    int64_t i = w->heap_count++;
    for (int64_t up; i > 0 && goes_before(c, w->heap[up = (i - 1) / 2]); i = up) w->heap[i] = w->heap[up];
    w->heap[i] = c;
}

static candidate heap_pop(bpe_work *w) {
    candidate top = w->heap[0], last = w->heap[--w->heap_count];
    int64_t i = 0, down;
    while ((down = 2 * i + 1) < w->heap_count) {
        if (down + 1 < w->heap_count && goes_before(w->heap[down + 1], w->heap[down])) down++;
        if (!goes_before(w->heap[down], last)) break;
        w->heap[i] = w->heap[down];
        i = down;
    }
    w->heap[i] = last;
    return top;
}

static const merge_slot *merge_behind(const bpe_model *m, const bpe_work *w, int32_t at) {
    int32_t next = w->symbols[at].next;
    return next < 0 ? NULL : bpe_merge_find(m, (uint32_t)w->symbols[at].id, (uint32_t)w->symbols[next].id);
}

static void push_pair(const bpe_model *m, bpe_work *w, int32_t at) {
    const merge_slot *slot = at < 0 ? NULL : merge_behind(m, w, at);
    if (slot) heap_push(w, (candidate){slot->rank, at, slot->id});
}

static void merge_symbol(bpe_work *w, candidate c) {
    symbol *left = &w->symbols[c.at], *right = &w->symbols[left->next];
    left->id = c.id;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) w->symbols[left->next].previous = c.at;
}

static ott_status merge_long(mem *account, const bpe_model *m, bpe_work *w, const int32_t *ids, int64_t count,
                             tokenizer_ids *out) {
    if (count > INT32_MAX)
        return status_fail(OTT_ERR_ARGUMENT, "a piece of %" PRId64 " characters is too long to encode",
                           count);
    TRY(mem_reserve(account, MEM_SCRATCH, count, "tokenizer scratch", &w->symbol_capacity, &w->symbols));
    /* The heap begins with count - 1 pairs. Each of at most count - 1 merges replaces one pair by two. */
    TRY(mem_reserve(account, MEM_SCRATCH, 2 * count, "tokenizer scratch", &w->heap_capacity, &w->heap));
    for (int32_t i = 0; i < count; i++) w->symbols[i] = (symbol){ids[i], i - 1, i + 1 < count ? i + 1 : -1};
    w->heap_count = 0;
    for (int32_t i = 0; i < count; i++) push_pair(m, w, i);
    while (w->heap_count > 0) {
        candidate c = heap_pop(w);
        if (w->symbols[c.at].id < 0) continue;
        const merge_slot *now = merge_behind(m, w, c.at);
        if (!now || now->id != c.id) continue; /* outdated, because one of the two symbols has changed */
        merge_symbol(w, c);
        push_pair(m, w, w->symbols[c.at].previous);
        push_pair(m, w, c.at);
    }
    TRY(tokenizer_ids_reserve(out, count));
    for (int32_t i = 0; i >= 0; i = w->symbols[i].next) out->ids[out->count++] = w->symbols[i].id;
    return OTT_OK;
}

/* ---- a word ---- */

static ott_status encode_new(encode_run *run, text_view word) {
    const tokenizer *t = run->t;
    tokenizer_ids *start = &run->s->work->start;
    if (t->model.ignore_merges) {
        int32_t word_id = text_index_find(&t->by_piece, word.at, word.bytes);
        if (word_id >= 0) return tokenizer_ids_append(run->ids, word_id);
    }
    start->count = 0;
    TRY(t->model.byte_level ? start_bytes(&t->model, word, start) : start_characters(t, word, start));
    if (start->count > SHORT_WORD)
        return merge_long(run->s->account, &t->model, run->s->work, start->ids, start->count, run->ids);
    int count = merge_short(&t->model, start->ids, (int)start->count);
    TRY(tokenizer_ids_reserve(run->ids, count));
    memcpy(run->ids->ids + run->ids->count, start->ids, (size_t)count * sizeof(int32_t));
    run->ids->count += count;
    return OTT_OK;
}

static bool is_slot_of(const cache_slot *slot, text_view word) {
    return slot->bytes == word.bytes && text_same(slot->key, word.at, word.bytes);
}

/* Writes a word to the first of two cache slots. The word that was there moves to the second slot. */
static void cache_word(cache_slot *set, text_view word, const int32_t *ids, int64_t count) {
    if (count > CACHE_IDS) return;
    set[1] = set[0];
    set[0].bytes = (unsigned char)word.bytes;
    set[0].count = (unsigned char)count;
    memcpy(set[0].key, word.at, (size_t)word.bytes);
    memcpy(set[0].ids, ids, (size_t)count * sizeof *ids);
}

static ott_status encode_word(encode_run *run, text_view word) {
    tokenizer_ids *out = run->ids;
    if (word.bytes > CACHE_KEY) return encode_new(run, word);
    cache_slot *set = &run->s->work->cache[text_hash(word.at, word.bytes) % CACHE_SLOTS & ~UINT64_C(1)];
    const cache_slot *hit = is_slot_of(set, word) ? set : is_slot_of(set + 1, word) ? set + 1 : NULL;
    if (!hit) {
        int64_t before = out->count;
        TRY(encode_new(run, word));
        cache_word(set, word, out->ids + before, out->count - before);
        return OTT_OK;
    }
    if (out->capacity - out->count < CACHE_IDS) TRY(tokenizer_ids_reserve(out, CACHE_IDS));
    /* copies all ids, because a constant length is fast */
    memcpy(out->ids + out->count, hit->ids, sizeof hit->ids);
    out->count += hit->count;
    return OTT_OK;
}

static bool is_mark(const unsigned char *p, const unsigned char *end) {
    return end - p >= 3 && p[0] == 0xe2 && p[1] == 0x96 && p[2] == 0x81;
}

/* Returns the start of the word after the one at `at`. A word begins at a U+2581 that follows another
   character, or between two characters that no merge joins. */
static int64_t next_word(const bpe_model *m, text_view piece, int64_t at) {
    const unsigned char *begin = (const unsigned char *)piece.at, *end = begin + piece.bytes, *p = begin + at;
    while (is_mark(p, end)) p += 3;
    if (p < end) p += text_character_bytes(*p);
    for (; p < end; p += text_character_bytes(*p)) {
        if (is_mark(p, end)) break;
        if ((p[-1] | *p) < 0x80 && m->no_merge[p[-1]][*p]) break;
    }
    return p - begin;
}

ott_status bpe_encode(encode_run *run, text_view piece) {
    if (!run->t->model.splits_words) return encode_word(run, piece);
    for (int64_t at = 0, end; at < piece.bytes; at = end) {
        end = next_word(&run->t->model, piece, at);
        TRY(encode_word(run, (text_view){piece.at + at, end - at}));
    }
    return OTT_OK;
}
