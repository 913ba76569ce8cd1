/*
 * tokenizer/parts: what the files of the tokenizer share. A text takes this way: added tokens are cut out
 * (added), the rest is normalized (normalize), cut into pieces (split, regex), and each piece becomes ids
 * (bpe). The way back is decode.
 */
#ifndef TOKENIZER_PARTS_H
#define TOKENIZER_PARTS_H

#include "base/arena.h"
#include "base/json_member.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>
#include <string.h>

#define METASPACE "\xe2\x96\x81" /* U+2581, how SentencePiece writes a space */

typedef struct text_view {
    const char *at; /* [bytes]; borrowed */
    int64_t bytes;
} text_view;

/* ---- texts of tokens (tokenizer_vocab.c) ---- */

/* Texts by id: at[id].at is NULL for an id that has none. Texts lie one behind the other, each NUL-ended. */
typedef struct text_list {
    text_view *at; /* [count] */
    int64_t count;
    char *blob;
    int64_t used;
} text_list;

ott_status text_list_open(mem *account, int64_t count, int64_t blob_bytes, text_list *out);
void text_list_close(mem *account, text_list *list);
/* Copies `bytes` bytes to the text of `id`; there is room in the blob. Returns the copy. */
char *text_list_set(text_list *list, int32_t id, const char *text, int64_t bytes);

/* From a text to its id, over the texts of a list. */
typedef struct text_index {
    const text_list *list;
    int32_t *slots; /* [mask + 1] id + 1, 0: free */
    uint64_t mask;
} text_index;

int32_t text_index_find(const text_index *index, const char *text, int64_t bytes); /* -1: absent */
/* False when the text is there already, under another id or the same. */
bool text_index_add(text_index *index, int32_t id);

/* ---- regular expressions (tokenizer_regex.c) ---- */

/* The members of \w in both of the reference engine's regular expressions, for use in brackets. */
#define COMMON_WORDS                                                                                         \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{"     \
    "1f170}-\\x{1f189}"

/* One of a few known expressions, as plain code for ASCII (tokenizer_ascii.c). */
typedef struct ascii_rule ascii_rule;
const ascii_rule *ascii_rule_find(text_view regex); /* NULL: not a known one */
/* Where the match that begins at `from` < text.bytes ends: these patterns match everywhere. -1: characters
 * that are not ASCII have a say in it. */
int64_t ascii_match(const ascii_rule *rule, text_view text, int64_t from);

/* A regular expression of Oniguruma's Ruby syntax, or a literal text when `code` is NULL. */
typedef struct pattern {
    struct pcre2_real_code_8 *code, *counted; /* counted: the same, with a callout before each item */
    const ascii_rule *ascii;                  /* NULL: none */
    text_view literal;
} pattern;

/* What running patterns needs, one per thread. */
typedef struct matcher {
    int64_t budget, left; /* steps: of the text, and what of them is left */
    int64_t searches;     /* in the text */
    struct pcre2_real_general_context_8 *memory;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_jit_stack_8 *stack;
} matcher;

/* `regex` need not be ended. OTT_ERR_UNSUPPORTED: not compilable, or it would mean something else in PCRE2.
 */
ott_status pattern_compile(mem *account, text_view regex, pattern *out);
void pattern_free(pattern *p);
ott_status matcher_open(mem *account, matcher *out);
/* A text of so many bytes begins: all searches in it share its budget of steps, so that no text and pattern
 * together run without end. matcher_open: a text of none. */
void matcher_begin(matcher *m, int64_t bytes);
void matcher_close(matcher *m);

/* Walks over the matches of a pattern in a text, empty ones included, as Oniguruma's find_iter does. */
typedef struct match_walk {
    const pattern *pattern;
    matcher *matcher;
    text_view text;   /* valid UTF-8 */
    int64_t from;     /* where the search goes on */
    int64_t last_end; /* of the last match; -1: none yet */
    int64_t begin, end;
} match_walk;

match_walk match_walk_start(const pattern *p, matcher *m, text_view text);
/* Sets begin and end of the next match; begin == -1 when there is none. OTT_ERR_UNSUPPORTED: the budget is
 * used up. */
ott_status match_walk_next(match_walk *w);

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

typedef struct merge_slot {
    uint32_t left, right; /* ids */
    int32_t rank;         /* smaller goes first; -1: a free slot */
    int32_t id;           /* of the merged token */
} merge_slot;

typedef struct bpe_model {
    bool byte_level; /* pieces are bytes; else characters */
    bool ignore_merges, byte_fallback, fuse_unk;
    int32_t unk;           /* -1: none */
    int32_t byte_ids[256]; /* byte-level: of each byte; else of "<0xNN>"; -1: none */
    int32_t ascii[128];    /* of each ASCII character alone, as a piece; -1: none */
    merge_slot *merges;    /* [merge_mask + 1] */
    uint64_t merge_mask;
    bool cut; /* no merge joins a character with a U+2581 behind it, so that words can be encoded alone */
    bool cuts[128][128]; /* if so: nor does one join these two ASCII characters */
} bpe_model;

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

typedef struct bpe_work bpe_work;

struct tokenizer_scratch {
    mem *account;
    const tokenizer *t;
    matcher matcher;
    str normalized[2]; /* one is read while the other is written */
    int32_t *codepoints;
    int64_t codepoint_capacity;
    str *split_text; /* [split_count] what a step that changes its text writes */
    bpe_work *work;
};

/* One call of tokenizer_encode. */
typedef struct encode_run {
    const tokenizer *t;
    tokenizer_scratch *s;
    tokenizer_ids *ids;
    bool match_special;
} encode_run;

/* ---- reading (tokenizer_json.c); errors do not name the file, tokenizer_open does ---- */

/* A text of the file for a message: cut to fit, control characters replaced. */
typedef struct json_shown {
    char text[96];
} json_shown;
json_shown json_show(const char *text);

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

/* OTT_ERR_UNSUPPORTED when the file is a tokenizer of another kind, which it names (tokenizer_other.c). */
ott_status tokenizer_check_kind(const char *path);

/* ---- the parts ---- */

ott_status model_load(tokenizer *t, const json_t *root);     /* tokenizer_vocab.c: names, merges */
ott_status normalize_load(tokenizer *t, const json_t *root); /* tokenizer_normalize.c */
ott_status split_load(tokenizer *t, const json_t *root);     /* tokenizer_split.c */
ott_status added_load(tokenizer *t, const json_t *root);  /* tokenizer_added.c: after names and normalize */
ott_status decode_load(tokenizer *t, const json_t *root); /* tokenizer_decode_load.c */
void decode_close(tokenizer *t);
ott_status template_load(tokenizer *t, const json_t *root); /* tokenizer_template.c */
ott_status template_load_neighbours(tokenizer *t);          /* the files beside tokenizer.json */

/* Bytes written as characters, as GPT-2 does: all of them lie below U+0180. */
typedef struct byte_characters {
    int16_t byte[0x180]; /* by character; -1: stands for no byte */
} byte_characters;

byte_characters byte_characters_all(void);
/* The bytes that the characters of a text stand for; `out` has room for text.bytes. Returns how many, -1 when
 * a character stands for none. */
int64_t byte_characters_read(const byte_characters *all, text_view text, char *out);

static inline uint64_t merge_hash(uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}
/* NULL: the two do not merge. */
static inline const merge_slot *merge_find(const bpe_model *m, uint32_t left, uint32_t right) {
    for (uint64_t i = merge_hash(left, right);; i++) {
        const merge_slot *slot = &m->merges[i & m->merge_mask];
        if (slot->left == left && slot->right == right) return slot;
        if (slot->rank < 0) return NULL;
    }
}

/* All of the pattern's matches replaced by `content`, appended to `out`. */
ott_status replace_all(const pattern *p, matcher *m, text_view text, text_view content, int64_t limit,
                       str *out);
ott_status normalize_text(tokenizer_scratch *s, text_view text, text_view *out);

/* White space and \w of a Rust regex, in bytes (tokenizer_characters.c). */
int64_t spaces_at_start(text_view text);
int64_t spaces_at_end(text_view text);
bool starts_with_word(text_view text);
bool ends_with_word(text_view text);

/* Added tokens go to run->ids; `rest` is called for what lies between. */
typedef ott_status (*added_rest)(encode_run *run, text_view text, bool at_start);
ott_status added_walk(encode_run *run, const added_tree *tree, text_view text, bool at_start,
                      added_rest rest);

/* Runs pre-tokenizer `step` and those behind it on `text`; `at_start`: the input begins with this text. */
ott_status split_run(encode_run *run, int step, text_view text, bool at_start);

ott_status bpe_open(mem *account, bpe_work **out);
void bpe_close(mem *account, bpe_work *work);
ott_status bpe_encode(encode_run *run, text_view piece);

static inline bool view_starts_with(text_view text, text_view prefix) {
    return text.bytes >= prefix.bytes && memcmp(text.at, prefix.at, (size_t)prefix.bytes) == 0;
}

/* Bytes of the UTF-8 character that begins with this byte. */
static inline int character_bytes(unsigned char lead) {
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static inline uint64_t hash_load(const char *p, int bytes) {
    uint64_t value = 0;
    if (bytes == 8)
        memcpy(&value, p, 8);
    else
        memcpy(&value, p, 4);
    return value;
}

static inline uint64_t hash_mix(uint64_t h, uint64_t value) {
    h = (h ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

/* Reads 8 bytes at a time, the last ones overlapping. */
static inline uint64_t hash_bytes(const char *p, int64_t n) {
    uint64_t h = (uint64_t)n * UINT64_C(0xd6e8feb86659fd93);
    if (n >= 8) {
        for (int64_t i = 0; i + 8 < n; i += 8) h = hash_mix(h, hash_load(p + i, 8));
        return hash_mix(h, hash_load(p + n - 8, 8));
    }
    if (n >= 4) return hash_mix(h, hash_load(p, 4) | hash_load(p + n - 4, 4) << 32);
    if (n == 0) return h;
    return hash_mix(h, (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 |
                           (unsigned char)p[n - 1]);
}

/* memcmp for words, which are too short for a call. */
static inline bool same_bytes(const char *a, const char *b, int64_t n) {
    if (n >= 8) {
        for (int64_t i = 0; i + 8 < n; i += 8)
            if (hash_load(a + i, 8) != hash_load(b + i, 8)) return false;
        return hash_load(a + n - 8, 8) == hash_load(b + n - 8, 8);
    }
    if (n >= 4)
        return hash_load(a, 4) == hash_load(b, 4) && hash_load(a + n - 4, 4) == hash_load(b + n - 4, 4);
    return n == 0 || (a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1]);
}

#endif
