/* generate/generate: loads the model of a run, and continues a text or a conversation. */
#include "generate/generate.h"
#include "backend/backend.h"
#include "base/arena.h"
#include "base/clock.h"
#include "data/data.h"
#include "generate/sampler.h"
#include "generate/text.h"
#include "tokenizer/chat.h"
#include "model/cache.h"
#include "model/pack.h"
#include "run/inference.h"
#include "run/folder/sources.h"
#include <string.h>

struct text_generator {
    mem *account;
    const logger *log;
    arena *strings; /* memory of the copied options */
    ott_generate_options options;
    live_model live; /* the model that is open for training; m NULL: the generator owns device, m and cfg */
    config *cfg;
    inference_plan plan;
    device *device;
    model *m;
    model_cache *cache;
    text_codec codec;
    sampler sampler;
    text_filter stop;
    /* tokens of the window; the KV cache contains keys and values of the first ones */
    tokenizer_ids text;
    str piece;                           /* text of the latest token */
    chat *template;                      /* NULL: continues a text, not a conversation */
    json_t *messages;                    /* the conversation so far */
    str answer;                          /* the message that is being generated */
    bool window_moved;                   /* the window has moved; this is logged only the first time */
    int64_t read, chosen;                /* number of tokens read from prompts; number of generated tokens */
    double read_seconds, choice_seconds; /* time for reading; time for generating */
};

/* ---- opening ---- */

static ott_status copy_texts(arena *strings, const char *const *texts, int count, const char *const **out) {
    const char **copies;
    TRY(arena_alloc(strings, (count + 1) * (int64_t)sizeof(char *), &copies));
    for (int i = 0; i < count; i++) TRY(arena_strdup(strings, texts[i], &copies[i]));
    return *out = copies, OTT_OK;
}

static ott_status copy_options(text_generator *g, const ott_generate_options *o) {
    g->options = *o;
    g->options.prompt = NULL;
    TRY(arena_open(g->account, MEM_OTHER, &g->strings));
    if (o->device) TRY(arena_strdup(g->strings, o->device, &g->options.device));
    if (o->base) TRY(arena_strdup(g->strings, o->base, &g->options.base));
    if (o->tokenizer) TRY(arena_strdup(g->strings, o->tokenizer, &g->options.tokenizer));
    if (o->precision_name) TRY(arena_strdup(g->strings, o->precision_name, &g->options.precision_name));
    TRY(copy_texts(g->strings, o->settings, o->setting_count, &g->options.settings));
    TRY(copy_texts(g->strings, o->stop, o->stop_count, &g->options.stop));
    g->stop = (text_filter){.stop = g->options.stop, .count = o->stop_count, .held = {.account = g->account}};
    return OTT_OK;
}

static ott_status choose_precision(text_generator *g, const char *checkpoint) {
    static const char *const allowed[] = {"float8.", "train.mixed_precision", "train.seq_len", NULL};
    const ott_generate_options *o = &g->options;
    const char *named = o->precision == OTT_GENERATE_BF16 ? "bf16" : NULL;
    const inference_choice choice = {.user = "generate",
                                     .precision = o->precision_name ? o->precision_name : named,
                                     .settings = o->settings,
                                     .setting_count = o->setting_count,
                                     .allowed = allowed};
    return inference_choose(g->account, g->cfg, checkpoint, &choice, &g->plan);
}

static ott_status open_generator_model(text_generator *g, const char *checkpoint) {
    inference_plan *p = &g->plan;
    TRY(choose_precision(g, checkpoint));
    int64_t window = g->cfg->train.seq_len;
    const backend_choice choice = {.name = g->options.device,
                                   .threads = g->options.threads,
                                   .recipe = p->convert.recipe,
                                   .emulates = g->cfg->float8.emulate,
                                   .log = g->log};
    TRY(backend_open(&choice, g->account, &g->device));
    TRY(inference_open(p, g->device, window, g->log, &g->m));
    TRY(model_pack(g->m));
    return model_cache_open(g->m, g->log, window, &g->cache);
}

static ott_status take_live_model(text_generator *g, const live_model *now) {
    g->live = *now;
    g->cfg = now->cfg;
    g->m = now->m;
    g->device = now->m->device;
    return inference_check_live(now);
}

ott_status generate_refresh(text_generator *g, const live_model *now) {
    model_cache_close(g->cache);
    g->cache = NULL;
    TRY(take_live_model(g, now));
    TRY(model_cache_open(g->m, g->log, g->cfg->train.seq_len, &g->cache));
    model_cache_set_step(g->cache, now->step);
    return OTT_OK;
}

static ott_status open_codec(text_generator *g, const char *run, const char *checkpoint) {
    char own[PATH_MAX];
    data_tokenizer_path(g->cfg, own);
    const char *path = g->options.tokenizer ? g->options.tokenizer : own;
    const char *why = *path ? NULL : data_no_text_reason(g->cfg);
    if (why)
        return status_fail(OTT_ERR_CONFIG, "%s: text needs a tokenizer, and %s: name one with --tokenizer",
                           run, why);
    ott_status status = text_codec_open(g->account, path, g->m->options.vocab, &g->codec);
    if (status != OTT_OK && path == own) return status_context(status, "data.tokenizer_path");
    if (status != OTT_OK || !checkpoint || !*path) return status;
    return sources_check_tokenizer(g->account, g->log, checkpoint, path);
}

static ott_status open_chat(text_generator *g, const char *run) {
    if (!g->options.chat) return OTT_OK;
    if (!g->codec.tokenizer)
        return status_fail(
            OTT_ERR_CONFIG,
            "%s: a conversation needs a tokenizer with a chat template, but this model has none: name "
            "one with --tokenizer",
            run);
    TRY(chat_open(g->account, g->codec.tokenizer, &(chat_settings){.date = g->cfg->data.chat_date},
                  &g->template));
    g->codec.started = true; /* the template has the BOS token */
    g->messages = json_array();
    return g->messages ? OTT_OK : status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
}

static ott_status open_generator_parts(text_generator *g, const char *run, const live_model *live) {
    char *checkpoint = NULL;
    ott_status status = OTT_OK;
    if (!live) TRY(inference_find(g->account, run, g->options.base, 0, &g->cfg, &checkpoint));
    TRY_OUT(live ? take_live_model(g, live) : open_generator_model(g, checkpoint));
    TRY_OUT(open_codec(g, run, checkpoint));
    TRY_OUT(open_chat(g, run));
    TRY_OUT(sampler_open(g->account, &g->options, g->m->options.vocab, g->codec.choices, &g->sampler));
    log_debug(g->log, "Generating with %s on %s", checkpoint ? checkpoint : run, g->device->name);
out:
    mem_free(g->account, checkpoint);
    return status;
}

ott_status generate_open(mem *account, const logger *log, const char *run, const live_model *live,
                         const ott_generate_options *options, text_generator **out) {
    text_generator *g;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(text_generator), "generator", &g));
    g->account = account;
    g->log = log;
    g->text.account = g->piece.account = g->answer.account = g->stop.held.account = account;
    g->codec.account = g->sampler.account = account;
    ott_status status = copy_options(g, options);
    if (status == OTT_OK) status = open_generator_parts(g, live ? "the open model" : run, live);
    if (status != OTT_OK) return generate_close(g), status;
    return *out = g, OTT_OK;
}

/* Logs how many GEMMs ran in FP8, and the times for reading and generating. */
static void log_work(const text_generator *g) {
    int64_t all, fp8;
    model_cache_gemms(g->cache, &all, &fp8);
    log_debug(g->log, "GEMMs run: %lld, in FP8: %lld", (long long)all, (long long)fp8);
    log_debug(g->log, "Read %lld tokens in %.3f s, added %lld in %.3f s", (long long)g->read, g->read_seconds,
              (long long)g->chosen, g->choice_seconds);
}

void generate_close(text_generator *g) {
    if (!g) return;
    if (g->chosen > 0 && g->cache) log_work(g);
    mem *account = g->account;
    sampler_close(&g->sampler);
    chat_close(g->template);
    json_decref(g->messages);
    text_codec_close(&g->codec);
    model_cache_close(g->cache);
    if (!g->live.m) {
        model_close(g->m);
        device_close(g->device);
        config_close(g->cfg);
    }
    tokenizer_ids_free(&g->text);
    str_free(&g->piece);
    str_free(&g->answer);
    str_free(&g->stop.held);
    arena_close(g->strings);
    mem_free(account, g);
}

/* ---- the window ---- */

/* If the text exceeds the window, keeps half a window of its last tokens, or all tokens that are not in the
   KV cache if these are more. Empties the cache. */
static void move_window(text_generator *g) {
    int64_t window = model_cache_capacity(g->cache), keep = g->text.count - model_cache_length(g->cache);
    if (keep < window / 2) keep = window / 2;
    if (keep > window) keep = window;
    if (!g->window_moved)
        log_info(g->log, "The window of train.seq_len = %lld tokens is full: continuing from the last %lld",
                 (long long)window, (long long)keep);
    g->window_moved = true;
    memmove(g->text.ids, g->text.ids + g->text.count - keep, (size_t)keep * sizeof *g->text.ids);
    g->text.count = keep;
    model_cache_truncate(g->cache, 0);
}

/* Runs the model on tokens that are not in the KV cache. Writes the last logits to g->sampler. */
static ott_status compute_logits(text_generator *g) {
    if (g->text.count > model_cache_capacity(g->cache)) move_window(g);
    int64_t done = model_cache_length(g->cache);
    return model_cache_extend(g->cache, g->text.ids + done, g->text.count - done, g->sampler.logits);
}

/* ---- continuing a text ---- */

static ott_status take_text(text_generator *g, const char *text) {
    int64_t before = g->text.count;
    TRY(text_codec_encode(&g->codec, text, &g->text));
    if (g->text.count == 0)
        return status_fail(OTT_ERR_ARGUMENT, "the prompt is empty: give it at least one character");
    sampler_note(&g->sampler, g->text.ids + before, g->text.count - before);
    return OTT_OK;
}

/* Runs the tokens that were added since the last generated token. */
static ott_status read_template(text_generator *g) {
    int64_t cached = model_cache_length(g->cache);
    /* the last token runs again, because the sampler has overwritten its logits */
    if (g->text.count == cached) model_cache_truncate(g->cache, --cached);
    double start = clock_seconds();
    g->read += g->text.count - cached;
    TRY(compute_logits(g));
    g->read_seconds += clock_seconds() - start;
    return OTT_OK;
}

/* Chooses the next token and writes its text. *ends: true if the text ends here. */
static ott_status add_token(text_generator *g, ott_text_fn write, void *user, bool *ends) {
    int32_t token;
    TRY(sampler_choose(&g->sampler, &token));
    *ends = text_codec_ends(&g->codec, token);
    if (*ends) return OTT_OK;
    TRY(tokenizer_ids_append(&g->text, token));
    g->piece.length = 0;
    TRY(text_codec_decode(&g->codec, token, &g->piece));
    TRY(str_finish(&g->piece));
    return text_filter_push(&g->stop, &g->piece, write, user, ends);
}

static ott_status add_tokens(text_generator *g, ott_text_fn write, void *user) {
    bool ends = g->options.max_tokens == 0;
    if (!ends) TRY(read_template(g));
    double start = clock_seconds();
    for (int64_t i = 0; i < g->options.max_tokens && !ends; i++, g->chosen++) {
        if (i > 0) TRY(compute_logits(g));
        TRY(add_token(g, write, user, &ends));
    }
    text_filter_finish(&g->stop, write, user);
    g->choice_seconds += clock_seconds() - start;
    return OTT_OK;
}

/* ---- a conversation ---- */

static ott_status add_chat_message(text_generator *g, const char *role, const char *text) {
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", text);
    if (!message) return status_fail(OTT_ERR_ARGUMENT, "the message is not UTF-8, or memory is exhausted");
    if (json_array_append_new(g->messages, message) == 0) return OTT_OK;
    return status_fail(OTT_ERR_MEMORY, "out of memory for a conversation");
}

/* Takes over `ids` as the tokens of the text. The KV cache keeps the first tokens that are unchanged. */
static void replace_context(text_generator *g, tokenizer_ids *ids) {
    int64_t same = 0, cached = model_cache_length(g->cache);
    while (!g->window_moved && same < g->text.count && same < ids->count &&
           g->text.ids[same] == ids->ids[same])
        same++;
    if (same < cached) model_cache_truncate(g->cache, same);
    sampler_note(&g->sampler, ids->ids + same, ids->count - same);
    tokenizer_ids_free(&g->text);
    g->text = *ids;
}

/* Adds a message of the user, and renders the full conversation with the chat template. */
static ott_status take_turn(text_generator *g, const char *text) {
    str all = {.account = g->account};
    tokenizer_ids ids = {.account = g->account};
    TRY(add_chat_message(g, "user", text));
    ott_status status = chat_render(g->template, &(chat_conversation){.messages = g->messages}, true, &all);
    if (status == OTT_OK) status = text_codec_encode(&g->codec, all.text ? all.text : "", &ids);
    str_free(&all);
    if (status == OTT_OK && ids.count == 0)
        status = status_fail(OTT_ERR_UNSUPPORTED, "the chat template produces no text for this message");
    if (status == OTT_OK) return replace_context(g, &ids), OTT_OK;
    tokenizer_ids_free(&ids);
    json_array_remove(g->messages, json_array_size(g->messages) - 1);
    return status;
}

typedef struct answer_sink {
    str *answer;
    ott_text_fn write;
    void *user;
} answer_sink;

static void keep_answer(void *user, const char *text) {
    const answer_sink *s = user;
    str_append(s->answer, text);
    s->write(s->user, text);
}

static ott_status answer_turn(text_generator *g, ott_text_fn write, void *user) {
    answer_sink sink = {&g->answer, write, user};
    g->answer.length = 0;
    TRY(add_tokens(g, keep_answer, &sink));
    TRY(str_finish(&g->answer));
    return add_chat_message(g, "assistant", g->answer.length ? g->answer.text : "");
}

ott_status generate_continue(text_generator *g, const char *text, ott_text_fn write, void *user) {
    TRY(g->template ? take_turn(g, text) : take_text(g, text));
    return g->template ? answer_turn(g, write, user) : add_tokens(g, write, user);
}

static ott_status continue_prompt(text_generator *g, ott_text_fn write, void *user, const char *prompt) {
    if (g->live.m) TRY(generate_refresh(g, &g->live));
    TRY(g->template ? take_turn(g, prompt) : take_text(g, prompt));
    if (!g->template) write(user, prompt); /* written only now, because encoding the prompt may fail */
    return add_tokens(g, write, user);
}

ott_status generate_run(mem *account, const logger *log, const char *run, const live_model *live,
                        const ott_generate_options *options, ott_text_fn write, void *user) {
    text_generator *g;
    TRY(generate_open(account, log, run, live, options, &g));
    ott_status status = inference_use_average(&g->live, true);
    if (status == OTT_OK) status = continue_prompt(g, write, user, options->prompt);
    ott_status restored = inference_use_average(&g->live, false);
    generate_close(g);
    return status == OTT_OK ? restored : status;
}
