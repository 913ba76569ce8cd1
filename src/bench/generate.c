/* bench/generate: generates tokens of one sequence, with random weights. */
#include "base/rng.h"
#include "bench/model.h"
#include "model/cache.h"
#include "model/init.h"
#include "model/pack.h"
#include "run/run.h"
#include <stdio.h>

enum { PROMPT = 16, WINDOW = 128 };

typedef struct generator {
    bench_model model;
    struct model *m;
    model_cache *cache;
    float *logits;
    double weight_bytes; /* bytes of weights that are read for each token */
} generator;

typedef struct generate_bench {
    generator generator[BENCH_PRECISIONS_MOST];
    int count;
} generate_bench;

static int32_t some_token(const generator *s, int64_t position) {
    return (int32_t)(rng_uniform(1, rng_stream("token"), (uint64_t)position) * (float)s->model.shape.vocab);
}

/* Generates one token. The time does not depend on which token is the input. */
static ott_status run_token(bench *b, void *state) {
    generator *s = state;
    (void)b;
    if (model_cache_length(s->cache) == WINDOW) model_cache_truncate(s->cache, PROMPT);
    int32_t token = some_token(s, model_cache_length(s->cache));
    return model_cache_extend(s->cache, &token, 1, s->logits);
}

/* Opens the model as `ottava generate` does. */
static ott_status open_generator(bench *b, const char *precision, generator *s) {
    const char *preset = b->options->preset ? b->options->preset : "124M";
    char length[32];
    trainer_options options;
    bench_model *from = &s->model;
    snprintf(length, sizeof length, "--train.seq_len=%d", WINDOW);
    TRY(bench_model_open(b->options, precision, preset, (const char *const[]){length}, 1, from));
    TRY(run_trainer_options(from->cfg, &from->precision, 0, &options));
    TRY(model_open(from->device, &from->shape, MODEL_INFERENCE, WINDOW, &s->m));
    TRY(model_initialize(s->m, 1, 0));
    TRY(model_convert(s->m, &options.convert, NULL));
    int at = 0;
    for (linear *l; (l = model_next_linear(s->m, &at));)
        s->weight_bytes +=
            (double)(l->in * l->out * dtype_bytes(l->spec.fp8 ? OTT_E4M3 : l->spec.activation));
    TRY(model_pack(s->m));
    TRY(model_cache_open(s->m, b->log, WINDOW, &s->cache));
    TRY(mem_alloc_array(from->account, MEM_OTHER, from->shape.vocab, sizeof(float), "logits", &s->logits));
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = some_token(s, i);
    return model_cache_extend(s->cache, prompt, PROMPT, s->logits);
}

static ott_status add_recipes(bench *b) {
    const char *precisions[BENCH_PRECISIONS_MOST];
    int count;
    TRY(bench_precisions(b->options, precisions, &count));
    TRY(bench_alloc(b, sizeof(generate_bench), &b->state));
    generate_bench *g = b->state;
    for (; g->count < count; g->count++) {
        generator *s = &g->generator[g->count];
        TRY(open_generator(b, precisions[g->count], s));
        bench_case token = {.what = "a token, weights read",
                            .variant = s->model.name,
                            .bytes = s->weight_bytes,
                            .run = run_token,
                            .state = s};
        snprintf(token.shape, sizeof token.shape, "%s", config_word(s->model.cfg, "model.preset"));
        TRY(bench_add(b, &token));
    }
    return OTT_OK;
}

static void close_generator(generator *s) {
    model_cache_close(s->cache);
    model_close(s->m);
    mem_free(s->model.account, s->logits);
    bench_model_close(&s->model);
}

static void close_models(bench *b) {
    generate_bench *g = b->state;
    for (int i = 0; g && i < BENCH_PRECISIONS_MOST; i++) close_generator(&g->generator[i]);
}

static double memory_of(const generator *s) {
    return (double)mem_read(s->model.account).now;
}

static void write_token_rates(bench *b, str *out) {
    const generate_bench *g = b->state;
    double values[BENCH_PRECISIONS_MOST];
    for (int i = 0; i < g->count; i++) values[i] = 1 / bench_seconds(b, &b->cases[i]);
    bench_text_line(out, "tokens/s", values, g->count, 1, "");
    const bench_case *bf16 = bench_find(b, b->cases[0].what, b->cases[0].shape, "bf16");
    for (int i = 0; i < g->count && bf16; i++)
        values[i] = bench_seconds(b, bf16) / bench_seconds(b, &b->cases[i]);
    if (bf16) bench_text_line(out, "times bf16's speed", values, g->count, 3, "");
    for (int i = 0; i < g->count; i++) values[i] = 1e3 * bench_processor_seconds(b, &b->cases[i]);
    bench_text_line(out, "processor time per token, ms", values, g->count, 3, "");
    for (int i = 0; i < g->count; i++) values[i] = memory_of(&g->generator[i]) / 1048576.0;
    bench_text_line(out, "memory in MiB", values, g->count, 1, "");
}

static void write_rates_json(bench *b, str *out) {
    const generate_bench *g = b->state;
    str_append(out, ",\"generation\":{");
    for (int i = 0; i < g->count; i++)
        str_printf(out, "%s\"%s\":{\"tokens_per_second\":%.2f,\"memory_bytes\":%.0f}", i ? "," : "",
                   g->generator[i].model.name, 1 / bench_seconds(b, &b->cases[i]),
                   memory_of(&g->generator[i]));
    str_append(out, "}");
}

const bench_entry bench_generate = {.name = "generate",
                                    .accepts = BENCH_ACCEPTS_MODEL,
                                    .add = add_recipes,
                                    .text = write_token_rates,
                                    .json = write_rates_json,
                                    .close = close_models};
