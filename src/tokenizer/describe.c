/* tokenizer/describe: lists kinds of tokens and merges, and recognizes two known tokenizer types. */
#include "tokenizer/describe.h"
#include "tokenizer/internal.h"
#include <stdlib.h>
#include <utf8proc.h>

static bool is_byte_token(const tokenizer *t, int64_t id) {
    for (int byte = 0; byte < 256; byte++)
        if (t->model.byte_ids[byte] == id) return true;
    return false;
}

token_kind tokenizer_kind(const tokenizer *t, int64_t id) {
    if (!tokenizer_token(t, id)) return TOKEN_NONE;
    if (tokenizer_is_special(t, id)) return TOKEN_SPECIAL;
    if (t->added_by_id[id]) return TOKEN_ADDED;
    if (id == t->model.unk) return TOKEN_UNKNOWN;
    return !t->model.byte_level && is_byte_token(t, id) ? TOKEN_BYTE : TOKEN_PIECE;
}

int32_t tokenizer_find_flagged(const tokenizer *t) {
    for (int64_t i = 0; i < t->added_count; i++) {
        const added_token *a = &t->added[i];
        if (a->lstrip || a->rstrip || a->single_word) return a->id;
    }
    return -1;
}

int32_t tokenizer_unknown(const tokenizer *t) {
    return t->model.unk;
}

const int32_t *tokenizer_added_around(const tokenizer *t, bool after, int *count) {
    *count = after ? t->suffix_count : t->prefix_count;
    return after ? t->suffix : t->prefix;
}

static int by_rank(const void *a, const void *b) {
    const tokenizer_merge *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1; /* merges may have equal ranks */
    return (x->right > y->right) - (x->right < y->right);
}

ott_status tokenizer_merges(mem *account, const tokenizer *t, tokenizer_merge **out, int64_t *count) {
    const merge_slot *slots = t->model.merges;
    int64_t size = (int64_t)t->model.merge_mask + 1, used = 0;
    *count = 0;
    for (int64_t i = 0; i < size; i++) used += slots[i].rank >= 0;
    TRY(mem_alloc_array(account, MEM_DATA, used, sizeof **out, "merges in their order", out));
    for (int64_t i = 0; i < size; i++) {
        const merge_slot *m = &slots[i];
        if (m->rank >= 0)
            (*out)[(*count)++] = (tokenizer_merge){(int32_t)m->left, (int32_t)m->right, m->id, m->rank};
    }
    qsort(*out, (size_t)used, sizeof **out, by_rank);
    return OTT_OK;
}

static bool is_nfc(const normalize_step *step) {
    return step->kind == NORMALIZE_UNICODE && step->unicode == (UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

/* True if the step's pieces are the matches of `regex`. No text is left between these matches, so that
   SPLIT_REMOVED with `invert`, which removes such text, removes nothing. */
static bool splits_by(const split_step *step, const char *regex) {
    bool keeps_all = step->behavior == (step->invert ? SPLIT_REMOVED : SPLIT_ISOLATED);
    return step->kind == SPLIT_PATTERN && keeps_all && step->pattern.source.at &&
           text_is(step->pattern.source, regex);
}

bool tokenizer_is_byte_level(const tokenizer *t, const char *const *regex, bool ignores_merges) {
    int step = 0;
    if (!t->model.byte_level || t->model.ignore_merges != ignores_merges) return false;
    for (int i = 0; i < t->normalize_count; i++)
        if (!is_nfc(&t->normalize[i])) return false;
    for (; regex[step]; step++)
        if (step == t->split_count || !splits_by(&t->split[step], regex[step])) return false;
    return step == t->split_count;
}

/* True for a normalizer that adds a leading U+2581 or replaces spaces with U+2581. */
static bool marks_spaces(const normalize_step *step) {
    if (step->kind == NORMALIZE_PREPEND) return text_is(step->content, METASPACE);
    return step->kind == NORMALIZE_REPLACE && !step->pattern.code && text_is(step->pattern.literal, " ") &&
           text_is(step->content, METASPACE);
}

/* True for the Metaspace pre-tokenizer, or one that splits before each U+2581. */
static bool marks_words(const split_step *step) {
    if (step->kind == SPLIT_METASPACE) return text_is(step->replacement, METASPACE);
    return step->kind == SPLIT_PATTERN && step->behavior == SPLIT_MERGED_WITH_NEXT && !step->invert &&
           !step->pattern.code && text_is(step->pattern.literal, METASPACE);
}

bool tokenizer_is_sentencepiece(const tokenizer *t, bool *prepends) {
    bool marks = false;
    *prepends = false;
    if (t->model.byte_level || !t->model.byte_fallback || t->model.ignore_merges) return false;
    if (t->unigram.scores) return false;
    if (t->sentence) {
        *prepends = t->sentence->dummy_prefix;
        return t->sentence->escapes && !t->sentence->squeezes && t->sentence->units == 0;
    }
    for (int i = 0; i < t->normalize_count; i++) {
        if (!marks_spaces(&t->normalize[i])) return false;
        *prepends = *prepends || t->normalize[i].kind == NORMALIZE_PREPEND;
        marks = marks || t->normalize[i].kind == NORMALIZE_REPLACE;
    }
    for (int i = 0; i < t->split_count; i++) {
        const split_step *step = &t->split[i];
        if (!marks_words(step)) return false;
        *prepends = *prepends || (step->kind == SPLIT_METASPACE && step->prepend != PREPEND_NEVER);
        marks = marks || step->kind == SPLIT_METASPACE;
    }
    return marks;
}
