/* bench/gpu/attention_check: implements attention_check.h. */
#include "attention_check.h"
#include "attention_reference.h"
#include "base/rng.h"
#include "fp8/cast.h"
#include "gpu.h"
#include <stdlib.h>

const attention_name attention_outputs[ATTENTION_OUTPUTS] = {ATTENTION_O, ATTENTION_LSE, ATTENTION_GRAD_Q,
                                                             ATTENTION_GRAD_K, ATTENTION_GRAD_V};
const char *const attention_output_names[ATTENTION_OUTPUTS] = {"o", "lse", "grad_q", "grad_k", "grad_v"};

enum { POISON = 0xFF, GUARD_LEAST = 4096 };

typedef struct checker {
    const attention_config *config;
    bool nan_beyond;
    graph forward, backward;
    int64_t *starts, rows; /* [documents + 1] */
    attention_reference reference;
    void *images[ATTENTION_NAMED];
    size_t used[ATTENTION_NAMED], bytes[ATTENTION_NAMED]; /* of an image: without and with its guard */
    float scalars[ATTENTION_NAMED];
    attention_runner *run;
    void *context;
    attention_checked *out;
} checker;

/* ---- memory ---- */

static void open_starts(checker *c, const int32_t *lengths) {
    int64_t documents = c->config->documents;
    c->starts = gpu_host_alloc((size_t)(documents + 1) * sizeof *c->starts);
    c->starts[0] = 0;
    for (int64_t i = 0; i < documents; i++)
        c->starts[i + 1] = c->starts[i] + (lengths ? lengths[i] : c->config->length);
    c->rows = c->starts[documents];
}

/* Every image is followed by a guard as large as itself. */
static void open_image(checker *c, int uid) {
    const graph_tensor *t = &c->backward.tensors[uid];
    if (t->by_value) {
        c->images[uid] = &c->scalars[uid];
        c->used[uid] = c->bytes[uid] = sizeof(float);
        return;
    }
    size_t bytes = graph_tensor_bytes(t, c->rows);
    c->used[uid] = bytes;
    c->bytes[uid] = bytes + (bytes > GUARD_LEAST ? bytes : GUARD_LEAST);
    c->images[uid] = gpu_host_alloc(c->bytes[uid]);
    memset(c->images[uid], POISON, c->bytes[uid]);
}

/* Behind an input: zeros, unless NaN is asked for. */
static void clear_guard(checker *c, attention_name uid) {
    if (!c->nan_beyond) memset((char *)c->images[uid] + c->used[uid], 0, c->bytes[uid] - c->used[uid]);
}

/* [rows, heads * head_dim] of standard normal bf16 numbers in the image, and as floats. */
static const float *fill(checker *c, attention_name uid) {
    size_t count = c->used[uid] / sizeof(uint16_t);
    uint16_t *image = c->images[uid];
    float *values = gpu_host_alloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) {
        image[i] = cast_to_bf16(rng_normal(1, (uint64_t)uid, i));
        values[i] = cast_from_bf16(image[i]);
    }
    clear_guard(c, uid);
    return values;
}

static void open_documents(checker *c) {
    for (int uid = ATTENTION_Q_LENGTHS; uid <= ATTENTION_K_LENGTHS; uid++)
        for (int64_t i = 0; c->images[uid] && i < c->config->documents; i++)
            ((int32_t *)c->images[uid])[i] = (int32_t)(c->starts[i + 1] - c->starts[i]);
    for (int uid = ATTENTION_Q_OFFSETS; uid <= ATTENTION_LSE_OFFSETS; uid++)
        if (c->images[uid]) graph_offsets(&c->forward, uid, c->starts, c->images[uid]);
}

static double *take_like(const checker *c, attention_name uid) {
    return gpu_host_alloc(c->used[uid] / graph_type_bytes(c->backward.tensors[uid].type) * sizeof(double));
}

static void open_reference(checker *c) {
    const attention_config *config = c->config;
    c->reference = (attention_reference){
        .documents = config->documents,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .starts = c->starts,
        .causal = config->causal,
        .scale = c->scalars[ATTENTION_SCALE],
        .q = fill(c, ATTENTION_Q),
        .k = fill(c, ATTENTION_K),
        .v = fill(c, ATTENTION_V),
        .grad_o = fill(c, ATTENTION_GRAD_O),
        .o = take_like(c, ATTENTION_O),
        .lse = take_like(c, ATTENTION_LSE),
        .grad_q = take_like(c, ATTENTION_GRAD_Q),
        .grad_k = take_like(c, ATTENTION_GRAD_K),
        .grad_v = take_like(c, ATTENTION_GRAD_V),
    };
    attention_reference_forward(&c->reference);
    attention_reference_backward(&c->reference);
}

/* Backward has all tensors of forward. */
static void open_all(checker *c, const int32_t *lengths) {
    attention_graph_forward(&c->forward, c->config);
    attention_graph_backward(&c->backward, c->config);
    open_starts(c, lengths);
    for (int uid = 1; uid < ATTENTION_NAMED; uid++)
        if (graph_has(&c->backward, uid)) open_image(c, uid);
    open_documents(c);
    c->scalars[ATTENTION_SCALE] = 1.0f / sqrtf((float)c->config->head_dim);
    c->scalars[ATTENTION_ONE] = 1.0f;
    c->scalars[ATTENTION_MINUS_INFINITY] = -INFINITY;
    open_reference(c);
}

static void close_all(checker *c) {
    for (int uid = 1; uid < ATTENTION_NAMED; uid++)
        if (c->images[uid] != &c->scalars[uid]) free(c->images[uid]);
    const attention_reference *r = &c->reference;
    void *arrays[] = {(void *)r->q, (void *)r->k, (void *)r->v, (void *)r->grad_o, r->o,
                      r->lse,       r->grad_q,    r->grad_k,    r->grad_v,         c->starts};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* ---- results ---- */

static double load(const graph_tensor *t, const void *image, int64_t at) {
    return t->type == GRAPH_BF16 ? (double)cast_from_bf16(((const uint16_t *)image)[at])
                                 : (double)((const float *)image)[at];
}

/* `reference`: [rows, heads, dims[3]]. */
static double error_of(const checker *c, attention_name uid, const double *reference) {
    const graph_tensor *t = &c->backward.tensors[uid];
    gpu_error error = {0};
    int64_t at[4];
    for (at[0] = 0; at[0] < c->config->documents; at[0]++)
        for (at[2] = 0; at[2] < c->starts[at[0] + 1] - c->starts[at[0]]; at[2]++)
            for (at[1] = 0; at[1] < t->dims[1]; at[1]++)
                for (at[3] = 0; at[3] < t->dims[3]; at[3]++) {
                    int64_t row = (c->starts[at[0]] + at[2]) * t->dims[1] + at[1];
                    int64_t element = graph_tensor_at(t, c->images[t->offsets], at);
                    gpu_error_add(&error, load(t, c->images[uid], element),
                                  reference[row * t->dims[3] + at[3]]);
                }
    return gpu_error_rms(&error);
}

/* Bytes up to the last one that was written after an image. */
static size_t overrun_of(const checker *c, int uid) {
    const unsigned char *image = c->images[uid];
    size_t end = c->bytes[uid];
    while (end > c->used[uid] && image[end - 1] == POISON) end--;
    return end - c->used[uid];
}

static void measure(checker *c) {
    const attention_reference *r = &c->reference;
    const double *references[ATTENTION_OUTPUTS] = {r->o, r->lse, r->grad_q, r->grad_k, r->grad_v};
    for (int i = 0; i < ATTENTION_OUTPUTS; i++)
        c->out->errors[i] = error_of(c, attention_outputs[i], references[i]);
    for (int uid = ATTENTION_GRAD_Q; uid <= ATTENTION_GRAD_V; uid++) c->out->overrun += overrun_of(c, uid);
    for (int uid = ATTENTION_DELTA; uid <= ATTENTION_GRAD_V_HEADS; uid++)
        if (c->images[uid]) c->out->scratch_overrun += overrun_of(c, uid);
}

/* ---- the runs ---- */

static bool run(checker *c, const graph *g) {
    return c->run(c->context, g, c->images, c->bytes, c->out->text);
}

/* Leaves the outputs as inputs of backward. */
static bool run_forward(checker *c) {
    if (!run(c, &c->forward)) return false;
    for (int uid = ATTENTION_O; uid <= ATTENTION_LSE; uid++) {
        c->out->overrun += overrun_of(c, uid);
        clear_guard(c, uid);
    }
    return true;
}

/* Backward on poisoned gradients and scratch. */
static bool run_backward(checker *c) {
    for (int uid = ATTENTION_GRAD_Q; uid <= ATTENTION_GRAD_V_HEADS; uid++)
        if (c->images[uid]) memset(c->images[uid], POISON, c->bytes[uid]);
    return run(c, &c->backward);
}

static bool run_backward_twice(checker *c) {
    enum { GRADIENTS = 3 };
    void *first[GRADIENTS];
    if (!run_backward(c)) return false;
    for (int i = 0; i < GRADIENTS; i++) {
        int uid = ATTENTION_GRAD_Q + i;
        first[i] = memcpy(gpu_host_alloc(c->used[uid]), c->images[uid], c->used[uid]);
    }
    bool good = run_backward(c);
    c->out->same_bits = true;
    for (int i = 0; i < GRADIENTS; i++) {
        int uid = ATTENTION_GRAD_Q + i;
        if (memcmp(first[i], c->images[uid], c->used[uid]) != 0) c->out->same_bits = false;
        free(first[i]);
    }
    return good;
}

bool attention_check(const attention_case *what, attention_runner *runner, void *context,
                     attention_checked *out) {
    static checker c;
    c = (checker){.config = &what->config, .run = runner, .context = context, .out = out};
    c.nan_beyond = what->nan_beyond;
    *out = (attention_checked){0};
    open_all(&c, what->lengths);
    bool good = run_forward(&c) && run_backward_twice(&c);
    if (good) measure(&c);
    close_all(&c);
    return good;
}

bool attention_checked_good(const attention_checked *c, double bound) {
    for (int i = 0; i < ATTENTION_OUTPUTS; i++)
        if (!(c->errors[i] <= bound)) return false;
    return c->overrun == 0;
}
