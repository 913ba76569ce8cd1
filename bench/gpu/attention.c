/*
 * bench/gpu/attention: cuDNN's attention, forward and backward, as built by attention_cudnn.h: its error
 * against attention_reference.h, whether backward gives the same bits twice, and its speed at the shapes of
 * Llama models. Exits with 1 when an error is above the bound.
 *
 * With --out FILE, cuDNN's description of the device is left in FILE.deviceprop.json: with it, plans for this
 * device can be built elsewhere.
 */
#include "attention_check.h"
#include "attention_cudnn.h"
#include "fill.h"
#include "gpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double error_bound = 1e-2;
static const size_t workspace_most = (size_t)16 << 30;

typedef struct program {
    gpu gpu;
    attention_device device;
    int missed; /* checks */
} program;

static void make_graph(graph *g, const attention_config *config, bool backward) {
    if (backward)
        attention_graph_backward(g, config);
    else
        attention_graph_forward(g, config);
}

static void result_config(gpu *g, const attention_config *c) {
    result_text(g, "layout", c->packed ? "packed" : "dense");
    result_int(g, "documents", c->documents);
    result_int(g, "length", c->length);
    result_int(g, "heads", c->heads);
    result_int(g, "kv_heads", c->kv_heads);
    result_int(g, "head_dim", c->head_dim);
}

static void print_config(const char *what, const attention_config *c) {
    printf("%s %s %lld x %lld, heads %lld/%lld x %lld: ", what, c->packed ? "packed" : "dense",
           (long long)c->documents, (long long)c->length, (long long)c->heads, (long long)c->kv_heads,
           (long long)c->head_dim);
}

/* ---- correctness ---- */

/* Runs graphs for attention_check; the plan of the last one is kept. */
typedef struct checked_plan {
    program *program;
    const graph *built;
    attention_plan plan;
} checked_plan;

static bool build_once(checked_plan *c, const graph *g, char error[ATTENTION_TEXT]) {
    if (c->built == g) return true;
    if (c->built) attention_plan_close(&c->plan);
    c->built = g;
    if (attention_plan_build(&c->plan, &c->program->device, g)) return true;
    memcpy(error, c->plan.error, ATTENTION_TEXT);
    return false;
}

static bool run_images(void *context, const graph *wanted, void *const images[ATTENTION_NAMED],
                       const size_t bytes[ATTENTION_NAMED], char error[ATTENTION_TEXT]) {
    checked_plan *c = context;
    gpu *g = &c->program->gpu;
    if (!build_once(c, wanted, error)) return false;
    void *data[ATTENTION_NAMED] = {0};
    for (int uid = 1; uid < ATTENTION_NAMED; uid++) {
        if (!graph_has(wanted, uid)) continue;
        bool by_value = wanted->tensors[uid].by_value;
        data[uid] = by_value ? images[uid] : gpu_alloc(bytes[uid]);
        if (!by_value) gpu_write(g, data[uid], images[uid], bytes[uid]);
    }
    void *workspace = gpu_alloc(c->plan.workspace);
    gpu_poison(g, workspace, c->plan.workspace);
    bool good = attention_plan_run(&c->plan, &c->program->device, data, workspace);
    if (!good) memcpy(error, c->plan.error, ATTENTION_TEXT);
    for (int uid = 1; uid < ATTENTION_NAMED; uid++) {
        if (!graph_has(wanted, uid) || wanted->tensors[uid].by_value) continue;
        gpu_read(g, images[uid], data[uid], bytes[uid]);
        gpu_free(data[uid]);
    }
    gpu_free(workspace);
    return good;
}

static void report_check(program *p, const attention_case *what, const char *documents,
                         const attention_checked *c, const char *status) {
    gpu *g = &p->gpu;
    const attention_config *config = &what->config;
    result_begin(g);
    result_text(g, "what", "check");
    result_config(g, config);
    result_text(g, "lengths", documents);
    result_text(g, "beyond_inputs", what->nan_beyond ? "NaN" : "zeros");
    result_int(g, "deterministic", config->deterministic);
    result_text(g, "status", status);
    print_config(config->deterministic ? "check deterministic" : "check", config);
    for (int i = 0; i < ATTENTION_OUTPUTS && !c->text[0]; i++) {
        char key[32];
        snprintf(key, sizeof key, "error_%s", attention_output_names[i]);
        result_number(g, key, c->errors[i]);
        printf("%s %.1e ", attention_output_names[i], c->errors[i]);
    }
    if (!c->text[0]) {
        result_int(g, "overrun", (int64_t)c->overrun);
        result_int(g, "scratch_overrun", (int64_t)c->scratch_overrun);
        result_int(g, "same_bits", c->same_bits);
        printf("%s ", c->same_bits ? "same bits" : "other bits");
    }
    result_end(g);
    printf("%s, NaN behind inputs %d: %s\n", documents, what->nan_beyond, status);
}

static void check_case(program *p, const attention_case *what, const char *documents) {
    static checked_plan plan;
    plan = (checked_plan){.program = p};
    attention_checked c;
    const char *status = "ok";
    if (!attention_check(what, run_images, &plan, &c))
        status = c.text;
    else if (c.overrun > 0)
        status = "written beyond the last row";
    else if (!attention_checked_good(&c, error_bound))
        status = "error above the bound";
    else if (what->config.deterministic && !c.same_bits)
        status = "deterministic, but not the same bits";
    if (strcmp(status, "ok") != 0) p->missed++;
    report_check(p, what, documents, &c, status);
    if (plan.built) attention_plan_close(&plan.plan);
}

static attention_case dense_case(int64_t length, int64_t head_dim) {
    return (attention_case){
        .config = {.documents = 2, .length = length, .head_dim = head_dim, .causal = true}};
}

enum { CHECKED_DOCUMENTS = 6 };

/* `lengths` [CHECKED_DOCUMENTS]. */
static attention_case packed_case(int64_t length, int64_t head_dim, const int32_t *lengths) {
    attention_case what = dense_case(length, head_dim);
    what.config.documents = CHECKED_DOCUMENTS;
    what.config.packed = true;
    what.lengths = lengths;
    return what;
}

/* As many heads of keys as of queries, and fewer. */
static void check_heads(program *p, attention_case what, const char *documents) {
    for (int grouped = 0; grouped < 2; grouped++) {
        what.config.heads = grouped ? 8 : 4;
        what.config.kv_heads = grouped ? 2 : 4;
        check_case(p, &what, documents);
    }
}

static void check_shape(program *p, int64_t length, int64_t head_dim, bool deterministic) {
    int32_t s = (int32_t)length;
    const int32_t lengths[CHECKED_DOCUMENTS] = {s / 3, 2, s, 1, s - 5, s / 2};
    attention_case dense = dense_case(length, head_dim), packed = packed_case(length, head_dim, lengths);
    dense.config.deterministic = packed.config.deterministic = deterministic;
    check_heads(p, dense, "equal");
    check_heads(p, packed, "different");
}

enum { LENGTHS = 5 };

/* Some of the lengths, [from, to); at the last one also the deterministic backward. */
static void check_lengths(program *p, int from, int to) {
    static const int64_t lengths[LENGTHS] = {128, 64, 100, 256, 333}, tiny[LENGTHS] = {8, 9, 17, 6, 12};
    for (int i = from; i < to; i++)
        for (int64_t head_dim = 64; head_dim <= 128; head_dim += 64) {
            int64_t length = p->gpu.tiny ? tiny[i] : lengths[i];
            check_shape(p, length, head_dim, false);
            if (i == LENGTHS - 1) check_shape(p, length, head_dim, true);
        }
}

/* What cuDNN may not be made for: NaN behind the last row of the inputs, then empty documents. */
static void check_edges(program *p) {
    int32_t s = p->gpu.tiny ? 8 : 128;
    const int32_t some[CHECKED_DOCUMENTS] = {s / 3, 2, s, 1, s - 5, s / 2};
    const int32_t empty[CHECKED_DOCUMENTS] = {s / 3, 0, s, 1, s - 5, 0};
    attention_case dense = dense_case(s, 128), packed = packed_case(s, 128, some);
    dense.nan_beyond = packed.nan_beyond = true;
    check_heads(p, dense, "equal");
    check_heads(p, packed, "different");
    check_heads(p, packed_case(s, 128, empty), "some 0");
}

/* ---- speed ---- */

enum { PACKED_DOCUMENTS = 64 };

/* A batch of a model, with the memory of all tensors. */
typedef struct batch {
    const char *model;
    attention_config config;
    int64_t rows;
    double pairs; /* of queries and keys they see, halves of squares */
    void *data[ATTENTION_NAMED];
    float scalars[ATTENTION_NAMED];
} batch;

/* Scratch has room for twice its rows, as in the checks, which tell whether it is used. */
static void open_tensor(program *p, batch *b, const graph *backward, int uid) {
    const graph_tensor *t = &backward->tensors[uid];
    size_t bytes = graph_tensor_bytes(t, b->rows);
    if (t->by_value) {
        b->data[uid] = &b->scalars[uid];
        return;
    }
    b->data[uid] = gpu_alloc(uid >= ATTENTION_DELTA && uid <= ATTENTION_GRAD_V_HEADS ? 2 * bytes : bytes);
    if (uid == ATTENTION_GRAD_Q_SUM) /* what is timed need not depend on whether cuDNN clears it itself */
        GPU_CHECK(cudaMemsetAsync(b->data[uid], 0, bytes, p->gpu.stream));
    else
        gpu_poison(&p->gpu, b->data[uid], bytes);
    bool input = uid <= ATTENTION_V || uid == ATTENTION_GRAD_O;
    if (input) GPU_CHECK(fill_normal(b->data[uid], OTT_BF16, bytes / 2, 1.0f, (uint64_t)uid, p->gpu.stream));
}

/* Lengths and offsets of packed documents; `lengths` [documents], at most PACKED_DOCUMENTS. */
static void open_documents(program *p, batch *b, const graph *backward, const int32_t *lengths) {
    size_t documents = (size_t)b->config.documents;
    int64_t starts[PACKED_DOCUMENTS + 1] = {0}, offsets[PACKED_DOCUMENTS + 1];
    for (size_t i = 0; i < documents; i++) starts[i + 1] = starts[i] + lengths[i];
    for (int uid = ATTENTION_Q_LENGTHS; uid <= ATTENTION_K_LENGTHS; uid++)
        gpu_write(&p->gpu, b->data[uid], lengths, documents * sizeof *lengths);
    for (int uid = ATTENTION_Q_OFFSETS; uid <= ATTENTION_LSE_OFFSETS; uid++) {
        graph_offsets(backward, uid, starts, offsets);
        gpu_write(&p->gpu, b->data[uid], offsets, (documents + 1) * sizeof *offsets);
    }
}

static void open_batch(program *p, batch *b, const int32_t *lengths) {
    static graph backward;
    const attention_config *c = &b->config;
    attention_graph_backward(&backward, c);
    for (int64_t i = 0; i < c->documents; i++) {
        double length = c->packed ? lengths[i] : (double)c->length;
        b->rows += (int64_t)length;
        b->pairs += length * length / 2;
    }
    for (int uid = 1; uid < ATTENTION_NAMED; uid++)
        if (graph_has(&backward, uid)) open_tensor(p, b, &backward, uid);
    if (c->packed) open_documents(p, b, &backward, lengths);
    b->scalars[ATTENTION_SCALE] = 1.0f / sqrtf((float)c->head_dim);
    b->scalars[ATTENTION_ONE] = 1.0f;
    b->scalars[ATTENTION_MINUS_INFINITY] = -INFINITY;
}

static void close_batch(batch *b) {
    for (int uid = 1; uid < ATTENTION_NAMED; uid++)
        if (b->data[uid] != &b->scalars[uid]) gpu_free(b->data[uid]);
}

/* Numbers of a bf16 tensor that are not finite: not written, or wrong. */
static int64_t count_not_finite(program *p, const batch *b, const graph *g, int uid) {
    size_t bytes = graph_tensor_bytes(&g->tensors[uid], b->rows);
    uint16_t *values = malloc(bytes);
    int64_t count = 0;
    if (!values) {
        fprintf(stderr, "attention: no memory to read %zu bytes of results\n", bytes);
        exit(1);
    }
    gpu_read(&p->gpu, values, b->data[uid], bytes);
    for (size_t i = 0; i < bytes / 2; i++) count += (values[i] & 0x7f80) == 0x7f80;
    free(values);
    return count;
}

/* A pass over a batch: what is timed. */
typedef struct pass {
    program *program;
    batch *batch;
    graph graph;
    attention_plan plan;
    void *workspace;
    bool failed; /* plan.error */
} pass;

static void queue(gpu *g, void *context, int set) {
    pass *p = context;
    (void)g, (void)set;
    if (!attention_plan_run(&p->plan, &p->program->device, p->batch->data, p->workspace)) p->failed = true;
}

/* Runs the pass once, on poisoned outputs: false with a reason when they are not complete. */
static bool try_pass(pass *p, bool backward, char reason[ATTENTION_TEXT]) {
    int first = backward ? ATTENTION_GRAD_Q : ATTENTION_O, last = backward ? ATTENTION_GRAD_V : ATTENTION_O;
    for (int uid = first; uid <= last; uid++)
        gpu_poison(&p->program->gpu, p->batch->data[uid],
                   graph_tensor_bytes(&p->graph.tensors[uid], p->batch->rows));
    queue(&p->program->gpu, p, 0);
    if (p->failed) {
        memcpy(reason, p->plan.error, ATTENTION_TEXT);
        return false;
    }
    for (int uid = first; uid <= last; uid++) {
        int64_t count = count_not_finite(p->program, p->batch, &p->graph, uid);
        if (count == 0) continue;
        snprintf(reason, ATTENTION_TEXT, "%lld numbers of output %d are not finite", (long long)count, uid);
        return false;
    }
    return true;
}

static void report_pass(pass *p, bool backward, const char *status, const gpu_time *time) {
    gpu *g = &p->program->gpu;
    const attention_config *c = &p->graph.config;
    const char *direction = c->deterministic ? "deterministic backward" : backward ? "backward" : "forward";
    double flops = 4 * p->batch->pairs * (double)(c->heads * c->head_dim) * (backward ? 2.5 : 1);
    result_begin(g);
    result_text(g, "what", "time");
    result_text(g, "model", p->batch->model);
    result_text(g, "direction", direction);
    result_config(g, c);
    result_int(g, "tokens", p->batch->rows);
    result_text(g, "status", status);
    result_int(g, "engine", p->plan.engine);
    result_text(g, "notes", p->plan.notes);
    result_number(g, "build_seconds", p->plan.seconds);
    result_int(g, "workspace", (int64_t)p->plan.workspace);
    print_config(direction, c);
    if (time) {
        result_time(g, time);
        result_number(g, "tflops", flops / time->median * 1e-6);
        printf("%.1f us, %.0f TFLOP/s, engine %lld, workspace %.1f MB, built in %.2f s ", time->median,
               flops / time->median * 1e-6, (long long)p->plan.engine, (double)p->plan.workspace * 1e-6,
               p->plan.seconds);
    }
    result_end(g);
    printf("%s\n", status);
}

static void time_built(pass *p, bool backward) {
    gpu *g = &p->program->gpu;
    char reason[ATTENTION_TEXT];
    p->workspace = gpu_alloc(p->plan.workspace);
    if (try_pass(p, backward, reason)) {
        gpu_time time = gpu_measure(g, queue, p, 1);
        report_pass(p, backward, p->failed ? p->plan.error : "ok", p->failed ? NULL : &time);
    } else {
        report_pass(p, backward, reason, NULL);
    }
    gpu_free(p->workspace);
}

static void time_pass(program *p, batch *b, bool backward, bool deterministic) {
    static pass t;
    t = (pass){.program = p, .batch = b};
    attention_config config = b->config;
    config.deterministic = deterministic;
    make_graph(&t.graph, &config, backward);
    if (!attention_plan_build(&t.plan, &p->device, &t.graph))
        report_pass(&t, backward, t.plan.error, NULL);
    else if (t.plan.workspace > workspace_most)
        report_pass(&t, backward, "left out: its workspace is too large", NULL);
    else
        time_built(&t, backward);
    attention_plan_close(&t.plan);
}

static void time_batch(program *p, const char *model, attention_config config, const int32_t *lengths) {
    batch b = {.model = model, .config = config};
    open_batch(p, &b, lengths);
    time_pass(p, &b, false, false);
    time_pass(p, &b, true, false);
    time_pass(p, &b, true, true);
    close_batch(&b);
}

/* Documents of a packed batch of 8192 tokens. */
static const int32_t mixed_lengths[] = {3000, 1700, 1100, 800, 500, 400, 300, 200, 100, 60, 32};
static const int32_t tiny_lengths[] = {9, 2, 4};

static void time_model(program *p, const char *model, int64_t head_dim, bool packed) {
    bool tiny = p->gpu.tiny;
    attention_config one = {.documents = 1, .heads = 32, .kv_heads = 8, .head_dim = head_dim, .causal = true};
    one.length = tiny ? 16 : 8192;
    time_batch(p, model, one, NULL);
    attention_config four = one;
    four.documents = 4;
    four.length = tiny ? 8 : 2048;
    time_batch(p, model, four, NULL);
    if (!packed) return;
    attention_config mixed = one;
    mixed.packed = true;
    mixed.documents = tiny ? sizeof tiny_lengths / 4 : sizeof mixed_lengths / 4;
    time_batch(p, model, mixed, tiny ? tiny_lengths : mixed_lengths);
}

/* ---- the program ---- */

static void report_device(program *p) {
    const char *out = p->gpu.out;
    result_begin(&p->gpu);
    result_text(&p->gpu, "what", "device");
    result_text(&p->gpu, "device", p->gpu.properties.name);
    result_int(&p->gpu, "cudnn", (int64_t)cudnnGetVersion());
    char *json = out ? attention_device_json(&p->device) : NULL;
    if (out) result_text(&p->gpu, "status", json ? "ok" : p->device.error);
    result_end(&p->gpu);
    if (!json) return;
    char path[4096];
    snprintf(path, sizeof path, "%s.deviceprop.json", out);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%s\n", json) < 0) perror(path);
    if (f && fclose(f)) perror(path);
    free(json);
}

int main(int argc, char **argv) {
    program p = {0};
    gpu_open(&p.gpu, "attention", argc, argv);
    if (!attention_device_open(&p.device, p.gpu.stream)) {
        fprintf(stderr, "attention: no cuDNN: %s\n", p.device.error);
        return 1;
    }
    report_device(&p);
    check_lengths(&p, 0, 1); /* before what is large, so that a mistake is met where it does least harm */
    time_model(&p, "Llama 3.1 8B", 128, true);
    time_model(&p, "Llama 3.2 1B", 64, false);
    check_lengths(&p, 1, LENGTHS);
    check_edges(&p);
    attention_device_close(&p.device);
    gpu_close(&p.gpu);
    if (p.missed) fprintf(stderr, "attention: %d checks failed\n", p.missed);
    return p.missed > 0;
}
