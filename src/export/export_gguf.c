/* export/export_gguf: writes tokens, token types, merges and special ids as llama.cpp reads them.
   tokenizer.ggml.model is "gpt2" for byte-level BPE, with the name of its pre-tokenizer in
   tokenizer.ggml.pre, and "llama" for SentencePiece. A tokenizer that llama.cpp would run differently is
   refused. */
#include "export/export_gguf.h"
#include "data/data.h"
#include "tokenizer/chat.h"
#include "tokenizer/describe.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Values of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };
static const int token_types[] = {
    [TOKEN_NONE] = TYPE_UNUSED,     [TOKEN_PIECE] = TYPE_NORMAL,       [TOKEN_BYTE] = TYPE_BYTE,
    [TOKEN_UNKNOWN] = TYPE_UNKNOWN, [TOKEN_ADDED] = TYPE_USER_DEFINED, [TOKEN_SPECIAL] = TYPE_CONTROL};

typedef struct describing {
    mem *account;
    const logger *log;
    const tokenizer *t;
    int64_t vocab; /* rows of the model's embedding */
    gguf_metadata *m;
} describing;

static void add_metadata_text(gguf_metadata *m, const char *text) {
    gguf_metadata_add_text(m, text, (int64_t)strlen(text));
}

#define WORD_START "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SIGNS      " ?[^\\s\\p{L}\\p{N}]+"

enum { MOST_SPLITS = 4 };

/* llama.cpp's names of pre-tokenizers (its src/llama-vocab.cpp), with the regular expressions that split the
   text. A name also implies settings, such as an added BOS. Keys of the GGUF file override these settings. */
static const struct {
    const char *name;
    const char *regex[MOST_SPLITS]; /* the list ends with NULL */
    bool ignores_merges;
} pre_tokenizers[] = {
    {"llama-bpe", {TOKENIZER_LLAMA3}, true},
    {"dbrx", {TOKENIZER_LLAMA3}, false}, /* for the models dbrx and Phi-4 */
    {"qwen2", {TOKENIZER_QWEN2}, false},
    {"tekken",
     {WORD_START UPPER "*" LOWER "+|" WORD_START UPPER "+" LOWER "*|\\p{N}|" SIGNS
                       "[\\r\\n/]*" TOKENIZER_SPACES},
     true},
    {"gpt-4o",
     {WORD_START UPPER "*" LOWER "+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" WORD_START UPPER "+" LOWER
                       "*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|" SIGNS "[\\r\\n/]*" TOKENIZER_SPACES},
     false},
    {"gpt-2", {TOKENIZER_GPT2}, false},
    {"starcoder", {"\\p{N}", TOKENIZER_GPT2}, false},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
     false},
};

static const char *find_pre_tokenizer(const tokenizer *t) {
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof *pre_tokenizers; i++)
        if (tokenizer_is_byte_level(t, pre_tokenizers[i].regex, pre_tokenizers[i].ignores_merges))
            return pre_tokenizers[i].name;
    return NULL;
}

/* ---- tokens ---- */

/* Names a row of the embedding that has no token. */
static void add_padding(gguf_metadata *m, int64_t id) {
    char name[32];
    snprintf(name, sizeof name, "[PAD%" PRId64 "]", id);
    add_metadata_text(m, name);
}

/* Appends one of a merge's two tokens, with U+0120 for a space: in GGUF a space separates the two tokens. */
static void append_merge_part(str *text, const char *name) {
    for (; *name; name++)
        if (*name == ' ')
            str_append(text, "\u0120");
        else
            str_append_bytes(text, name, 1);
}

static ott_status describe_merges(describing *d, const tokenizer_merge *merge, int64_t count) {
    str text = {.account = d->account};
    gguf_metadata_list(d->m, "tokenizer.ggml.merges", GGUF_LIST_TEXTS, count);
    for (int64_t i = 0; i < count; i++) {
        text.length = 0;
        append_merge_part(&text, tokenizer_token(d->t, merge[i].left));
        str_append(&text, " ");
        append_merge_part(&text, tokenizer_token(d->t, merge[i].right));
        if (text.failed) break;
        gguf_metadata_add_text(d->m, text.text, text.length);
    }
    ott_status status = str_finish(&text);
    str_free(&text);
    return status;
}

/* llama.cpp merges the pair with the highest score first, so earlier merges get higher scores. */
static ott_status describe_scores(describing *d, const tokenizer_merge *merge, int64_t count) {
    float *score;
    TRY(mem_alloc_array(d->account, MEM_DATA, d->vocab, sizeof(float), "scores of tokens", &score));
    for (int64_t id = 0; id < d->vocab; id++) score[id] = (float)-count - 1;
    for (int64_t i = count; i-- > 0;)
        if (merge[i].merged < d->vocab) score[merge[i].merged] = (float)-i;
    gguf_metadata_list(d->m, "tokenizer.ggml.scores", GGUF_LIST_REALS, d->vocab);
    for (int64_t id = 0; id < d->vocab; id++) gguf_metadata_add_real(d->m, score[id]);
    mem_free(d->account, score);
    return OTT_OK;
}

/* ---- ids ---- */

static void put_id(describing *d, const char *key, int64_t id) {
    if (id >= 0 && id < d->vocab) gguf_metadata_count(d->m, key, id);
}

/* Returns a stop token other than EOS, such as the end of a turn; -1 if there is none. */
static int64_t other_stop(const tokenizer *t) {
    for (int64_t id = 0; id < tokenizer_vocab(t); id++)
        if (tokenizer_is_stop(t, id) && id != tokenizer_eos(t)) return id;
    return -1;
}

/* True if `id` is the only token added before a text (`after`: after it). GGUF can express no other case. */
static bool adds_only(const tokenizer *t, bool after, int32_t id) {
    int count;
    const int32_t *around = tokenizer_added_around(t, after, &count);
    return count == 1 && around[0] == id;
}

static bool adds_other(const tokenizer *t, bool after, int32_t id) {
    int count;
    tokenizer_added_around(t, after, &count);
    return count > 0 && !adds_only(t, after, id);
}

/* Writes the ids of special tokens. Without an EOS key, llama.cpp would use token 11 as EOS. */
static void describe_ids(describing *d) {
    int32_t bos = tokenizer_bos(d->t), eos = tokenizer_eos(d->t);
    int64_t end = eos >= 0 ? eos : bos >= 0 ? bos : tokenizer_vocab(d->t);
    put_id(d, "tokenizer.ggml.bos_token_id", bos);
    put_id(d, "tokenizer.ggml.eos_token_id", end);
    put_id(d, "tokenizer.ggml.eot_token_id", other_stop(d->t));
    put_id(d, "tokenizer.ggml.unknown_token_id", tokenizer_unknown(d->t));
    gguf_metadata_bool(d->m, "tokenizer.ggml.add_bos_token", adds_only(d->t, false, bos));
    gguf_metadata_bool(d->m, "tokenizer.ggml.add_eos_token", adds_only(d->t, true, eos));
    if (adds_other(d->t, false, bos) || adds_other(d->t, true, eos))
        log_warning(d->log,
                    "%s: the tokenizer adds tokens other than BOS and EOS around a text; a GGUF file cannot "
                    "express them, so llama.cpp will not add them",
                    tokenizer_path(d->t));
}

static void warn_of_greedy(const describing *d) {
    int32_t id = tokenizer_find_flagged(d->t);
    if (id >= 0)
        log_warning(
            d->log,
            "%s: the token %s includes spaces around it, or must be a separate word, which a GGUF file "
            "cannot express: llama.cpp will keep the spaces",
            tokenizer_path(d->t), str_show(tokenizer_token(d->t, id)).text);
}

static ott_status describe_template(describing *d) {
    str text = {.account = d->account};
    ott_status status = OTT_OK;
    if (!tokenizer_has_chat_template(d->t)) return OTT_OK;
    TRY_OUT(chat_read(d->account, d->t, &text));
    gguf_metadata_text(d->m, "tokenizer.chat_template", text.text, text.length);
out:
    str_free(&text);
    return status;
}

/* ---- the tokenizer ---- */

static ott_status describe_kind(describing *d, const tokenizer_merge *merge, int64_t count) {
    bool prepends;
    const char *pre = find_pre_tokenizer(d->t);
    if (pre) {
        gguf_metadata_string(d->m, "tokenizer.ggml.model", "gpt2");
        gguf_metadata_string(d->m, "tokenizer.ggml.pre", pre);
        return describe_merges(d, merge, count);
    }
    if (!tokenizer_is_sentencepiece(d->t, &prepends))
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: llama.cpp does not support how the tokenizer splits a text: give an empty --from for "
            "a file without a tokenizer (llama.cpp then needs token ids)",
            tokenizer_path(d->t));
    gguf_metadata_string(d->m, "tokenizer.ggml.model", "llama");
    gguf_metadata_string(d->m, "tokenizer.ggml.pre", "default");
    gguf_metadata_bool(d->m, "tokenizer.ggml.add_space_prefix", prepends);
    return describe_scores(d, merge, count);
}

static ott_status describe_tokenizer(describing *d) {
    tokenizer_merge *merge = NULL;
    int64_t count;
    if (tokenizer_vocab(d->t) > d->vocab)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: has %" PRId64 " tokens, but the model has %" PRId64
                           ": give the tokenizer it was trained with (--from)",
                           tokenizer_path(d->t), tokenizer_vocab(d->t), d->vocab);
    TRY(tokenizer_merges(d->account, d->t, &merge, &count));
    ott_status status = describe_kind(d, merge, count);
    mem_free(d->account, merge);
    if (status != OTT_OK) return status;
    gguf_metadata_list(d->m, "tokenizer.ggml.tokens", GGUF_LIST_TEXTS, d->vocab);
    for (int64_t id = 0; id < d->vocab; id++) {
        const char *name = tokenizer_token(d->t, id);
        if (name)
            add_metadata_text(d->m, name);
        else
            add_padding(d->m, id);
    }
    gguf_metadata_list(d->m, "tokenizer.ggml.token_type", GGUF_LIST_INTEGERS, d->vocab);
    for (int64_t id = 0; id < d->vocab; id++)
        gguf_metadata_add_integer(d->m, token_types[tokenizer_kind(d->t, id)]);
    describe_ids(d);
    warn_of_greedy(d);
    return describe_template(d);
}

/* Writes a tokenizer with one token per byte and no merges. */
static void describe_bytes(gguf_metadata *m, int64_t vocab) {
    char name[4] = "";
    gguf_metadata_string(m, "tokenizer.ggml.model", "gpt2");
    gguf_metadata_string(m, "tokenizer.ggml.pre", "gpt-2");
    gguf_metadata_list(m, "tokenizer.ggml.merges", GGUF_LIST_TEXTS, 0);
    gguf_metadata_list(m, "tokenizer.ggml.tokens", GGUF_LIST_TEXTS, vocab);
    for (int64_t id = 0; id < vocab; id++) {
        if (id >= 256)
            add_padding(m, id);
        else
            gguf_metadata_add_text(m, name, tokenizer_byte_name((unsigned char)id, name));
    }
    gguf_metadata_list(m, "tokenizer.ggml.token_type", GGUF_LIST_INTEGERS, vocab);
    for (int64_t id = 0; id < vocab; id++) gguf_metadata_add_integer(m, id < 256 ? TYPE_NORMAL : TYPE_UNUSED);
    if (vocab > 256) gguf_metadata_count(m, "tokenizer.ggml.eos_token_id", 256);
    gguf_metadata_bool(m, "tokenizer.ggml.add_bos_token", false);
}

ott_status export_gguf_tokenizer(mem *account, const logger *log, const config *cfg, const char *from,
                                 int64_t vocab, gguf_metadata *m, str *source) {
    char own[PATH_MAX];
    tokenizer *t = NULL;
    data_tokenizer_path(cfg, own);
    const char *path = from ? from : own;
    if (!from && !*own && !data_no_text_reason(cfg) && vocab >= 256) {
        describe_bytes(m, vocab);
        str_append(source, "every byte is a token");
        return str_finish(source);
    }
    if (!*path) {
        gguf_metadata_string(m, "tokenizer.ggml.model", "none");
        str_append(source, "none: llama.cpp needs token ids");
        return str_finish(source);
    }
    ott_status status = tokenizer_open(account, path, &t);
    if (status == OTT_OK) {
        str_append(source, tokenizer_path(t));
        status = describe_tokenizer(&(describing){account, log, t, vocab, m});
    }
    tokenizer_close(t);
    return status == OTT_OK ? str_finish(source) : status;
}
