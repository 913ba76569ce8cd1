/* train/generate: loading a run's model, and sampling from it. */
#include "train/generate.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/str.h"
#include "comm/self.h"
#include "cpu/cpu.h"
#include "model/convert.h"
#include "train/run.h"
#include <stdlib.h>
#include <string.h>

typedef struct generator {
    mem *account;
    const logger *log;
    config *cfg;
    precision_plan precision;
    device *device;
    model *m;
    model_slot *slot;
    exec cx;
    plan *plan;
    void *arena;
    int64_t arena_bytes;
    int32_t
        *tokens; /* window of at most seq_len tokens, then positions and the two starts, as on the device */
    void *device_tokens, *device_logits;
    float *probability; /* [vocab] */
    int32_t *order;     /* [vocab] token ids, most likely first */
    int64_t length;     /* tokens in the window */
    int64_t choices;    /* token ids that are bytes: the vocabulary's first 256 */
} generator;

/* ---- opening ---- */

/* The configuration that trained the checkpoint: beside it. */
static ott_status open_config(generator *g, const char *checkpoint) {
    str path = {.account = g->account};
    str_printf(&path, "%s/config.toml", checkpoint);
    ott_status status = str_finish(&path);
    const char *arguments[] = {path.text};
    if (status == OTT_OK) status = config_parse(g->account, NULL, 1, arguments, &g->cfg);
    str_free(&path);
    return status;
}

static ott_status open_model(generator *g, const char *checkpoint) {
    model_options shape;
    trainer_options options;
    run_state state;
    bool fallen;
    TRY(model_options_resolve(g->cfg, &shape));
    TRY(precision_plan_read(g->cfg, &g->precision));
    TRY(checkpoint_peek(g->account, checkpoint, &state));
    TRY(run_trainer_options(g->cfg, &g->precision, state.step, &options));
    TRY(model_open(g->device, &shape, MODEL_INFERENCE, g->cfg->train.seq_len, &g->m));
    TRY(model_convert(g->m, &options.convert, NULL));
    TRY(checkpoint_load(g->m, g->log, checkpoint, &state, &fallen));
    if (fallen) TRY(model_convert(g->m, &options.convert, NULL));
    g->choices = shape.vocab < 256 ? shape.vocab : 256;
    return model_slot_open(g->m, &g->slot);
}

static ott_status open_buffers(generator *g) {
    int64_t window = g->cfg->train.seq_len, vocab = g->m->options.vocab;
    void *memory;
    TRY(mem_take_array(g->account, MEM_DATA, 2 * window + 2, sizeof(int32_t), "token window", &memory));
    g->tokens = memory;
    TRY(mem_take_array(g->account, MEM_DATA, vocab, sizeof(float), "probabilities", &memory));
    g->probability = memory;
    TRY(mem_take_array(g->account, MEM_DATA, vocab, sizeof(int32_t), "token order", &memory));
    g->order = memory;
    TRY(device_allocate(g->device, MEM_DATA, 4 * (2 * window + 2), "token window", &g->device_tokens));
    TRY(device_allocate(g->device, MEM_DATA, vocab * dtype_bytes(g->m->activation), "logits",
                        &g->device_logits));
    TRY(plan_create(g->account, &g->plan));
    g->cx = (exec){.device = g->device, .data_group = group_self(), .plan = g->plan, .log = g->log};
    return OTT_OK;
}

static ott_status open_generator(generator *g, const char *run, int threads) {
    char *checkpoint;
    TRY(checkpoint_find(g->account, run, run, &checkpoint));
    ott_status status = OTT_OK;
    TRY_OUT(open_config(g, checkpoint));
    TRY_OUT(cpu_open(g->account, threads, NULL, &g->device));
    TRY_OUT(open_model(g, checkpoint));
    TRY_OUT(open_buffers(g));
    log_debug(g->log, "Generating with %s on %s", checkpoint, g->device->name);
out:
    mem_give(g->account, checkpoint);
    return status;
}

static void close_generator(generator *g) {
    plan_destroy(g->plan);
    if (g->device) {
        device_release(g->device, g->arena);
        device_release(g->device, g->device_tokens);
        device_release(g->device, g->device_logits);
    }
    if (g->m) model_slot_close(g->m, g->slot);
    model_close(g->m);
    device_close(g->device);
    mem_give(g->account, g->tokens);
    mem_give(g->account, g->probability);
    mem_give(g->account, g->order);
    config_close(g->cfg);
}

/* ---- logits of the next token ---- */

static batch window_batch(const generator *g) {
    int32_t *data = g->device_tokens;
    int64_t n = g->length;
    return (batch){.count = 1,
                   .length = n,
                   .token = tensor_vector(data, OTT_I32, n),
                   .target = tensor_vector(data, OTT_I32, n), /* not read */
                   .at = {.position = tensor_vector(data + n, OTT_I32, n),
                          .start = tensor_vector(data + 2 * n, OTT_I32, 2)}};
}

static ott_status copy_window(generator *g) {
    int64_t n = g->length;
    for (int64_t i = 0; i < n; i++) g->tokens[n + i] = (int32_t)i;
    g->tokens[2 * n] = 0;
    g->tokens[2 * n + 1] = (int32_t)n;
    return device_copy_in(g->device, g->device_tokens, g->tokens, 4 * (2 * n + 2));
}

static ott_status plan_window(generator *g, const batch *b, const tensor *logits) {
    plan_record(g->plan);
    TRY(model_logits(&g->cx, g->m, g->slot, b, logits));
    TRY(plan_seal(g->plan));
    if (plan_bytes(g->plan) > g->arena_bytes) {
        device_release(g->device, g->arena);
        g->arena = NULL;
        g->arena_bytes = plan_bytes(g->plan);
        TRY(device_allocate(g->device, MEM_STEP, g->arena_bytes, "activations", &g->arena));
    }
    plan_bind(g->plan, g->arena);
    return OTT_OK;
}

/* Leaves the logits in g->probability. */
static ott_status next_logits(generator *g) {
    int64_t vocab = g->m->options.vocab;
    tensor logits = tensor_matrix(g->device_logits, g->m->activation, 1, vocab);
    batch b = window_batch(g);
    TRY(plan_window(g, &b, &logits));
    TRY(copy_window(g));
    plan_replay(g->plan);
    TRY(model_logits(&g->cx, g->m, g->slot, &b, &logits));
    TRY(device_copy_out(g->device, g->probability, g->device_logits, vocab * dtype_bytes(g->m->activation)));
    /* Widened in place, from the last element down: an fp32 slot never lies before the narrower one it
     * replaces. */
    for (int64_t i = vocab - 1; i >= 0; i--)
        g->probability[i] = dtype_load(g->probability, g->m->activation, i);
    return OTT_OK;
}

/* ---- choosing a token ---- */

static int32_t most_likely(const generator *g) {
    int32_t best = 0;
    for (int32_t i = 1; i < g->choices; i++)
        if (g->probability[i] > g->probability[best]) best = i;
    return best;
}

static void soften(generator *g, double temperature) {
    float largest = g->probability[most_likely(g)];
    double sum = 0;
    for (int64_t i = 0; i < g->choices; i++) {
        g->probability[i] = (float)exp(((double)g->probability[i] - (double)largest) / temperature);
        sum += g->probability[i];
    }
    for (int64_t i = 0; i < g->choices; i++) g->probability[i] = (float)((double)g->probability[i] / sum);
}

/* Moves the most likely of order[from..choices) to order[from]. */
static void bring_next(generator *g, int64_t from) {
    int64_t best = from;
    for (int64_t i = from + 1; i < g->choices; i++)
        if (g->probability[g->order[i]] > g->probability[g->order[best]]) best = i;
    int32_t token = g->order[best];
    g->order[best] = g->order[from];
    g->order[from] = token;
}

/* Nucleus sampling (Holtzman et al. 2020): from the fewest tokens that reach probability top_p. */
static int32_t sample(generator *g, const ott_generate_options *o, int64_t index) {
    if (o->temperature == 0) return most_likely(g);
    soften(g, o->temperature);
    int64_t kept = 0;
    double mass = 0;
    for (int64_t i = 0; i < g->choices; i++) g->order[i] = (int32_t)i;
    while (kept < g->choices && mass < o->top_p) {
        bring_next(g, kept);
        mass += g->probability[g->order[kept++]];
    }
    double point = rng_uniform(o->seed, rng_stream("generate"), (uint64_t)index) * mass;
    for (int64_t i = 0; i < kept; i++) {
        point -= g->probability[g->order[i]];
        if (point < 0) return g->order[i];
    }
    return g->order[kept - 1];
}

/* ---- the loop ---- */

static void append(generator *g, int32_t token) {
    int64_t window = g->cfg->train.seq_len;
    if (g->length == window) memmove(g->tokens, g->tokens + 1, (size_t)(--g->length) * sizeof(int32_t));
    g->tokens[g->length++] = token;
}

static ott_status continue_prompt(generator *g, const ott_generate_options *o, ott_text_fn write,
                                  void *user) {
    for (const char *c = o->prompt; *c; c++) {
        if ((unsigned char)*c >= g->m->options.vocab)
            return status_fail(OTT_ERR_ARGUMENT,
                               "the prompt has byte %d, which the model's vocabulary of %lld does not",
                               (unsigned char)*c, (long long)g->m->options.vocab);
        append(g, (unsigned char)*c);
    }
    if (g->length == 0)
        return status_fail(OTT_ERR_ARGUMENT, "the prompt is empty: give it at least one character");
    write(user, o->prompt);
    for (int64_t i = 0; i < o->max_tokens; i++) {
        TRY(next_logits(g));
        int32_t token = sample(g, o, i);
        append(g, token);
        write(user, (char[]){(char)token, 0});
    }
    return OTT_OK;
}

/* Generation is in the precision of the run, and says so. */
static void say_gemms(const generator *g) {
    const int64_t *output = g->cx.gemms[GEMM_OUTPUT];
    log_debug(g->log, "GEMMs run: %lld, of them in FP8: %lld", (long long)(output[0] + output[1]),
              (long long)output[1]);
}

ott_status generate_run(mem *account, const logger *log, const char *run, const ott_generate_options *options,
                        ott_text_fn write, void *user) {
    generator g = {.account = account, .log = log};
    ott_status status = open_generator(&g, run, options->threads);
    if (status == OTT_OK) status = continue_prompt(&g, options, write, user);
    if (status == OTT_OK) say_gemms(&g);
    close_generator(&g);
    return status;
}
