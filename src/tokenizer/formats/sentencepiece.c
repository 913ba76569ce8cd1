/* tokenizer/formats/sentencepiece: reads SentencePiece's tokenizer.model, a protobuf message ModelProto
   (source: sentencepiece_model.proto). */
#include "base/little.h"
#include "tokenizer/formats/formats.h"
#include <inttypes.h>
#include <stdlib.h>

enum { MODEL_UNIGRAM = 1, MODEL_BPE };

typedef struct model_draft {
    tokenizer *t;
    const char *data, *bad; /* the file; the place of the first error */
    const char *error;      /* what is wrong there; NULL: nothing */
    sentence_piece *pieces; /* [count] in the order of ids */
    int64_t count, capacity;
    uint64_t type, byte_fallback, suffix;
    const char *unk; /* name of the unknown token */
    json_t *vocab, *added;
} model_draft;

/* ---- protobuf ---- */

/* The rest of a message. */
typedef struct message {
    model_draft *d;
    const char *at, *end;
} message;

typedef struct field {
    int number;
    uint64_t value;  /* an integer, or the bits of a float */
    text_view bytes; /* .at is NULL for numbers */
} field;

static uint64_t read_integer(message *m) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        unsigned char byte = (unsigned char)*m->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    m->d->error = m->at < m->end ? "an integer has more than 64 bits" : "the message is incomplete";
    return 0;
}

/* Returns false at the end of the message, or if m->d->error is set. */
static bool next_field(message *m, field *f) {
    if (m->d->error || m->at == m->end) return false;
    uint64_t tag = read_integer(m);
    int type = (int)(tag & 7);
    *f = (field){.number = (int)(tag >> 3 & 0x1fffffff), .value = type == 0 ? read_integer(m) : 0};
    uint64_t bytes = type == 1 ? 8 : type == 2 ? read_integer(m) : type == 5 ? 4 : 0;
    if (f->number == 0 || type == 3 || type == 4 || type > 5) m->d->error = "this is not a field";
    if (bytes > (uint64_t)(m->end - m->at)) m->d->error = "the message is incomplete";
    m->d->bad = m->at;
    if (m->d->error) return false;
    if (type == 5) f->value = little_load(m->at, 4);
    if (type == 2) f->bytes = (text_view){m->at, (int64_t)bytes};
    m->at += bytes;
    return true;
}

static message inside(const message *m, const field *f) {
    return (message){m->d, f->bytes.at, f->bytes.at + f->bytes.bytes};
}

/* ---- the model ---- */

static ott_status copy_text(tokenizer *t, text_view text, const char **out) {
    void *memory;
    TRY(arena_alloc(t->texts, text.bytes + 1, &memory));
    *out = memcpy(memory, text.at, (size_t)text.bytes);
    return OTT_OK;
}

static ott_status check_piece(const sentence_piece *p) {
    if (p->bytes == 0 || p->bytes > MAX_TOKEN_BYTES || memchr(p->text, 0, (size_t)p->bytes) ||
        str_utf8_error(p->text, p->bytes) >= 0)
        return status_fail(OTT_ERR_FORMAT, "is not a text of 1 to %d bytes in UTF-8", MAX_TOKEN_BYTES);
    if (p->kind < PIECE_NORMAL || p->kind > PIECE_BYTE || p->kind == PIECE_UNUSED ||
        !(p->score - p->score == 0))
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "'%s' has the type %d and the score %g, which is not supported",
                           str_show(p->text).text, (int)p->kind, (double)p->score);
    return OTT_OK;
}

static ott_status read_piece(model_draft *d, message m) {
    field f;
    TRY(mem_reserve(d->t->account, MEM_DATA, d->count + 1, "pieces", &d->capacity, &d->pieces));
    sentence_piece *p = &d->pieces[d->count];
    *p = (sentence_piece){.text = "", .kind = PIECE_NORMAL};
    while (next_field(&m, &f)) {
        if (f.number == 1 && f.bytes.at) TRY(copy_text(d->t, f.bytes, &p->text));
        if (f.number == 1) p->bytes = f.bytes.bytes;
        if (f.number == 2) memcpy(&p->score, &(uint32_t){(uint32_t)f.value}, sizeof p->score);
        if (f.number == 3) p->kind = f.value <= PIECE_BYTE ? (piece_kind)f.value : 0;
    }
    if (!d->error) TRY(status_context(check_piece(p), "piece %" PRId64, d->count));
    d->count++;
    return OTT_OK;
}

static ott_status read_trainer(model_draft *d, message m) {
    field f;
    while (next_field(&m, &f)) {
        const char **name = f.number == 45   ? &d->unk
                            : f.number == 46 ? &d->t->bos_name
                            : f.number == 47 ? &d->t->eos_name
                                             : NULL;
        uint64_t *value = f.number == 3    ? &d->type
                          : f.number == 24 ? &d->suffix
                          : f.number == 35 ? &d->byte_fallback
                                           : NULL;
        if (value) *value = f.value;
        if (name && f.bytes.at) TRY(copy_text(d->t, f.bytes, name));
    }
    return OTT_OK;
}

/* Reads precompiled_charsmap: the size of a trie, the trie, and texts that end with zero bytes. */
static ott_status read_charsmap(sentence_rules *s, tokenizer *t, text_view map) {
    const char *copy;
    if (map.bytes == 0) return OTT_OK;
    int64_t trie = map.bytes < 4 ? -1 : (int64_t)little_load(map.at, 4);
    if (trie < 4 || trie % 4 != 0 || trie > map.bytes - 5 || map.at[map.bytes - 1])
        return status_fail(OTT_ERR_FORMAT, "precompiled_charsmap of %" PRId64 " bytes is damaged", map.bytes);
    TRY(copy_text(t, map, &copy));
    s->trie = copy + 4;
    s->units = trie / 4;
    s->replacements = (text_view){s->trie + trie, map.bytes - 4 - trie};
    return OTT_OK;
}

static ott_status read_normalizer(model_draft *d, message m) {
    sentence_rules *s = d->t->sentence;
    bool *const options[] = {&s->dummy_prefix, &s->squeezes, &s->escapes}; /* fields 3 to 5 */
    for (field f; next_field(&m, &f);) {
        if (f.number == 2 && f.bytes.at) TRY(read_charsmap(s, d->t, f.bytes));
        if (f.number >= 3 && f.number <= 5) *options[f.number - 3] = f.value;
    }
    return OTT_OK;
}

static ott_status read_model(model_draft *d, message m) {
    for (field f; next_field(&m, &f);) {
        if (f.number == 1 && f.bytes.at) TRY(read_piece(d, inside(&m, &f)));
        if (f.number == 2 && f.bytes.at) TRY(read_trainer(d, inside(&m, &f)));
        if (f.number == 3 && f.bytes.at) TRY(read_normalizer(d, inside(&m, &f)));
    }
    if (d->error)
        return status_fail(OTT_ERR_FORMAT, "byte %" PRId64 ": %s", (int64_t)(d->bad - d->data), d->error);
    if ((d->type == MODEL_UNIGRAM || d->type == MODEL_BPE) && !d->suffix) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "model_type %" PRIu64 "%s is not supported; 1 (unigram) and 2 (BPE) are", d->type,
                       d->suffix ? " with treat_whitespace_as_suffix" : "");
}

/* ---- the meaning of the model ---- */

static int by_score(const void *a, const void *b) {
    const sentence_piece *x = *(sentence_piece *const *)a, *y = *(sentence_piece *const *)b;
    return (x->score < y->score) - (x->score > y->score);
}

/* BPE merges two pieces if their text is a normal piece, the one with the highest score first. */
static ott_status rank_pieces(model_draft *d) {
    const sentence_piece **order;
    int32_t *ranks, rank = -1;
    TRY(formats_new_ranks(d->t, d->count, &ranks));
    TRY(mem_alloc_array(d->t->account, MEM_OTHER, d->count, sizeof *order, "scores of pieces", &order));
    for (int64_t i = 0; i < d->count; i++) order[i] = &d->pieces[i];
    qsort(order, (size_t)d->count, sizeof *order, by_score);
    for (int64_t i = 0; i < d->count; i++) {
        rank += i == 0 || order[i]->score < order[i - 1]->score; /* equal scores have the same rank */
        if (order[i]->kind == PIECE_NORMAL) ranks[order[i] - d->pieces] = rank;
    }
    mem_free(d->t->account, order);
    return OTT_OK;
}

static bool is_kind(const model_draft *d, const char *name, piece_kind kind) {
    const json_t *id = json_object_get(d->vocab, name);
    return id && d->pieces[json_integer_value(id)].kind == kind;
}

/* A merge needs two pieces, so each character of a piece must be a piece, too. */
static ott_status check_characters(const model_draft *d, const sentence_piece *p) {
    int bytes;
    for (int64_t i = 0; i < p->bytes && p->kind == PIECE_NORMAL; i += bytes) {
        char one[5] = "";
        bytes = text_character_bytes((unsigned char)p->text[i]);
        memcpy(one, p->text + i, (size_t)bytes);
        if (!is_kind(d, one, PIECE_NORMAL))
            return status_fail(OTT_ERR_UNSUPPORTED, "piece '%s': its character '%s' is not a piece",
                               str_show(p->text).text, one);
    }
    return OTT_OK;
}

static ott_status add_pieces(model_draft *d) {
    tokenizer *t = d->t;
    for (int64_t i = 0; i < d->count; i++) {
        const sentence_piece *p = &d->pieces[i];
        TRY(formats_add_piece(d->vocab, p->text, i));
        if (p->kind == PIECE_UNKNOWN) d->unk = p->text;
        if (p->kind == PIECE_UNKNOWN || p->kind == PIECE_CONTROL || p->kind == PIECE_USER)
            TRY(formats_add_token(d->added, i, p->text, p->kind != PIECE_USER));
    }
    if (!is_kind(d, t->bos_name, PIECE_CONTROL)) t->bos_name = NULL;
    if (!is_kind(d, t->eos_name, PIECE_CONTROL)) t->eos_name = NULL;
    if (!d->unk) return status_fail(OTT_ERR_FORMAT, "there is no piece of the type UNKNOWN");
    TRY(formats_add_config_tokens(t, d->pieces, d->count, d->added));
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
                     d->byte_fallback != 0, "fuse_unk", true);
}

bool sentencepiece_is(const char *data, int64_t bytes) {
    return bytes > 4 && data[0] == 0x0a && data[2] == 0x0a && data[3] + 2 <= data[1] && data[1] > 0;
}

ott_status sentencepiece_read(tokenizer *t, const char *data, int64_t bytes, json_t **root) {
    model_draft d = {.t = t, .data = data, .bad = data, .type = MODEL_UNIGRAM};
    void *memory;
    TRY(arena_alloc(t->texts, sizeof *t->sentence, &memory));
    t->sentence = memory;
    *t->sentence = (sentence_rules){.dummy_prefix = true, .squeezes = true, .escapes = true};
    t->bos_name = "<s>";
    t->eos_name = "</s>";
    t->normalize[t->normalize_count++] = (normalize_step){.kind = NORMALIZE_SENTENCE};
    d.vocab = json_object();
    d.added = json_array();
    ott_status status = read_model(&d, (message){&d, data, data + bytes});
    if (status == OTT_OK) status = add_pieces(&d);
    *root = status == OTT_OK ? make_root(&d) : NULL;
    mem_free(t->account, d.pieces);
    json_decref(d.vocab);
    json_decref(d.added);
    return status_context(status, "SentencePiece model");
}
