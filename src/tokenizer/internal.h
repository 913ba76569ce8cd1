/*
 * tokenizer/internal: what the files of the tokenizer share. A text takes this way: added tokens are cut out
 * (added), the rest is normalized (normalize), cut into pieces (split, regex), and each piece becomes ids
 * (bpe). The way back is decode.
 */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "base/json_member.h"
#include "tokenizer/bpe.h"
#include "tokenizer/regex.h"
#include "tokenizer/text.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>

#define METASPACE "\xe2\x96\x81" /* U+2581, how SentencePiece writes a space */

/* ---- the steps of a tokenizer ---- */

typedef enum normalize_kind {
    NORMALIZE_UNICODE, /* NFC, NFD, NFKC, NFKD */
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP,
    NORMALIZE_PREPEND,
    NORMALIZE_REPLACE
} normalize_kind;

typedef struct normalize_step {
    normalize_kind kind;
    int unicode;              /* options of utf8proc */
    unsigned char first_byte; /* unicode: a text of smaller bytes is in this form already */
    bool left, right;         /* strip */
    pattern pattern;          /* replace */
    text_view content;        /* prepend, replace */
} normalize_step;

typedef enum split_kind { SPLIT_PATTERN, SPLIT_ADD_SPACE, SPLIT_METASPACE } split_kind;
typedef enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
} split_behavior;
typedef enum metaspace_prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS } metaspace_prepend;

typedef struct split_step {
    split_kind kind;
    split_behavior behavior;
    bool invert;
    pattern pattern;
    text_view replacement; /* metaspace */
    metaspace_prepend prepend;
} split_step;

enum { TOKENIZER_MAX_STEPS = 64, TOKENIZER_MAX_TEMPLATE = 64 };

typedef struct added_token {
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
    text_view content;
} added_token;

/* The added tokens that are looked for in one pass over a text, as a tree of their bytes. */
typedef struct added_node {
    int32_t child, sibling; /* index, or 0: none */
    int32_t token;          /* index into added, or -1 */
    unsigned char byte;
} added_node;

typedef struct added_tree {
    added_node *nodes; /* [count]; nodes[0]: the root */
    int64_t count, capacity;
    bool first[256]; /* bytes that begin a token */
    int firsts;      /* how many of them */
    unsigned char any_first;
} added_tree;

typedef struct decode_rule {
    bool byte_level, byte_fallback;
    bool spaced;           /* no decoder: tokens with a space between */
    text_view strip;       /* one character, taken off the beginning of the whole text ... */
    int strip_count;       /* ... at most so often */
    text_list texts;       /* what each token gives */
    text_list first_texts; /* what the first token gives, if that is another text (Metaspace); else empty */
    int16_t *bytes;        /* [vocab] the byte that a byte-fallback token stands for; -1: none */
} decode_rule;

struct tokenizer {
    mem *account;
    arena *texts;       /* path, patterns' and steps' texts */
    bool chat_template; /* there is one */
    const char *path;
    int64_t vocab;
    text_list names;       /* as the file writes them */
    text_index by_name;    /* vocabulary and added tokens */
    text_list piece_bytes; /* byte-level only: the bytes that a token of the vocabulary stands for */
    text_index by_piece;   /* vocabulary only, by what pieces are made of */
    bpe_model model;
    normalize_step normalize[TOKENIZER_MAX_STEPS];
    int normalize_count;
    split_step split[TOKENIZER_MAX_STEPS];
    int split_count;
    added_token *added; /* [added_count] */
    int64_t added_count;
    added_tree raw_tree, normalized_tree;
    const added_token **added_by_id; /* [vocab]; NULL: not an added token */
    decode_rule decode;
    int32_t prefix[TOKENIZER_MAX_TEMPLATE], suffix[TOKENIZER_MAX_TEMPLATE];
    int prefix_count, suffix_count;
    int32_t bos, eos;
    int32_t stops[TOKENIZER_MAX_TEMPLATE];
    int stop_count;
};

struct tokenizer_scratch {
    mem *account;
    const tokenizer *t;
    matcher matcher;
    str normalized[2]; /* one is read while the other is written */
    int32_t *codepoints;
    int64_t codepoint_capacity;
    str *split_text; /* [split_count] what a step that changes its text writes */
    bpe_work *work;
    const cancellation *cancellation; /* NULL: nothing stops encoding */
    int64_t unchecked;                /* bytes since it was asked */
};

/* One call of tokenizer_encode. */
typedef struct encode_run {
    const tokenizer *t;
    tokenizer_scratch *s;
    tokenizer_ids *ids;
    bool match_special;
    /* tokenizer_encode_prefixes */
    tokenizer_prefixes *prefixes; /* NULL: none */
    int64_t prefix, reencoded;    /* the next cut; bytes that were encoded again */
} encode_run;

/* ---- reading (json.c); errors do not name the file, tokenizer_open does ---- */

/* `flags`: more of jansson's. *out is NULL when there is no such file. */
ott_status json_read_file(mem *account, const char *path, size_t flags, json_t **out);
/* Must be there; copied to the arena. */
ott_status json_get_text(arena *texts, const json_t *object, const char *key, text_view *out);
/* A text of exactly one character. */
ott_status json_get_character(arena *texts, const json_t *object, const char *key, text_view *out);
/* {"String": ...} or {"Regex": ...} under `pattern`. */
ott_status json_get_pattern(tokenizer *t, const json_t *object, pattern *out);

typedef ott_status (*json_step)(tokenizer *t, const json_t *object, const char *type, void *context);
/* Calls `step` for `object`, or for each member `list` of a Sequence, and of Sequences in it; nothing for
 * null. `part` is for messages. */
ott_status json_each_step(tokenizer *t, const json_t *object, const char *part, const char *list,
                          json_step step, void *context);

/* OTT_ERR_UNSUPPORTED when the file is a tokenizer of another kind, which it names (other.c). */
ott_status tokenizer_check_kind(const char *path);

/* ---- the parts ---- */

ott_status vocab_load(tokenizer *t, const json_t *root);     /* vocab.c: names, merges */
ott_status normalize_load(tokenizer *t, const json_t *root); /* normalize.c */
ott_status split_load(tokenizer *t, const json_t *root);     /* split.c */
ott_status added_load(tokenizer *t, const json_t *root);     /* added.c: after names and normalize */
ott_status decode_load(tokenizer *t, const json_t *root);    /* decode_load.c */
void decode_close(tokenizer *t);
ott_status template_load(tokenizer *t, const json_t *root); /* template.c */
ott_status template_load_neighbours(tokenizer *t);          /* the files beside tokenizer.json */

/* Bytes written as characters, as GPT-2 does: all of them lie below U+0180. */
typedef struct byte_characters {
    int16_t byte[0x180]; /* by character; -1: stands for no byte */
} byte_characters;

byte_characters vocab_byte_characters(void);
/* The bytes that the characters of a text stand for; `out` has room for text.bytes. Returns how many, -1 when
 * a character stands for none. */
int64_t vocab_read_bytes(const byte_characters *all, text_view text, char *out);

/* All of the pattern's matches replaced by `content`, appended to `out`. */
ott_status normalize_replace(const pattern *p, matcher *m, text_view text, text_view content, int64_t limit,
                             str *out);
ott_status normalize_text(tokenizer_scratch *s, text_view text, text_view *out);

/* Added tokens go to run->ids; `rest` is called for what lies between. */
typedef ott_status (*added_rest)(encode_run *run, text_view text, bool at_start);
/* The part of a text from byte `from` on, where an added token ends, or the text begins. */
typedef struct added_part {
    text_view text;
    int64_t from;
} added_part;
/* Called with the part that is left and where the next added token ends (behind the text: there is none), before it is encoded;
   NULL: it is not called. */
typedef ott_status (*added_mark)(encode_run *run, added_part part, int64_t end);
ott_status added_walk(encode_run *run, const added_tree *tree, added_part part, bool at_start,
                      added_rest rest, added_mark mark);

/* Runs pre-tokenizer `step` and those behind it on `text`; `at_start`: the input begins with this text. */
ott_status split_run(encode_run *run, int step, text_view text, bool at_start);

#endif
