/* tokenizer/formats/unigram: SentencePiece's unigram model: finds the segmentation of a text into pieces with
   the highest sum of scores (Viterbi's algorithm). The sums are float, as in SentencePiece, so that rounding
   and ties give the same ids. */
#include "base/cancellation.h"
#include "tokenizer/formats/formats.h"
#include <float.h>

enum { UNKNOWN_PENALTY = 10, BYTES_BETWEEN_CHECKS = 1 << 16 };

ott_status unigram_load(tokenizer *t, const sentence_piece *pieces, int64_t count) {
    unigram_model *u = &t->unigram;
    float least = FLT_MAX, most = FLT_MIN; /* FLT_MIN as in SentencePiece, though it is above 0 */
    int64_t bytes = 1;
    for (int64_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
        if (pieces[i].kind != PIECE_NORMAL) continue;
        if (pieces[i].score < least) least = pieces[i].score;
        if (pieces[i].score > most) most = pieces[i].score;
    }
    u->unknown = least - UNKNOWN_PENALTY;
    u->tree = (added_tree){.count = 1, .capacity = bytes};
    if (bytes > INT32_MAX) return status_fail(OTT_ERR_FORMAT, "the pieces take more than 2 GiB");
    TRY(mem_alloc_array(t->account, MEM_DATA, count, sizeof *u->scores, "scores of pieces", &u->scores));
    TRY(mem_alloc_array(t->account, MEM_DATA, bytes, sizeof *u->tree.nodes, "tree of pieces",
                        &u->tree.nodes));
    u->tree.nodes[0].token = -1;
    /* Files list frequent pieces first. A node's last child is found first, so they are added last. */
    for (int64_t i = count; i-- > 0;) {
        const sentence_piece *p = &pieces[i];
        u->scores[i] = p->kind == PIECE_USER ? (float)((double)((float)p->bytes * most) - 0.1) : p->score;
        if (p->kind == PIECE_NORMAL || p->kind == PIECE_USER)
            TRY(added_tree_add(&u->tree, (text_view){p->text, p->bytes}, (int32_t)i));
    }
    return OTT_OK;
}

void unigram_close(tokenizer *t) {
    mem_free(t->account, t->unigram.scores);
    mem_free(t->account, t->unigram.tree.nodes);
}

/* The best segmentation of a text up to a byte. */
typedef struct unigram_node {
    int32_t start; /* byte at which the last piece begins; -1: no piece ends here */
    int32_t id;    /* the last piece */
    float score;   /* sum of all scores */
} unigram_node;

static void reach(unigram_node *node, float score, int64_t start, int32_t id) {
    if (node->start >= 0 && !(score > node->score)) return;
    *node = (unigram_node){.start = (int32_t)start, .id = id, .score = score};
}

/* Adds the pieces that begin at `at` to the nodes at their ends. */
static void add_pieces(const tokenizer *t, text_view text, int64_t at, unigram_node *nodes) {
    const unigram_model *u = &t->unigram;
    int bytes = text_character_bytes((unsigned char)text.at[at]);
    bool single = false; /* true: the character at `at` is a piece */
    int32_t node = 0;
    for (int64_t end = at; end < text.bytes;) {
        node = added_tree_child(&u->tree, node, (unsigned char)text.at[end++]);
        if (!node) break;
        int32_t id = u->tree.nodes[node].token;
        if (id < 0) continue;
        reach(&nodes[end], u->scores[id] + nodes[at].score, at, id);
        single = single || end - at == bytes;
    }
    if (!single) reach(&nodes[at + bytes], u->unknown + nodes[at].score, at, t->model.unk);
}

/* Appends the ids of the best segmentation, in the order of the text. Changes `start` of its nodes. */
static ott_status append_pieces(encode_run *run, text_view text, unigram_node *nodes) {
    const bpe_model *m = &run->t->model;
    int64_t next = -1;
    for (int64_t at = text.bytes, start; at > 0; at = start) { /* links each node to the next one */
        start = nodes[at].start;
        nodes[at].start = (int32_t)next;
        next = at;
    }
    bool unknown = false;
    for (int64_t at = 0, end = next; end >= 0; at = end, end = nodes[end].start) {
        bool is_unknown = nodes[end].id == m->unk;
        if (!is_unknown || (!unknown && !m->byte_fallback))
            TRY(tokenizer_ids_append(run->ids, nodes[end].id));
        for (; is_unknown && m->byte_fallback && at < end; at++) {
            int32_t id = m->byte_ids[(unsigned char)text.at[at]];
            TRY(tokenizer_ids_append(run->ids, id < 0 ? m->unk : id));
        }
        unknown = is_unknown;
    }
    return OTT_OK;
}

ott_status unigram_encode(encode_run *run, text_view text) {
    tokenizer_scratch *s = run->s;
    if (text.bytes >= INT32_MAX)
        return status_fail(OTT_ERR_ARGUMENT, "a text of %lld bytes is too long to encode",
                           (long long)text.bytes);
    TRY(mem_reserve(s->account, MEM_SCRATCH, text.bytes + 1, "tokenizer scratch", &s->node_capacity,
                    &s->nodes));
    for (int64_t i = 0; i <= text.bytes; i++) s->nodes[i] = (unigram_node){.start = -1};
    for (int64_t at = 0; at < text.bytes; at += text_character_bytes((unsigned char)text.at[at])) {
        if (at % BYTES_BETWEEN_CHECKS == 0) TRY(cancellation_check(s->cancellation));
        add_pieces(run->t, text, at, s->nodes);
    }
    return append_pieces(run, text, s->nodes);
}
