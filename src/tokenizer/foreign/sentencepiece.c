/* tokenizer/foreign/sentencepiece: reads SentencePiece's tokenizer.model, a protobuf message ModelProto. */
#include "base/little.h"
#include "tokenizer/foreign/foreign.h"
#include <inttypes.h>
#include <stdlib.h>

/* ---- protobuf ---- */

/* A position in a message. `from`: start of the file, for errors. */
typedef struct message {
    const char *from, *at, *end;
} message;

typedef struct field {
    int number;     /* 0: the message has ended */
    bool is_bytes;  /* true: `bytes` is set; else `value` */
    uint64_t value; /* an integer, or the bits of a float */
    text_view bytes;
} field;

static ott_status fail_cut(const message *m) {
    return status_fail(OTT_ERR_FORMAT, "SentencePiece model: byte %" PRId64 ": the message is cut off",
                       (int64_t)(m->at - m->from));
}

static ott_status read_varint(message *m, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (m->at == m->end) return fail_cut(m);
        unsigned char byte = (unsigned char)*m->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return OTT_OK;
    }
    return status_fail(OTT_ERR_FORMAT,
                       "SentencePiece model: byte %" PRId64 ": an integer of more than 64 bits",
                       (int64_t)(m->at - m->from));
}

static ott_status read_fixed(message *m, int bytes, uint64_t *out) {
    if (m->end - m->at < bytes) return fail_cut(m);
    *out = bytes == 4 ? little_load(m->at, 4) : 0; /* no field that is used has 8 bytes */
    m->at += bytes;
    return OTT_OK;
}

static ott_status next_field(message *m, field *f) {
    uint64_t tag, bytes;
    *f = (field){0};
    if (m->at == m->end) return OTT_OK;
    TRY(read_varint(m, &tag));
    f->number = (int)(tag >> 3 & 0x1fffffff);
    switch (tag & 7) {
    case 0: TRY(read_varint(m, &f->value)); break;
    case 1: TRY(read_fixed(m, 8, &f->value)); break;
    case 5: TRY(read_fixed(m, 4, &f->value)); break;
    case 2:
        TRY(read_varint(m, &bytes));
        if (bytes > (uint64_t)(m->end - m->at)) return fail_cut(m);
        f->is_bytes = true;
        f->bytes = (text_view){m->at, (int64_t)bytes};
        m->at += bytes;
        break;
    default: f->number = 0;
    }
    if (f->number > 0) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT,
                       "SentencePiece model: byte %" PRId64 ": %" PRIu64 " is not a field's tag",
                       (int64_t)(m->at - m->from), tag);
}

static message inside(const message *m, const field *f) {
    return (message){m->from, f->bytes.at, f->bytes.at + f->bytes.bytes};
}

/* ---- the model ---- */

enum { MODEL_UNIGRAM = 1, MODEL_BPE };

typedef struct model_draft {
    tokenizer *t;
    foreign_piece *pieces; /* [count] in the order of ids */
    int64_t count, capacity;
    uint64_t type;
    bool byte_fallback, suffix;
    const char *unk; /* name of the unknown token */
    json_t *vocab, *added;
} model_draft;

static ott_status copy_text(tokenizer *t, text_view text, const char **out) {
    void *memory;
    TRY(arena_alloc(t->texts, text.bytes + 1, &memory));
    *out = memcpy(memory, text.at, (size_t)text.bytes);
    return OTT_OK;
}

static ott_status check_piece(const foreign_piece *p) {
    if (p->bytes == 0 || p->bytes > FOREIGN_LONGEST || memchr(p->text, 0, (size_t)p->bytes) ||
        str_utf8_error(p->text, p->bytes) >= 0)
        return status_fail(OTT_ERR_FORMAT, "is not a text of 1 to %d bytes in UTF-8", FOREIGN_LONGEST);
    if (p->kind < PIECE_NORMAL || p->kind > PIECE_BYTE || !(p->score - p->score == 0))
        return status_fail(OTT_ERR_FORMAT, "'%s' has the type %d and the score %g", str_show(p->text).text,
                           (int)p->kind, (double)p->score);
    if (p->kind == PIECE_UNUSED)
        return status_fail(OTT_ERR_UNSUPPORTED, "'%s' is of the type UNUSED, which is not supported",
                           str_show(p->text).text);
    return OTT_OK;
}

/* Reads a SentencePiece: piece = 1, score = 2, type = 3. */
static ott_status read_piece(model_draft *d, message m) {
    TRY(mem_reserve(d->t->account, MEM_DATA, d->count + 1, "pieces", &d->capacity, &d->pieces));
    foreign_piece *p = &d->pieces[d->count];
    *p = (foreign_piece){.text = "", .kind = PIECE_NORMAL};
    for (field f;;) {
        TRY(next_field(&m, &f));
        if (f.number == 0) break;
        if (f.number == 1 && f.is_bytes) {
            TRY(copy_text(d->t, f.bytes, &p->text));
            p->bytes = f.bytes.bytes;
        }
        if (f.number == 2) memcpy(&p->score, &(uint32_t){(uint32_t)f.value}, sizeof p->score);
        if (f.number == 3) p->kind = f.value <= PIECE_BYTE ? (piece_kind)f.value : 0;
    }
    TRY(status_context(check_piece(p), "piece %" PRId64, d->count));
    d->count++;
    return OTT_OK;
}

/* Reads a TrainerSpec: the kind of model and the names of special pieces. */
static ott_status read_trainer(model_draft *d, message m) {
    tokenizer *t = d->t;
    for (field f;;) {
        TRY(next_field(&m, &f));
        const char **name = f.number == 45 ? &d->unk : f.number == 46 ? &t->bos_name : &t->eos_name;
        if (f.number == 0) return OTT_OK;
        if (f.number == 3) d->type = f.value;
        if (f.number == 24) d->suffix = f.value;
        if (f.number == 35) d->byte_fallback = f.value;
        if (f.number >= 45 && f.number <= 47 && f.is_bytes) TRY(copy_text(t, f.bytes, name));
    }
}

/* Reads precompiled_charsmap: the size of a trie, the trie, and texts that end with zero bytes. */
static ott_status read_charsmap(sentence_rules *s, tokenizer *t, text_view map) {
    const char *copy;
    if (map.bytes == 0) return OTT_OK;
    int64_t trie = map.bytes < 4 ? -1 : (int64_t)little_load(map.at, 4);
    if (trie < 4 || trie % 4 != 0 || trie > map.bytes - 5 || map.at[map.bytes - 1])
        return status_fail(OTT_ERR_FORMAT,
                           "SentencePiece model: precompiled_charsmap of %" PRId64 " bytes is damaged",
                           map.bytes);
    TRY(copy_text(t, map, &copy));
    s->trie = copy + 4;
    s->units = trie / 4;
    s->replacements = (text_view){s->trie + trie, map.bytes - 4 - trie};
    return OTT_OK;
}

static ott_status read_normalizer(model_draft *d, message m) {
    sentence_rules *s = d->t->sentence;
    for (field f;;) {
        TRY(next_field(&m, &f));
        if (f.number == 0) return OTT_OK;
        if (f.number == 2 && f.is_bytes) TRY(read_charsmap(s, d->t, f.bytes));
        if (f.number == 3) s->dummy_prefix = f.value;
        if (f.number == 4) s->squeezes = f.value;
        if (f.number == 5) s->escapes = f.value;
    }
}

static ott_status read_model(model_draft *d, message m) {
    for (field f;;) {
        TRY(next_field(&m, &f));
        if (f.number == 0) break;
        if (f.number == 1 && f.is_bytes) TRY(read_piece(d, inside(&m, &f)));
        if (f.number == 2 && f.is_bytes) TRY(read_trainer(d, inside(&m, &f)));
        if (f.number == 3 && f.is_bytes) TRY(read_normalizer(d, inside(&m, &f)));
    }
    if (d->type != MODEL_UNIGRAM && d->type != MODEL_BPE)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "SentencePiece model: model_type %" PRIu64
                           " is not supported; 1 (unigram) and 2 (BPE) are",
                           d->type);
    if (d->suffix)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "SentencePiece model: treat_whitespace_as_suffix is not supported");
    return OTT_OK;
}

/* ---- what the model means ---- */

/* Sorts by descending score. qsort need not be stable: equal scores get the same rank. */
static int by_score(const void *a, const void *b) {
    const foreign_piece *x = *(foreign_piece *const *)a, *y = *(foreign_piece *const *)b;
    return (x->score < y->score) - (x->score > y->score);
}

/* BPE merges two pieces if their text is a normal piece, the one with the highest score first. */
static ott_status rank_pieces(model_draft *d) {
    const foreign_piece **order;
    int32_t *ranks, rank = -1;
    TRY(foreign_new_ranks(d->t, d->count, &ranks));
    TRY(mem_alloc_array(d->t->account, MEM_OTHER, d->count, sizeof *order, "scores of pieces", &order));
    for (int64_t i = 0; i < d->count; i++) order[i] = &d->pieces[i];
    qsort(order, (size_t)d->count, sizeof *order, by_score);
    for (int64_t i = 0; i < d->count; i++) {
        rank += i == 0 || order[i]->score < order[i - 1]->score;
        if (order[i]->kind == PIECE_NORMAL) ranks[order[i] - d->pieces] = rank;
    }
    mem_free(d->t->account, order);
    return OTT_OK;
}

/* A merge needs two pieces, so each character of a piece must be a piece, too. */
static ott_status check_characters(const model_draft *d, const foreign_piece *p) {
    int bytes;
    for (int64_t i = 0; i < p->bytes && p->kind == PIECE_NORMAL; i += bytes) {
        char one[5] = "";
        bytes = text_character_bytes((unsigned char)p->text[i]);
        memcpy(one, p->text + i, (size_t)bytes);
        const json_t *id = json_object_get(d->vocab, one);
        if (id && d->pieces[json_integer_value(id)].kind == PIECE_NORMAL) continue;
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "piece '%s': its character '%s' is not a piece, which is not supported",
                           str_show(p->text).text, one);
    }
    return OTT_OK;
}

static const char *if_control(const model_draft *d, const char *name) {
    const json_t *id = json_object_get(d->vocab, name);
    return id && d->pieces[json_integer_value(id)].kind == PIECE_CONTROL ? name : NULL;
}

static ott_status add_pieces(model_draft *d) {
    tokenizer *t = d->t;
    for (int64_t i = 0; i < d->count; i++) {
        const foreign_piece *p = &d->pieces[i];
        TRY(foreign_add_piece(d->vocab, p->text, i));
        if (p->kind == PIECE_UNKNOWN) d->unk = p->text;
        if (p->kind == PIECE_UNKNOWN || p->kind == PIECE_CONTROL)
            TRY(foreign_add_token(d->added, i, p->text, true));
        if (p->kind == PIECE_USER) TRY(foreign_add_token(d->added, i, p->text, false));
    }
    t->bos_name = if_control(d, t->bos_name);
    t->eos_name = if_control(d, t->eos_name);
    if (!d->unk) return status_fail(OTT_ERR_FORMAT, "SentencePiece model: has no piece of the type UNKNOWN");
    TRY(foreign_add_config_tokens(t, d->pieces, d->count, d->added));
    if (d->type == MODEL_UNIGRAM) TRY(unigram_load(t, d->pieces, d->count));
    for (int64_t i = 0; d->type == MODEL_BPE && i < d->count; i++) TRY(check_characters(d, &d->pieces[i]));
    return rank_pieces(d);
}

/* The decoder replaces U+2581 by a space, and removes the space that the normalizer adds before a text. */
static json_t *make_root(const model_draft *d) {
    const sentence_rules *s = d->t->sentence;
    return json_pack("{s:O, s:{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}, {s:s, s:s, s:i, s:i}]},"
                     " s:{s:O, s:s, s:b, s:b}}",
                     "added_tokens", d->added, "decoder", "type", "Sequence", "decoders", "type", "Replace",
                     "pattern", "String", METASPACE, "content", " ", "type", "ByteFallback", "type", "Fuse",
                     "type", "Strip", "content", " ", "start", s->squeezes ? INT32_MAX : s->dummy_prefix,
                     "stop", 0, "model", "vocab", d->vocab, "unk_token", d->unk, "byte_fallback",
                     d->byte_fallback, "fuse_unk", true);
}

bool sentencepiece_is(const char *data, int64_t bytes) {
    return bytes > 4 && data[0] == 0x0a && data[2] == 0x0a && data[3] + 2 <= data[1] && data[1] > 0;
}

ott_status sentencepiece_read(tokenizer *t, const char *data, int64_t bytes, json_t **root) {
    model_draft d = {.t = t, .type = MODEL_UNIGRAM, .vocab = json_object(), .added = json_array()};
    void *memory;
    ott_status status;
    *root = NULL;
    TRY_OUT(arena_alloc(t->texts, sizeof *t->sentence, &memory));
    t->sentence = memory;
    *t->sentence = (sentence_rules){.dummy_prefix = true, .squeezes = true, .escapes = true};
    t->bos_name = "<s>";
    t->eos_name = "</s>";
    TRY_OUT(read_model(&d, (message){data, data, data + bytes}));
    TRY_OUT(add_pieces(&d));
    t->normalize[t->normalize_count++] = (normalize_step){.kind = NORMALIZE_SENTENCE};
    *root = make_root(&d);
    if (!*root) status = status_fail(OTT_ERR_MEMORY, "no memory for the tokenizer's tokens");
out:
    mem_free(t->account, d.pieces);
    json_decref(d.vocab);
    json_decref(d.added);
    return status;
}
