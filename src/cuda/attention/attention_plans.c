/* cuda/attention/attention_plans: decides when to use cuDNN, caches plans, and reserves workspace. */
#include "cuda/attention/attention_plans.h"
#include "base/log.h"
#include "cuda/attention/attention_check.h"
#include "cuda/attention/attention_order.h"
#include "cuda/kernels/kernels.h"
#include <stdio.h>
#include <string.h>

/* Building a plan takes a second, so plans are cached. A plan is for one length, and prompts have many
   lengths, so the number of cached plans is limited. */
enum { PLANS_MOST = 64, REASONS_MOST = 16 };
#define WORKSPACE_MOST ((int64_t)2 << 30)

typedef struct attention_entry attention_entry;
struct attention_entry {
    attention_config config; /* of one run */
    bool backward;
    const attention_way *way; /* NULL: forward */
    int64_t runs;             /* a call has this many runs, each for config.kv_heads key heads */
    bool planned;             /* the plan was built; otherwise plan.error has the reason */
    bool checked; /* the first run's results were compared with the host's results and were right */
    attention_plan plan;
    /* offset[uid]: byte offset of a scratch tensor in the workspace. offset[ATTENTION_NONE]: byte offset of
       cuDNN's own scratch memory, which comes last. bytes: bytes of the full workspace */
    int64_t offset[ATTENTION_NAMED], bytes;
    size_t sum_bytes; /* bytes of ATTENTION_GRAD_Q_SUM */
    attention_entry *next;
};

struct attention_plans {
    attention_library library; /* library.error: why cuDNN cannot be used */
    attention_entry *entries;
    int count;
    const char *reported[REASONS_MOST];
    bool own_checked[2][2][3]; /* Ottava's kernels that were compared: backward, fp16, columns of a tile */
};

/* ---- what cuDNN is used for ---- */

static bool is_row_of_vectors(const tensor *t) {
    return !t || (t->ld * 2 % 16 == 0 && (uintptr_t)t->data % 16 == 0);
}

/* Returns why no version of cuDNN is used for this call on any GPU; NULL: cuDNN may be used. */
static const char *refuse_call(const attention_call *call) {
    const tensor *q = call->tensors[ATTENTION_Q];
    if (q->dtype == OTT_F32) return "it does not support fp32";
    if (call->softcap > 0) return "it is not used with soft caps";
    if (call->past > 0) return "it is not used for generation with a KV cache";
    if (call->head_dim % 8 != 0 || call->head_dim > 256)
        return "head_dim must be a multiple of 8, at most 256";
    if (q->rows < 2) return "it is not used for a single token";
    for (int uid = ATTENTION_Q; uid <= ATTENTION_GRAD_V; uid++)
        if (uid != ATTENTION_LSE && !is_row_of_vectors(call->tensors[uid]))
            return "it needs 16-byte-aligned rows";
    return NULL;
}

/* Returns why this version of cuDNN is not used for the call on this GPU, or NULL if it can be used. */
static const char *refuse_config(const cuda_device *c, const attention_library *l, const attention_config *g,
                                 bool backward) {
    if (c->own_attention) return "OTTAVA_CUDA_ATTENTION=own";
    if (l->error[0]) return l->error;
    if (g->packed && l->version < ATTENTION_CUDNN_EMPTY_DOCUMENTS)
        return "before 9.25 (" ATTENTION_CUDNN_INSTALL ") it is wrong for empty documents";
    bool keys = g->stride[ATTENTION_K] == g->stride[ATTENTION_V];
    if (backward)
        keys = keys && g->stride[ATTENTION_K] == g->stride[ATTENTION_GRAD_K] &&
               g->stride[ATTENTION_K] == g->stride[ATTENTION_GRAD_V] &&
               g->stride[ATTENTION_Q] == g->stride[ATTENTION_GRAD_Q] &&
               g->stride[ATTENTION_O] == g->stride[ATTENTION_GRAD_O];
    return g->packed && !keys ? "packed tensors and their gradients must have equal strides" : NULL;
}

/* Documents that fill the rows, although none is longer than `longest`, are all of this length: dense. */
static void fill_config(attention_config *g, const attention_call *call) {
    const tensor *q = call->tensors[ATTENTION_Q], *k = call->tensors[ATTENTION_K];
    int64_t documents = call->cu_seqlens->columns - 1;
    memset(g, 0, sizeof *g); /* configurations are compared with memcmp */
    g->type = q->dtype == OTT_BF16 ? GRAPH_BF16 : GRAPH_F16;
    g->length = call->longest > 0 && call->longest < q->rows ? call->longest : q->rows;
    g->packed = documents > 1 && documents * g->length != q->rows;
    g->documents = g->packed || documents > 1 ? documents : 1;
    g->rows = q->rows;
    g->heads = q->columns / call->head_dim;
    g->kv_heads = k->columns / call->head_dim;
    g->head_dim = call->head_dim;
    g->window = call->window > 0 && call->window < g->length ? call->window : 0;
    for (int uid = ATTENTION_Q; uid <= ATTENTION_GRAD_V; uid++)
        if (call->tensors[uid]) g->stride[uid] = call->tensors[uid]->ld;
}

/* ---- plans ---- */

/* Assigns offsets in the workspace to scratch tensors, each a multiple of GPU_ALIGNMENT. */
static void lay_out_workspace(attention_entry *e, const graph *g) {
    for (int uid = 1; uid < ATTENTION_NAMED; uid++) {
        if (!(attention_graph_has(g, uid) && uid > ATTENTION_GRAD_V && uid < ATTENTION_SCALE)) continue;
        int64_t bytes = (int64_t)attention_graph_tensor_bytes(g, uid, e->config.rows);
        e->offset[uid] = e->bytes;
        e->bytes += (bytes + GPU_ALIGNMENT - 1) / GPU_ALIGNMENT * GPU_ALIGNMENT;
        if (uid == ATTENTION_GRAD_Q_SUM) e->sum_bytes = (size_t)bytes;
    }
    e->offset[ATTENTION_NONE] = e->bytes;
    e->bytes += e->plan.workspace;
}

static void plan_entry(attention_entry *e, const attention_library *l) {
    graph g;
    if (e->backward)
        attention_graph_backward(&g, &e->config);
    else
        attention_graph_forward(&g, &e->config);
    e->planned = attention_plan_build(&e->plan, l, &g, e->way ? e->way->engine : NULL) == OTT_OK;
    if (!e->planned) return;
    lay_out_workspace(e, &g);
    e->planned = e->bytes <= WORKSPACE_MOST;
    if (!e->planned) snprintf(e->plan.error, ATTENTION_TEXT, "it needs more than 2 GiB of workspace");
}

static ott_status open_attention_plans(cuda_device *c) {
    if (c->attentions) return OTT_OK;
    return mem_alloc(c->base.account, MEM_OTHER, sizeof(attention_plans), "attention's plans",
                     &c->attentions);
}

/* Opens cuDNN on the first call. If cuDNN cannot be used, the result's `error` has the reason. */
static const attention_library *open_cudnn(cuda_device *c) {
    attention_library *l = &c->attentions->library;
    if (l->version == 0 && !l->error[0]) attention_library_open(l, c->stream);
    return l;
}

static attention_entry *find_entry(const attention_plans *p, const attention_config *config, bool backward,
                                   const attention_way *way) {
    attention_entry *e = p->entries;
    while (e && (e->backward != backward || e->way != way || memcmp(&e->config, config, sizeof *config) != 0))
        e = e->next;
    return e;
}

static ott_status add_entry(cuda_device *c, const attention_config *config, bool backward,
                            const attention_way *way, attention_entry **out) {
    attention_plans *p = c->attentions;
    TRY(mem_alloc(c->base.account, MEM_OTHER, sizeof(attention_entry), "a plan of attention", out));
    attention_entry *e = *out;
    memcpy(&e->config, config, sizeof *config);
    e->backward = backward;
    e->way = way;
    e->next = p->entries;
    p->entries = e;
    p->count++;
    plan_entry(e, &p->library);
    return OTT_OK;
}

/* Finds or builds the plan for one way of the call; way NULL: forward. If there is no plan, sets *reason to
   the cause, unless it has one already. */
static ott_status find_way(cuda_device *c, attention_config config, bool backward, const attention_way *way,
                           attention_entry **out, const char **reason) {
    int64_t all = config.kv_heads;
    config.direct = way && way->direct;
    if (way && way->split) {
        config.kv_heads = attention_order_key_heads(&config);
        config.heads = config.heads / all * config.kv_heads;
    }
    *out = find_entry(c->attentions, &config, backward, way);
    const char *why = NULL;
    if (!*out && c->attentions->count == PLANS_MOST)
        why = "there are too many different sequence lengths";
    else if (!*out)
        TRY(add_entry(c, &config, backward, way, out));
    if (*out) (*out)->runs = all / config.kv_heads;
    if (*out && !(*out)->planned) why = (*out)->plan.error, *out = NULL;
    if (!*reason) *reason = why;
    return OTT_OK;
}

static ott_status find_backward(cuda_device *c, const attention_config *config, attention_entry **out,
                                const char **reason) {
    const attention_way *ways[ATTENTION_WAYS_MOST];
    int capability = 10 * c->properties.major + c->properties.minor;
    int count =
        attention_order_backward(capability, c->attentions->library.version, config,
                                 c->base.order == DEVICE_UNORDERED, c->base.order == DEVICE_WARN, ways);
    for (int i = 0; i < count && !*out; i++) TRY(find_way(c, *config, true, ways[i], out, reason));
    if (!*out && !*reason)
        *reason = "it has no backward with its sums in a fixed order here (train.deterministic=warn allows "
                  "another)";
    return OTT_OK;
}

/* Finds or builds the plan for the call. If there is no plan, sets *reason to the cause, else to NULL. */
static ott_status find_plan(cuda_device *c, const attention_call *call, attention_entry **out,
                            const char **reason) {
    attention_config config;
    *out = NULL;
    TRY(open_attention_plans(c));
    *reason = refuse_call(call);
    if (*reason) return OTT_OK;
    TRY(cuda_check(cudaSetDevice(c->index), c->name));
    fill_config(&config, call);
    *reason = refuse_config(c, open_cudnn(c), &config, call->backward);
    if (*reason) return OTT_OK;
    TRY(call->backward ? find_backward(c, &config, out, reason)
                       : find_way(c, config, false, NULL, out, reason));
    if (*out) *reason = NULL;
    return OTT_OK;
}

int64_t attention_plans_workspace(cuda_device *c, const attention_call *call, bool *refused) {
    attention_entry *e = NULL;
    const char *reason;
    *refused = find_plan(c, call, &e, &reason) != OTT_OK || reason; /* attention_plans_run reports why */
    return *refused ? 0 : e->bytes;
}

/* ---- running ---- */

/* True the first time that it is called with this text. */
static bool is_new(attention_plans *p, const char *text) {
    int i = 0;
    while (i < REASONS_MOST && p->reported[i] && p->reported[i] != text) i++;
    if (i == REASONS_MOST || p->reported[i]) return false;
    p->reported[i] = text;
    return true;
}

void attention_plans_log(const exec *cx, const char *refusal, bool fast) {
    if (is_new(cuda_device_of(cx->device)->attentions, refusal))
        log_warning(cx->log, "attention uses Ottava's %s kernels instead of cuDNN: %s",
                    fast ? "tensor-core" : "slow", refusal);
}

static void log_unordered(const exec *cx, const attention_entry *e) {
    static const char text[] =
        "attention's backward sums in an order that changes from run to run, and so do the results' last "
        "bits: "
        "cuDNN has no backward in a fixed order here, and train.deterministic=warn allows this";
    const cuda_device *c = cuda_device_of(cx->device);
    if (e->way && !e->way->ordered && c->base.order == DEVICE_WARN && is_new(c->attentions, text))
        log_warning(cx->log, "%s", text);
}

static ott_status fill_offsets(exec *cx, const attention_call *call, const attention_entry *e,
                               void *const data[ATTENTION_NAMED]) {
    const int64_t *stride = e->config.stride;
    attention_offsets to = {.q_lengths = data[ATTENTION_Q_LENGTHS],
                            .k_lengths = data[ATTENTION_K_LENGTHS],
                            .offsets = {data[ATTENTION_Q_OFFSETS], data[ATTENTION_K_OFFSETS],
                                        data[ATTENTION_O_OFFSETS], data[ATTENTION_LSE_OFFSETS]},
                            .strides = {stride[ATTENTION_Q], stride[ATTENTION_K], stride[ATTENTION_O], 1}};
    return cuda_check(
        attention_offsets_launch(call->cu_seqlens, e->config.documents, e->config.rows, &to, cuda_stream(cx)),
        "attention: the documents");
}

/* Sets the tensors' addresses for run number `run`, which computes some of the heads. */
static void place_tensors(const attention_call *call, const attention_entry *e, int64_t run,
                          void *data[ATTENTION_NAMED]) {
    const attention_config *g = &e->config;
    for (int uid = ATTENTION_Q; uid <= ATTENTION_GRAD_V; uid++) {
        const tensor *t = call->tensors[uid];
        bool keys =
            uid == ATTENTION_K || uid == ATTENTION_V || uid == ATTENTION_GRAD_K || uid == ATTENTION_GRAD_V;
        int64_t heads = run * (keys ? g->kv_heads : g->heads);
        if (!t) continue;
        data[uid] = (char *)t->data + (uid == ATTENTION_LSE ? heads * t->ld * 4 : heads * g->head_dim * 2);
    }
}

static ott_status run_plan(exec *cx, const attention_call *call, attention_entry *e, char *workspace) {
    float scale = call->scale, one = 1, minus_infinity = -INFINITY, window = (float)e->config.window;
    void *data[ATTENTION_NAMED];
    for (int uid = 0; uid < ATTENTION_NAMED; uid++) data[uid] = workspace + e->offset[uid];
    data[ATTENTION_SCALE] = &scale, data[ATTENTION_ONE] = &one;
    data[ATTENTION_MINUS_INFINITY] = &minus_infinity, data[ATTENTION_WINDOW] = &window;
    if (e->config.packed) TRY(fill_offsets(cx, call, e, data));
    for (int64_t run = 0; run < e->runs; run++) {
        place_tensors(call, e, run, data);
        if (e->sum_bytes > 0)
            TRY(cuda_check(cudaMemsetAsync(data[ATTENTION_GRAD_Q_SUM], 0, e->sum_bytes, cuda_stream(cx)),
                           "attention: clearing the gradient's sum"));
        TRY(attention_plan_run(&e->plan, &cuda_device_of(cx->device)->attentions->library, data,
                               data[ATTENTION_NONE]));
    }
    return OTT_OK;
}

ott_status attention_plans_run(exec *cx, const attention_call *call, void *workspace, const char **refusal) {
    cuda_device *c = cuda_device_of(cx->device);
    attention_entry *e;
    char by[32];
    TRY(find_plan(c, call, &e, refusal));
    if (*refusal) return OTT_OK;
    log_unordered(cx, e);
    TRY(run_plan(cx, call, e, workspace));
    if (e->checked || c->is_capturing) return OTT_OK;
    size_t version = c->attentions->library.version;
    snprintf(by, sizeof by, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return attention_check(cx, call, by, &e->checked);
}

ott_status attention_plans_check_own(exec *cx, const attention_call *call) {
    cuda_device *c = cuda_device_of(cx->device);
    int width = call->head_dim <= 64 ? 0 : call->head_dim <= 128 ? 1 : 2;
    bool *checked =
        &c->attentions->own_checked[call->backward][call->tensors[ATTENTION_Q]->dtype == OTT_F16][width];
    if (*checked || c->is_capturing) return OTT_OK;
    return attention_check(cx, call, "Ottava's tensor-core kernel", checked);
}

void attention_plans_close(cuda_device *c) {
    attention_plans *p = c->attentions;
    if (!p) return;
    while (p->entries) {
        attention_entry *e = p->entries;
        p->entries = e->next;
        attention_plan_close(&e->plan, &p->library);
        mem_free(c->base.account, e);
    }
    attention_library_close(&p->library);
    mem_free(c->base.account, p);
    c->attentions = NULL;
}
