/*
 * tokenizer/tokenizer: encodes text to token ids and decodes ids to text. The file is one of
 * - Hugging Face's tokenizer.json with a BPE model: byte-level (Llama 3, Mistral Nemo, Qwen 2.5, Phi-4,
 *   DeepSeek-V3) or SentencePiece-style with byte fallback (Llama 2, Mistral 7B);
 * - SentencePiece's tokenizer.model with a BPE or unigram model;
 * - tiktoken's vocabulary of Llama 3 (tokenizer.model) or Qwen (qwen.tiktoken);
 * - llama.cpp's GGUF file (tokenizer/gguf_tokens).
 * The ids equal the ids of the format's own library: tokenizers, sentencepiece, tiktoken. An unsupported part
 * of a file is an OTT_ERR_UNSUPPORTED that names the part; it is never ignored.
 *
 * A tokenizer is read-only after tokenizer_open. Any number of threads may use it, each with its own scratch.
 */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/text/str.h"
#include "base/cancellation.h"
#include <limits.h>

typedef struct tokenizer tokenizer;

/* Opens a tokenizer. path: a tokenizer file, a GGUF file, or a model's folder (tokenizer_file_in finds its
   file). Also reads tokenizer_config.json, special_tokens_map.json and generation_config.json if they are in
   the same folder. They name the ids that begin and end a text. A GGUF file contains these ids itself. Errors
   name the file and the part: OTT_ERR_NOT_FOUND, OTT_ERR_FORMAT, OTT_ERR_UNSUPPORTED. "truncation" and
   "padding" are not read; the caller truncates and pads. */
ott_status tokenizer_open(mem *account, const char *path, tokenizer **out);
void tokenizer_close(tokenizer *t); /* does nothing for NULL */
/* Finds the folder's tokenizer file: tokenizer.json, or else tokenizer.model, spiece.model,
   sentencepiece.bpe.model or qwen.tiktoken. Returns false if there is none. */
bool tokenizer_file_in(const char *folder, char path[PATH_MAX]);
/* Returns OTT_ERR_NOT_FOUND, for a folder without a tokenizer file or a GGUF file without a tokenizer. If the
   folder has vocab.json and merges.txt, the message contains a command that converts them. */
ott_status tokenizer_fail_absent(const char *folder);

const char *tokenizer_path(const tokenizer *t); /* path of its file */
/* OTT_ERR_ARGUMENT if `output` is one of the tokenizer's own files. */
ott_status tokenizer_check_output(const tokenizer *t, const char *output);
/* Largest id + 1, including added tokens. vocab_size of config.json may be larger, to pad the embedding. */
int64_t tokenizer_vocab(const tokenizer *t);
/* Returns a token's text as in the file ("\u0120the", "\u2581the", "<0x0A>"); NULL if no token has this id.
   Valid until tokenizer_close. */
const char *tokenizer_token(const tokenizer *t, int64_t id);
/* Returns the id of the token with this text in the file, including added tokens; -1 if there is none. */
int32_t tokenizer_find(const tokenizer *t, const char *text);
/* True if tokenizer_config.json, chat_template.jinja or the GGUF file has a chat template (tokenizer/chat.h).
   */
bool tokenizer_has_chat_template(const tokenizer *t);
bool tokenizer_is_special(const tokenizer *t, int64_t id);

/* Ids that begin and end a text; -1 if no file names them. If several files name them, the first of this list
   is used: tokenizer_config.json, special_tokens_map.json, generation_config.json, the SentencePiece model or
   tiktoken vocabulary, the post-processor. A GGUF file has the same settings under its own keys. */
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
/* True if TOKENIZER_ADD_SPECIAL adds the BOS before a text, or the EOS after it. As in transformers,
   add_bos_token and add_eos_token of tokenizer_config.json take precedence over the post-processor. */
bool tokenizer_adds_bos(const tokenizer *t);
bool tokenizer_adds_eos(const tokenizer *t);
/* True if generation stops at this id: tokenizer_eos, or an eos_token_id of generation_config.json. */
bool tokenizer_is_stop(const tokenizer *t, int64_t id);

/* ---- text to ids ---- */

/* Zero-initialize with {.account = m}; free with tokenizer_ids_free. */
typedef struct tokenizer_ids {
    mem *account;
    int32_t *ids; /* [count] token ids */
    int64_t count, capacity;
} tokenizer_ids;

/* Makes `capacity` at least count + extra. If the memory must grow, it grows to at least twice its size. */
ott_status tokenizer_ids_reserve(tokenizer_ids *ids, int64_t extra);
ott_status tokenizer_ids_append(tokenizer_ids *ids, int32_t id);
void tokenizer_ids_free(tokenizer_ids *ids);

/* Work memory of an encoder and a cache of words (4 MiB). Used by one thread at a time, with this tokenizer
   only. The tokenizer must outlive it. */
typedef struct tokenizer_scratch tokenizer_scratch;
ott_status tokenizer_scratch_open(mem *account, const tokenizer *t, tokenizer_scratch **out);
void tokenizer_scratch_close(tokenizer_scratch *s); /* does nothing for NULL */
/* Lets `w` (borrowed) stop encoding with OTT_ERR_STOPPED; it is checked every 64 KiB of text. NULL: never. */
void tokenizer_scratch_set_cancellation(tokenizer_scratch *s, const cancellation *w);

enum {
    TOKENIZER_ADD_SPECIAL = 1, /* add the post-processor's tokens (BOS, EOS) before and after the text */
    /* Encode "<|eot_id|>" in the text as this token; without the flag, as plain characters. Added tokens that
       are not special are always matched. */
    TOKENIZER_MATCH_SPECIAL = 2,
};

#define TOKENIZER_TEXT_LIMIT (INT64_C(1) << 30) /* maximum bytes of one text */

/* Appends the ids of `text` (UTF-8, `bytes` bytes) to `ids`; on failure `ids` is unchanged. OTT_ERR_FORMAT:
   the text is not UTF-8 (the message names the byte), or a character has no token and the tokenizer has no
   unk_token. (Hugging Face silently drops such characters.) */
ott_status tokenizer_encode(const tokenizer *t, tokenizer_scratch *s, const char *text, int64_t bytes,
                            unsigned flags, tokenizer_ids *ids);

/* Prefixes of a text, and the number of ids of each. */
typedef struct tokenizer_prefixes {
    const int64_t *at; /* [count] bytes of each prefix, ascending, at character boundaries */
    int64_t *ids;      /* [count] output: number of ids if the prefix is encoded separately */
    int64_t count;
} tokenizer_prefixes;

/* Like tokenizer_encode. Also counts the ids of the text's first prefixes->at[i] bytes. The end of a prefix
   may have other ids than in the full text, so it is encoded again from the prefix's last added token on.
   OTT_ERR_UNSUPPORTED if this would be more than TOKENIZER_PREFIXES_LIMIT bytes. prefixes: may be NULL. */
#define TOKENIZER_PREFIXES_LIMIT (INT64_C(64) << 20)
ott_status tokenizer_encode_prefixes(const tokenizer *t, tokenizer_scratch *s, const char *text,
                                     int64_t bytes, unsigned flags, tokenizer_prefixes *prefixes,
                                     tokenizer_ids *ids);

/* ---- ids to text ---- */

/* Appends the text of `count` ids. Invalid bytes become U+FFFD, so the text is always UTF-8. Ids without a
   token (a model may have more rows than tokens) append nothing; nor do special tokens if skip_special.
   OTT_ERR_ARGUMENT: a negative id. */
ott_status tokenizer_decode(const tokenizer *t, const int32_t *ids, int64_t count, bool skip_special,
                            str *out);

/* Decodes id by id, to show text during generation. Appends only complete characters and keeps the bytes of
   an incomplete one. Differs from tokenizer_decode only if byte-fallback tokens form invalid UTF-8. */
typedef struct tokenizer_stream {
    const tokenizer *tokenizer;
    bool skip_special;
    bool started;             /* the text of at least one token was written */
    int strip_left;           /* characters that the decoder still strips from the beginning */
    int waiting;              /* bytes of an incomplete character */
    unsigned char pending[4]; /* [waiting] bytes of an incomplete character */
} tokenizer_stream;

tokenizer_stream tokenizer_stream_start(const tokenizer *t, bool skip_special);
ott_status tokenizer_stream_push(tokenizer_stream *s, int32_t id, str *out);
/* Call at the end of the ids. Appends U+FFFD for an incomplete character. */
ott_status tokenizer_stream_finish(tokenizer_stream *s, str *out);

#endif
