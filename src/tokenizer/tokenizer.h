/*
 * tokenizer/tokenizer: text to token ids and back, as Hugging Face's tokenizer.json of a BPE model says: byte-level
 * (Llama 3, Mistral Nemo, Qwen 2.5, Phi-4, DeepSeek-V3) and SentencePiece-style with byte fallback (Llama 2,
 * Mistral 7B). The ids are those of Hugging Face's own engine; a part of a file that is not understood is an
 * OTT_ERR_UNSUPPORTED that names it, never another tokenizer.
 *
 * A tokenizer never changes once it is open: any number of threads may use it, each with its own scratch.
 */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/str.h"
#include "base/cancellation.h"

typedef struct tokenizer tokenizer;

/*
 * `path`: a model's folder, or its tokenizer.json. Beside that file, where they exist, tokenizer_config.json,
 * special_tokens_map.json and generation_config.json tell the ids that begin and end a text. Errors name the
 * file and the part: OTT_ERR_NOT_FOUND, OTT_ERR_FORMAT, OTT_ERR_UNSUPPORTED. "truncation" and "padding" are
 * not read: what to cut is the caller's decision.
 */
ott_status tokenizer_open(mem *account, const char *path, tokenizer **out);
void tokenizer_close(tokenizer *t); /* NULL is allowed */
/* OTT_ERR_NOT_FOUND: `folder` has no tokenizer.json. Says which other tokenizer files it has
   (tokenizer.model, vocab.json), and how they become one. */
ott_status tokenizer_fail_absent(const char *folder);

const char *tokenizer_path(const tokenizer *t); /* of its tokenizer.json */
/* OTT_ERR_ARGUMENT if `output` is one of the files that the tokenizer is read from. */
ott_status tokenizer_check_output(const tokenizer *t, const char *output);
/* Largest id + 1, added tokens included. (vocab_size of config.json may be larger: rows that pad.) */
int64_t tokenizer_vocab(const tokenizer *t);
/* The text of a token as the file writes it ("\u0120the", "\u2581the", "<0x0A>"); NULL when no token has this
 * id. Lives until tokenizer_close. */
const char *tokenizer_token(const tokenizer *t, int64_t id);
/* The id of the token that the file writes so, added tokens included; -1 when there is none. */
int32_t tokenizer_find(const tokenizer *t, const char *text);
/* Has it a chat template, in tokenizer_config.json or in chat_template.jinja (tokenizer/chat.h)? */
bool tokenizer_has_chat_template(const tokenizer *t);
bool tokenizer_is_special(const tokenizer *t, int64_t id);

/*
 * The ids that begin and end a text, -1 when nothing names them. The first that does decides:
 * tokenizer_config.json, special_tokens_map.json, generation_config.json, the post-processor.
 */
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
/* Does TOKENIZER_ADD_SPECIAL begin a text with that BOS, end it with that EOS? As transformers: add_bos_token and add_eos_token of
   tokenizer_config.json, or else the post-processor. */
bool tokenizer_adds_bos(const tokenizer *t);
bool tokenizer_adds_eos(const tokenizer *t);
/* Generation stops at tokenizer_eos and at every eos_token_id of generation_config.json. */
bool tokenizer_is_stop(const tokenizer *t, int64_t id);

/* ---- text to ids ---- */

/* Zero-initialise with {.account = m}; free with tokenizer_ids_free. */
typedef struct tokenizer_ids {
    mem *account;
    int32_t *ids; /* [count] */
    int64_t count, capacity;
} tokenizer_ids;

/* Makes room for `extra` more, at least doubling the list when it must grow. */
ott_status tokenizer_ids_reserve(tokenizer_ids *ids, int64_t extra);
ott_status tokenizer_ids_append(tokenizer_ids *ids, int32_t id);
void tokenizer_ids_free(tokenizer_ids *ids);

/* What encoding needs beside the tokenizer: work space and a cache of words (4 MiB). For one thread at a
 * time, and for this tokenizer only, which must outlive it. */
typedef struct tokenizer_scratch tokenizer_scratch;
ott_status tokenizer_scratch_open(mem *account, const tokenizer *t, tokenizer_scratch **out);
void tokenizer_scratch_close(tokenizer_scratch *s); /* NULL is allowed */
/* Encoding stops when `w` says so, with OTT_ERR_STOPPED; NULL: never. Borrowed; asked every 64 KiB of text. */
void tokenizer_scratch_set_cancellation(tokenizer_scratch *s, const cancellation *w);

enum {
    TOKENIZER_ADD_SPECIAL = 1,   /* what the post-processor puts around a text (BOS, EOS) */
    TOKENIZER_MATCH_SPECIAL = 2, /* "<|eot_id|>" in the text is that token; without it, plain characters.
                                    Added tokens that are not special are recognised always. */
};

#define TOKENIZER_TEXT_LIMIT (INT64_C(1) << 30) /* bytes of one text */

/*
 * Appends the ids of `text` (UTF-8, `bytes` bytes) to `ids`; on failure `ids` is as it was. OTT_ERR_FORMAT:
 * the text is not UTF-8 (names the byte), or a character has no token and the tokenizer no unk_token (Hugging
 * Face drops such characters silently).
 */
ott_status tokenizer_encode(const tokenizer *t, tokenizer_scratch *s, const char *text, int64_t bytes,
                            unsigned flags, tokenizer_ids *ids);

/* Positions in a text, and the number of ids before each. */
typedef struct tokenizer_prefixes {
    const int64_t *at; /* [count] bytes, ascending, where characters begin */
    int64_t *ids;      /* [count] written: ids that the text up to there has alone */
    int64_t count;
} tokenizer_prefixes;

/*
 * As tokenizer_encode; also counts the ids of the text up to each cut. Encodes again only the text between the last added
 * token before a cut and the cut. OTT_ERR_UNSUPPORTED: these texts have more than TOKENIZER_PREFIXES_LIMIT bytes together.
 */
#define TOKENIZER_PREFIXES_LIMIT (INT64_C(64) << 20)
ott_status tokenizer_encode_prefixes(const tokenizer *t, tokenizer_scratch *s, const char *text,
                                     int64_t bytes, unsigned flags, tokenizer_prefixes *prefixes,
                                     tokenizer_ids *ids);

/* ---- ids to text ---- */

/*
 * Appends the text of `count` ids. Bytes that make no character become U+FFFD, so it is always UTF-8; an id
 * without a token gives nothing, as a padding row of the head may be sampled. OTT_ERR_ARGUMENT: a negative
 * id.
 */
ott_status tokenizer_decode(const tokenizer *t, const int32_t *ids, int64_t count, bool skip_special,
                            str *out);

/*
 * The same, id by id, for text that is shown while it is generated. Only whole characters are appended; bytes
 * of an unfinished one wait. Differs from tokenizer_decode only where byte-fallback tokens make no UTF-8.
 */
typedef struct tokenizer_stream {
    const tokenizer *tokenizer;
    bool skip_special;
    bool started;             /* a token has been written */
    int strip_left;           /* characters that the decoder still takes off the beginning */
    int waiting;              /* bytes of an unfinished character */
    unsigned char pending[4]; /* [waiting] */
} tokenizer_stream;

tokenizer_stream tokenizer_stream_start(const tokenizer *t, bool skip_special);
ott_status tokenizer_stream_push(tokenizer_stream *s, int32_t id, str *out);
ott_status tokenizer_stream_finish(tokenizer_stream *s, str *out); /* what is unfinished becomes U+FFFD */

#endif
