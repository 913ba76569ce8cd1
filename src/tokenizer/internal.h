/* tokenizer/internal: structures shared by the tokenizer's files. Encoding finds the added tokens in a text
   (added), normalizes the rest (normalize), splits it into pieces (split, regex), and converts each piece to
   ids (bpe). Decoding is in decode. */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "base/arena.h"
#include "base/json/json_member.h"
#include "tokenizer/bpe.h"
#include "tokenizer/regex.h"
#include "tokenizer/text/text.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>
#include <limits.h>

#define METASPACE "\xe2\x96\x81" /* U+2581, SentencePiece's character for a space */

/* ---- the steps of a tokenizer ---- */

typedef enum normalize_kind {
    NORMALIZE_UNICODE, /* NFC, NFD, NFKC, NFKD */
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP,
    NORMALIZE_PREPEND,
    NORMALIZE_REPLACE,
    NORMALIZE_SENTENCE /* SentencePiece's normalizer */
} normalize_kind;

typedef struct normalize_step {
    normalize_kind kind;
    int unicode;              /* for NORMALIZE_UNICODE: options of utf8proc */
    unsigned char first_byte; /* text with only smaller bytes is already normal */
    bool left, right;         /* for NORMALIZE_STRIP: the ends to strip */
    pattern pattern;          /* for NORMALIZE_REPLACE: what to replace */
    text_view content;        /* for NORMALIZE_PREPEND and NORMALIZE_REPLACE: the new text */
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
    text_view replacement; /* for SPLIT_METASPACE: text that replaces a space */
    metaspace_prepend prepend;
} split_step;

enum { TOKENIZER_MAX_STEPS = 64, TOKENIZER_MAX_TEMPLATE = 64 };

/* lstrip: a match includes the white space to its left; rstrip: to its right. single_word: matches only
   between non-word characters. normalized: matches after normalization. */
typedef struct added_token {
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
    text_view content;
} added_token;

/* Texts to find in one pass over a text, as a tree of their bytes: added tokens, or pieces of a unigram
   model. */
typedef struct added_node {
    int32_t child, sibling; /* index of a node; 0: none */
    int32_t token;          /* index of the added token, or id of the piece, that ends here; -1: none */
    unsigned char byte;
} added_node;

typedef struct added_tree {
    added_node *nodes; /* [count]; nodes[0]: the root */
    int64_t count, capacity;
    bool first[256];         /* true for bytes that begin a token */
    int firsts;              /* number of bytes that begin a token */
    unsigned char any_first; /* one byte that begins a token */
} added_tree;

/* SentencePiece's normalizer: replacements (charsmap), and rules for white space. */
typedef struct sentence_rules {
    bool dummy_prefix, squeezes, escapes; /* add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces */
    bool only_first;        /* transformers' legacy = false: dummy_prefix only before the start of the text */
    const char *trie;       /* [units] little-endian uint32: a double-array trie of the replaced texts */
    int64_t units;          /* 0: no replacements */
    text_view replacements; /* texts that end with zero bytes, at the offsets that the trie stores */
} sentence_rules;

/* SentencePiece's unigram model. */
typedef struct unigram_model {
    added_tree tree; /* texts of the pieces */
    float *scores;   /* [pieces]; NULL: the model is BPE */
    float unknown;   /* score of a character without a piece */
} unigram_model;

typedef struct decode_rule {
    bool byte_level, byte_fallback;
    bool spaced;           /* the file has no decoder: tokens are joined with spaces */
    text_view strip;       /* a character that is stripped from the start of the full text */
    int strip_count;       /* maximum number of characters that are stripped */
    text_list texts;       /* text of each token */
    text_list first_texts; /* text of each first token (Metaspace); no list: `texts` is used */
    int16_t *bytes;        /* [vocab] byte of a byte-fallback token; -1: none */
} decode_rule;

struct tokenizer {
    mem *account;
    arena *texts;       /* memory of the path, the patterns and the steps */
    bool chat_template; /* true if the tokenizer has a chat template */
    const char *path;
    bool is_gguf;            /* path is a GGUF file, which has no companion files */
    text_view gguf_template; /* the chat template of the GGUF file */
    int64_t vocab;
    text_list names;       /* texts of the tokens as in the file */
    text_index by_name;    /* finds tokens by name, including added tokens */
    text_list piece_bytes; /* byte-level only: bytes of each token of the vocabulary */
    text_index by_piece;   /* finds vocabulary tokens: byte-level by piece_bytes, else by name */
    bpe_model model;
    /* SentencePiece and tiktoken: two tokens merge if their text is a ranked token; lower ranks first. */
    const int32_t *ranks; /* [ranked] rank of each token; -1: none; NULL: the file lists its merges */
    int64_t ranked;
    sentence_rules *sentence; /* NULL: not a SentencePiece model */
    unigram_model unigram;
    const char *bos_name, *eos_name; /* default BOS, which is added before a text, and EOS; NULL: none */
    normalize_step normalize[TOKENIZER_MAX_STEPS];
    int normalize_count;
    split_step split[TOKENIZER_MAX_STEPS];
    int split_count;
    added_token *added; /* [added_count] added tokens */
    int64_t added_count;
    added_tree raw_tree, normalized_tree;
    const added_token **added_by_id; /* [vocab]; NULL: not an added token */
    decode_rule decode;
    /* ids that TOKENIZER_ADD_SPECIAL adds before and after a text */
    int32_t prefix[TOKENIZER_MAX_TEMPLATE], suffix[TOKENIZER_MAX_TEMPLATE];
    int prefix_count, suffix_count;
    int32_t bos, eos;
    int32_t stops[TOKENIZER_MAX_TEMPLATE]; /* eos_token_id of generation_config.json */
    int stop_count;
};

struct tokenizer_scratch {
    mem *account;
    const tokenizer *t;
    matcher matcher;
    str normalized[2]; /* source and destination of a normalizer step */
    int32_t *codepoints;
    int64_t codepoint_capacity;
    str *split_text; /* [split_count] output of pre-tokenizer steps that change their text */
    bpe_work *work;
    const cancellation *cancellation; /* NULL: encoding cannot be stopped */
    bool at_start;                    /* normalize_text receives the start of the text */
    struct unigram_node *nodes;       /* [node_capacity] for the unigram model */
    int64_t node_capacity;
    int64_t unchecked; /* bytes encoded since the last check of `cancellation` */
};

/* One call of tokenizer_encode. */
typedef struct encode_run {
    const tokenizer *t;
    tokenizer_scratch *s;
    tokenizer_ids *ids;
    bool match_special;
    /* tokenizer_encode_prefixes sets these members */
    tokenizer_prefixes *prefixes; /* NULL: none */
    int64_t prefix, reencoded;    /* index of the next prefix; bytes encoded again so far */
} encode_run;

/* ---- reading (json.c); tokenizer_open adds the file name to errors ---- */

/* Maximum bytes of a file. The largest known files have 40 MB. */
#define TOKENIZER_FILE_LIMIT (INT64_C(256) << 20)

/* Parses a JSON file, which must be an object. */
ott_status json_parse_object(const char *path, const char *data, int64_t bytes, size_t flags, json_t **out);
/* Reads a JSON file. `flags`: additional flags of jansson. *out is NULL if the file does not exist. */
ott_status json_read_file(mem *account, const char *path, size_t flags, json_t **out);
/* Reads a required text; copies it to the arena. */
ott_status json_get_text(arena *texts, const json_t *object, const char *key, text_view *out);
/* Reads a text of exactly one character. */
ott_status json_get_character(arena *texts, const json_t *object, const char *key, text_view *out);
/* Reads {"String": ...} or {"Regex": ...} of the key `pattern`. */
ott_status json_get_pattern(tokenizer *t, const json_t *object, pattern *out);

typedef ott_status (*json_step)(tokenizer *t, const json_t *object, const char *type, void *context);
/* Calls `step` for `object`. If it is a Sequence, calls `step` for each element of its member `list` instead
   (recursively). Does nothing for null. `part`: name of `object` for messages. */
ott_status json_each_step(tokenizer *t, const json_t *object, const char *part, const char *list,
                          json_step step, void *context);

/* Reads a JSON file in the tokenizer's folder. *out is NULL if the file does not exist. */
ott_status tokenizer_read_neighbour(tokenizer *t, const char *name, size_t flags, json_t **out);
/* Reads a tokenizer file of any kind except GGUF (file.c). *root: the members of a tokenizer.json; release
   with json_decref. */
ott_status tokenizer_read_file(tokenizer *t, json_t **root);

/* ---- the parts ---- */

ott_status vocab_load(tokenizer *t, const json_t *root);     /* vocab.c: names and merges */
ott_status normalize_load(tokenizer *t, const json_t *root); /* normalize.c: normalizer steps */
ott_status split_load(tokenizer *t, const json_t *root);     /* split.c: pre-tokenizer steps */
ott_status added_load(tokenizer *t, const json_t *root);     /* added.c; after vocab, normalize */
ott_status decode_load(tokenizer *t, const json_t *root);    /* decode_load.c: decoder */
void decode_close(tokenizer *t);
ott_status template_load(tokenizer *t, const json_t *root); /* template.c: post-processor */
/* Writes the path of a file in the tokenizer's folder. Returns false for a GGUF tokenizer, or if the path is
   too long. */
bool tokenizer_neighbour(const tokenizer *t, const char *name, char path[PATH_MAX]);
/* Sets the BOS, EOS and stop ids from the contents of tokenizer_config.json, special_tokens_map.json and
   generation_config.json; NULL: there is no such file. */
ott_status template_load_ends(tokenizer *t, const json_t *config, const json_t *map,
                              const json_t *generation);
ott_status template_load_neighbours(tokenizer *t); /* reads other files in the tokenizer's folder */

/* Adds a text to a tree with enough nodes (added_tree.c). If two texts are equal, the first one's token is
   kept. */
ott_status added_tree_add(added_tree *tree, text_view text, int32_t token);
int32_t added_tree_child(const added_tree *tree, int32_t node, unsigned char byte); /* 0: none */
/* Returns the token with the longest text at byte `at`; -1: none. *end: position after the token. */
int32_t added_tree_longest(const added_tree *tree, text_view text, int64_t at, int64_t *end);

/* GPT-2's mapping of bytes to characters, all less than U+0180. */
typedef struct byte_characters {
    int16_t byte[0x180]; /* byte of each character; -1: none */
} byte_characters;

byte_characters vocab_byte_characters(void);
/* Converts a text's characters to bytes in out[text.bytes]. Returns their number; -1 if a character
   represents no byte. */
int64_t vocab_read_bytes(const byte_characters *all, text_view text, char *out);

/* Appends the text to `out`, with all matches of the pattern replaced by `content`. Fails above `limit`
   bytes. */
ott_status normalize_replace(const pattern *p, matcher *m, text_view text, text_view content, int64_t limit,
                             str *out);
ott_status normalize_text(tokenizer_scratch *s, text_view text, text_view *out);

/* Called by added_walk for the text between added tokens. */
typedef ott_status (*added_rest)(encode_run *run, text_view text, bool at_start);
/* The part of `text` that begins at byte `from`: at 0 or at the end of an added token. */
typedef struct added_part {
    text_view text;
    int64_t from;
} added_part;
/* Called before an added token is encoded, with the text that is left and the end of this token. Finally
   called with the text after the last added token, and `end` = text.bytes + 1. May be NULL. */
typedef ott_status (*added_mark)(encode_run *run, added_part part, int64_t end);
/* Appends the ids of the added tokens in part.text from byte part.from on. Calls `rest` for the text between
   them. at_start: the text begins the input. */
ott_status added_walk(encode_run *run, const added_tree *tree, added_part part, bool at_start,
                      added_rest rest, added_mark mark);

/* Returns the text by which a token is found: its content, which is normalized if the token matches after
   normalization. Exception: SentencePiece's normalizer does not change the texts of tokens. */
ott_status added_content(tokenizer_scratch *s, const added_token *token, text_view *out);

/* Runs pre-tokenizer `step` and all later steps on `text`. at_start: `text` begins the input. */
ott_status split_run(encode_run *run, int step, text_view text, bool at_start);

#endif
