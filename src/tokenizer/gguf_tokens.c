/* tokenizer/gguf_tokens: names of pre-tokenizers, and conversion to Hugging Face's tokenizer files. */
#include "tokenizer/gguf_tokens.h"
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "base/text/text.h"
#include "formats/gguf/gguf_read.h"
#include "tokenizer/describe.h"
#include "tokenizer/formats/formats.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- pre-tokenizers ---- */

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
    const char *others; /* further names with the same rules, "|" around each */
    bool adds_bos;      /* add_bos_token if the file does not have this key */
    bool composes;      /* the original tokenizers normalize with NFC */
} pre_tokenizers[] = {
    {"llama-bpe",
     {TOKENIZER_LLAMA3},
     .ignores_merges = true,
     .others = "|llama3|llama-v3|falcon3|",
     .adds_bos = true},
    {"dbrx", {TOKENIZER_LLAMA3}, .others = "|smaug-bpe|"}, /* for the models dbrx and Phi-4 */
    {"qwen2", {TOKENIZER_QWEN2}, .others = "|deepseek-r1-qwen|megrez|", .composes = true},
    {"tekken",
     {WORD_START UPPER "*" LOWER "+|" WORD_START UPPER "+" LOWER "*|\\p{N}|" SIGNS
                       "[\\r\\n/]*" TOKENIZER_SPACES},
     .ignores_merges = true,
     .adds_bos = true},
    {"gpt-4o",
     {WORD_START UPPER "*" LOWER "+" TOKENIZER_CONTRACTIONS "?|" WORD_START UPPER "+" LOWER
                       "*" TOKENIZER_CONTRACTIONS "?|\\p{N}{1,3}|" SIGNS "[\\r\\n/]*" TOKENIZER_SPACES},
     .others = "|llama4|"},
    {"gpt-2", {TOKENIZER_GPT2}, .others = "|phi-2|olmo|jais|"},
    {"starcoder",
     {"\\p{N}", TOKENIZER_GPT2},
     .others = "|smollm|refact|command-r|codeshell|exaone|minerva-7b|"},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
     .ignores_merges = false},
};
enum { PRE_TOKENIZERS = sizeof pre_tokenizers / sizeof *pre_tokenizers };

const char *gguf_pre_tokenizer(const tokenizer *t) {
    for (int i = 0; i < PRE_TOKENIZERS; i++)
        if (tokenizer_is_byte_level(t, pre_tokenizers[i].regex, pre_tokenizers[i].ignores_merges))
            return pre_tokenizers[i].name;
    return NULL;
}

/* Returns the index of a name in pre_tokenizers; -1: unknown. */
static int find_pre(const char *name) {
    char marked[64];
    text_format(marked, sizeof marked, "|%s|", name);
    for (int i = 0; i < PRE_TOKENIZERS; i++) {
        const char *others = pre_tokenizers[i].others;
        if (strcmp(pre_tokenizers[i].name, name) == 0 || (others && strstr(others, marked))) return i;
    }
    return -1;
}

/* ---- building JSON ---- */

typedef struct gguf_reading {
    const gguf_file *file;
    const json_t *tokens, *types, *scores; /* types, scores: NULL if the file has none */
    json_t *vocab, *added;                 /* model.vocab and added_tokens */
    int64_t bos, eos, unknown, count;      /* -1: none */
    gguf_tokens *out;
} gguf_reading;

/* Appends to a list, or sets a member if `key` is not NULL. Takes the reference to `value`, which may be NULL
   after a lack of memory. */
static ott_status put(json_t *to, const char *key, json_t *value) {
    int failed = key ? json_object_set_new(to, key, value) : json_array_append_new(to, value);
    return failed == 0 ? OTT_OK : status_fail(OTT_ERR_MEMORY, "out of memory: a tokenizer");
}

static const json_t *get(const gguf_reading *r, const char *key) {
    char name[80];
    text_format(name, sizeof name, "tokenizer.ggml.%s", key);
    return json_object_get(r->file->metadata, name);
}

static bool get_bool(const gguf_reading *r, const char *key, bool otherwise) {
    const json_t *value = get(r, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

static int64_t get_id(const gguf_reading *r, const char *key) {
    const json_t *value = get(r, key);
    int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id < r->count ? id : -1;
}

static const char *token_at(const gguf_reading *r, int64_t id) {
    return json_string_value(json_array_get(r->tokens, (size_t)id));
}

static int64_t type_at(const gguf_reading *r, int64_t id) {
    if (id == r->bos || id == r->eos) return GGUF_TOKEN_CONTROL;
    return r->types ? json_integer_value(json_array_get(r->types, (size_t)id)) : GGUF_TOKEN_NORMAL;
}

/* True for rows of the embedding that have no token: converters name row 7 "[PAD7]". */
static bool is_padding(const gguf_reading *r, int64_t id) {
    char name[32];
    snprintf(name, sizeof name, "[PAD%" PRId64 "]", id);
    return type_at(r, id) == GGUF_TOKEN_UNUSED && strcmp(token_at(r, id), name) == 0;
}

static ott_status put_token(gguf_reading *r, int64_t id) {
    int64_t type = type_at(r, id);
    bool special = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN;
    const json_t *text = json_array_get(r->tokens, (size_t)id);
    if (!json_is_string(text) || strlen(json_string_value(text)) != json_string_length(text))
        return status_fail(OTT_ERR_FORMAT, "token %" PRId64 " is not a text without zero bytes", id);
    if (is_padding(r, id)) return OTT_OK;
    TRY(formats_add_piece(r->vocab, json_string_value(text), id));
    if (!special && type != GGUF_TOKEN_USER_DEFINED) return OTT_OK;
    return put(r->added, NULL,
               json_pack("{sI sO sb sb sb sb sb}", "id", (json_int_t)id, "content", text, "single_word", 0,
                         "lstrip", 0, "rstrip", 0, "normalized", 0, "special", special));
}

/* ---- merges of SentencePiece ---- */

typedef struct piece_merge {
    double score;
    int64_t id, left; /* merged token, and bytes of its left part */
} piece_merge;

/* Order of the merges in transformers' conversion: higher scores first. */
static int by_score(const void *a, const void *b) {
    const piece_merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->left < y->left) - (x->left > y->left);
}

/* Lists all pairs of tokens that join to another token. `merges` NULL: only counts the pairs. */
static int64_t list_merges(const gguf_reading *r, piece_merge *merges) {
    int64_t used = 0;
    for (int64_t id = 0; id < r->count; id++) {
        const char *text = token_at(r, id);
        size_t bytes = strlen(text);
        if (type_at(r, id) != GGUF_TOKEN_NORMAL || bytes > UINT8_MAX) continue;
        for (size_t at = 1; at < bytes; at++) {
            char left[UINT8_MAX + 1];
            if (((unsigned char)text[at] & 0xc0) == 0x80) continue; /* in the middle of a character */
            memcpy(left, text, at);
            left[at] = 0;
            if (!json_object_get(r->vocab, left) || !json_object_get(r->vocab, text + at)) continue;
            if (merges)
                merges[used] =
                    (piece_merge){json_number_value(json_array_get(r->scores, (size_t)id)), id, (int64_t)at};
            used++;
        }
    }
    return used;
}

static ott_status put_piece_merges(const gguf_reading *r, json_t *list) {
    piece_merge *merges;
    int64_t count = list_merges(r, NULL);
    TRY(mem_alloc_array(r->file->account, MEM_DATA, count, sizeof *merges, "merges", &merges));
    list_merges(r, merges);
    qsort(merges, (size_t)count, sizeof *merges, by_score);
    ott_status status = OTT_OK;
    for (int64_t i = 0; i < count && status == OTT_OK; i++) {
        const char *text = token_at(r, merges[i].id);
        status = put(list, NULL, json_pack("[s#, s]", text, (int)merges[i].left, text + merges[i].left));
    }
    mem_free(r->file->account, merges);
    return status;
}

/* ---- the two kinds ---- */

static ott_status put_sentencepiece(gguf_reading *r, json_t *root, json_t *model) {
    bool prepends = get_bool(r, "add_space_prefix", true);
    if ((int64_t)json_array_size(r->scores) != r->count)
        return status_fail(OTT_ERR_FORMAT, "tokenizer.ggml.scores needs one number for each token");
    TRY(put(model, "byte_fallback", json_true()));
    TRY(put(model, "fuse_unk", json_true()));
    if (r->unknown >= 0) TRY(put(model, "unk_token", json_string(token_at(r, r->unknown))));
    json_t *merges = json_array();
    TRY(put(model, "merges", merges));
    TRY(put_piece_merges(r, merges));
    json_t *normalizers = json_array();
    TRY(put(root, "normalizer", json_pack("{ss so}", "type", "Sequence", "normalizers", normalizers)));
    json_t *decoders = json_array();
    TRY(put(root, "decoder", json_pack("{ss so}", "type", "Sequence", "decoders", decoders)));
    if (prepends) TRY(put(normalizers, NULL, json_pack("{ss ss}", "type", "Prepend", "prepend", METASPACE)));
    TRY(put(normalizers, NULL,
            json_pack("{ss s{ss} ss}", "type", "Replace", "pattern", "String", " ", "content", METASPACE)));
    TRY(put(decoders, NULL,
            json_pack("{ss s{ss} ss}", "type", "Replace", "pattern", "String", METASPACE, "content", " ")));
    TRY(put(decoders, NULL, json_pack("{ss}", "type", "ByteFallback")));
    TRY(put(decoders, NULL, json_pack("{ss}", "type", "Fuse")));
    if (!prepends) return OTT_OK;
    return put(decoders, NULL,
               json_pack("{ss ss si si}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
}

static ott_status put_byte_level(gguf_reading *r, json_t *root, json_t *model, int pre) {
    const json_t *merges = get(r, "merges");
    if (!json_is_array(merges)) return status_fail(OTT_ERR_FORMAT, "has no list tokenizer.ggml.merges");
    TRY(put(model, "ignore_merges", json_boolean(pre_tokenizers[pre].ignores_merges)));
    TRY(put(model, "merges", json_incref((json_t *)merges)));
    json_t *steps = json_array();
    TRY(put(root, "pre_tokenizer", json_pack("{ss so}", "type", "Sequence", "pretokenizers", steps)));
    for (const char *const *regex = pre_tokenizers[pre].regex; *regex; regex++)
        TRY(put(steps, NULL,
                json_pack("{ss s{ss} ss sb}", "type", "Split", "pattern", "Regex", *regex, "behavior",
                          "Isolated", "invert", 0)));
    TRY(put(steps, NULL,
            json_pack("{ss sb sb sb}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                      "use_regex", 0)));
    if (pre_tokenizers[pre].composes) TRY(put(root, "normalizer", json_pack("{ss}", "type", "NFC")));
    return put(root, "decoder",
               json_pack("{ss sb sb sb}", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1,
                         "use_regex", 1));
}

/* transformers adds a BOS only if the post-processor does. */
static ott_status put_bos(gguf_reading *r) {
    const char *bos = token_at(r, r->bos);
    json_t *token = json_pack("{s{ss si}}", "SpecialToken", "id", bos, "type_id", 0);
    json_t *text = json_pack("{s{ss si}}", "Sequence", "id", "A", "type_id", 0);
    json_t *second = json_pack("{s{ss si}}", "Sequence", "id", "B", "type_id", 1);
    return put(r->out->tokenizer, "post_processor",
               json_pack("{ss s[OO] s[ooo] s{s{ss s[I] s[s]}}}", "type", "TemplateProcessing", "single",
                         token, text, "pair", token, text, second, "special_tokens", bos, "id", bos, "ids",
                         (json_int_t)r->bos, "tokens", bos));
}

static ott_status put_ends(gguf_reading *r, bool adds_bos) {
    const json_t *turn = get(r, "eot_token_id"),
                 *chat = json_object_get(r->file->metadata, "tokenizer.chat_template");
    json_t *config = r->out->config, *generation = r->out->generation;
    TRY(put(config, "tokenizer_class", json_string("PreTrainedTokenizerFast")));
    adds_bos = get_bool(r, "add_bos_token", adds_bos);
    if (adds_bos && r->bos >= 0) TRY(put_bos(r));
    TRY(put(config, "add_bos_token", json_boolean(adds_bos)));
    TRY(put(config, "add_eos_token", json_boolean(get_bool(r, "add_eos_token", false))));
    if (json_is_string(chat)) TRY(put(config, "chat_template", json_incref((json_t *)chat)));
    if (r->bos >= 0) TRY(put(config, "bos_token", json_string(token_at(r, r->bos))));
    if (r->bos >= 0) TRY(put(generation, "bos_token_id", json_integer(r->bos)));
    if (r->eos < 0) return OTT_OK;
    json_t *stops = json_array();
    TRY(put(config, "eos_token", json_string(token_at(r, r->eos))));
    TRY(put(generation, "eos_token_id", stops));
    TRY(put(stops, NULL, json_integer(r->eos)));
    if (!json_is_integer(turn) || json_integer_value(turn) == r->eos) return OTT_OK;
    return put(stops, NULL, json_incref((json_t *)turn));
}

static ott_status convert_kind(gguf_reading *r, const char *kind) {
    bool is_pieces = strcmp(kind, "llama") == 0;
    const char *pre = json_string_value(get(r, "pre"));
    int at = is_pieces ? -1 : find_pre(pre ? pre : "default");
    if (!is_pieces && strcmp(kind, "gpt2") != 0)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "tokenizer.ggml.model = %s is not supported, gpt2 and llama are: give another "
                           "tokenizer (data.tokenizer_path, --tokenizer)",
                           str_show(kind).text);
    if (!is_pieces && at < 0)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "tokenizer.ggml.pre = %s is not supported: give the model's tokenizer.json "
                           "(data.tokenizer_path, --tokenizer)",
                           pre ? str_show(pre).text : "(missing)");
    json_t *root = r->out->tokenizer;
    json_t *model = json_pack("{ss}", "type", "BPE");
    TRY(put(root, "version", json_string("1.0")));
    TRY(put(root, "added_tokens", r->added = json_array()));
    TRY(put(root, "model", model));
    TRY(put(model, "vocab", r->vocab = json_object()));
    for (int64_t id = 0; id < r->count; id++) TRY(put_token(r, id));
    TRY(is_pieces ? put_sentencepiece(r, root, model) : put_byte_level(r, root, model, at));
    return put_ends(r, is_pieces || pre_tokenizers[at].adds_bos);
}

static ott_status convert_tokens(gguf_reading *r) {
    const char *kind = json_string_value(get(r, "model"));
    if (!kind || strcmp(kind, "none") == 0)
        return status_fail(OTT_ERR_NOT_FOUND,
                           "has no tokenizer: give one (data.tokenizer_path, --tokenizer)");
    r->tokens = get(r, "tokens");
    r->types = get(r, "token_type");
    r->scores = get(r, "scores");
    r->count = (int64_t)json_array_size(r->tokens);
    if (r->count == 0) return status_fail(OTT_ERR_FORMAT, "has no list tokenizer.ggml.tokens");
    if (r->types && (int64_t)json_array_size(r->types) != r->count)
        return status_fail(OTT_ERR_FORMAT, "tokenizer.ggml.token_type needs one number for each token");
    r->bos = get_id(r, "bos_token_id");
    r->eos = get_id(r, "eos_token_id");
    r->unknown = get_id(r, "unknown_token_id");
    return convert_kind(r, kind);
}

ott_status gguf_tokens_read(mem *account, const char *path, gguf_tokens *out) {
    gguf_file file;
    gguf_reading r = {.file = &file, .out = out};
    *out = (gguf_tokens){json_object(), json_object(), json_object()};
    ott_status status = gguf_open(account, path, &file);
    if (status == OTT_OK) status = status_context(convert_tokens(&r), "%s", path);
    gguf_close(&file);
    return status;
}

void gguf_tokens_free(gguf_tokens *g) {
    json_decref(g->tokenizer);
    json_decref(g->config);
    json_decref(g->generation);
}

bool gguf_tokens_exist(const char *path) {
    mem *account;
    gguf_file file;
    if (mem_open(&account) != OTT_OK) return false;
    ott_status status = gguf_open(account, path, &file);
    const char *kind = json_string_value(json_object_get(file.metadata, "tokenizer.ggml.model"));
    bool exist = status == OTT_OK && kind && strcmp(kind, "none") != 0;
    gguf_close(&file);
    mem_close(account);
    return exist;
}

static ott_status write_json(const json_t *root, const char *folder, const char *name) {
    char path[PATH_MAX];
    TRY(file_join(folder, name, path));
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    if (!text) return status_fail(OTT_ERR_MEMORY, "out of memory: %s", name);
    ott_status status = file_write_atomic(path, text, (int64_t)strlen(text));
    free(text);
    return status;
}

ott_status gguf_tokens_write(mem *account, const char *path, const char *folder, int64_t *files) {
    gguf_tokens g;
    ott_status status;
    *files = 0;
    if (!gguf_tokens_exist(path)) return OTT_OK;
    TRY_OUT(gguf_tokens_read(account, path, &g));
    TRY_OUT(write_json(g.tokenizer, folder, "tokenizer.json"));
    TRY_OUT(write_json(g.config, folder, "tokenizer_config.json"));
    TRY_OUT(write_json(g.generation, folder, "generation_config.json"));
    *files = 3;
out:
    gguf_tokens_free(&g);
    return status;
}
