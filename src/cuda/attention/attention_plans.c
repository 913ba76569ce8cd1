/* cuda/attention/attention_plans: decides when to use cuDNN, caches plans, and reserves workspace. */
#include "cuda/attention/attention_plans.h"
#include "base/log.h"
#include "cuda/attention/attention_check.h"
#include "cuda/attention/attention_cudnn.h"
#include "cuda/kernels/kernels.h"
#include <string.h>

/* Building a plan takes a second, so plans are cached. A plan is for one length, and prompts have many
   lengths, so the number of cached plans is limited. */
enum { PLANS_MOST = 32, REASONS_MOST = 16 };

typedef struct attention_entry attention_entry;
struct attention_entry {
    attention_config config;
    bool backward;
    bool planned; /* the plan was built; otherwise plan.error has the reason */
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
};

/* ---- what cuDNN is used for ---- */

static bool is_row_of_vectors(const tensor *t) {
    return !t || (t->ld * 2 % 16 == 0 && (uintptr_t)t->data % 16 == 0);
}

/* Returns why no version of cuDNN is used for this call on any GPU; NULL: cuDNN may be used. */
static const char *refuse_call(const attention_call *call) {
    const tensor *q = call->tensors[ATTENTION_Q];
    if (q->dtype == OTT_F32) return "it does not support fp32";
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
    if ((g->packed || backward) && l->version < ATTENTION_CUDNN_DETERMINISTIC)
        return "before 9.25 (" ATTENTION_CUDNN_INSTALL ") it is wrong for empty documents, and its backward "
               "is not deterministic";
    if (backward && !gpu_has_ordered_attention(10 * c->properties.major + c->properties.minor))
        return "its deterministic backward is only used on Hopper";
    bool keys = g->stride[ATTENTION_K] == g->stride[ATTENTION_V];
    if (backward)
        keys = keys && g->stride[ATTENTION_K] == g->stride[ATTENTION_GRAD_K] &&
               g->stride[ATTENTION_K] == g->stride[ATTENTION_GRAD_V] &&
               g->stride[ATTENTION_Q] == g->stride[ATTENTION_GRAD_Q] &&
               g->stride[ATTENTION_O] == g->stride[ATTENTION_GRAD_O];
    return g->packed && !keys ? "packed tensors and their gradients must have equal strides" : NULL;
}

static void fill_config(attention_config *g, const attention_call *call) {
    const tensor *q = call->tensors[ATTENTION_Q], *k = call->tensors[ATTENTION_K];
    memset(g, 0, sizeof *g); /* configurations are compared with memcmp */
    g->type = q->dtype == OTT_BF16 ? GRAPH_BF16 : GRAPH_F16;
    g->packed = call->cu_seqlens->columns > 2;
    g->documents = g->packed ? call->cu_seqlens->columns - 1 : 1;
    g->heads = q->columns / call->head_dim;
    g->kv_heads = k->columns / call->head_dim;
    g->length = q->rows;
    g->head_dim = call->head_dim;
    g->window = call->window > 0 && call->window < q->rows ? call->window : 0;
    for (int uid = ATTENTION_Q; uid <= ATTENTION_GRAD_V; uid++)
        if (call->tensors[uid]) g->stride[uid] = call->tensors[uid]->ld;
}

/* ---- plans ---- */

/* Assigns offsets in the workspace to scratch tensors, each a multiple of GPU_ALIGNMENT. */
static void lay_out_workspace(attention_entry *e, const graph *g) {
    for (int uid = 1; uid < ATTENTION_NAMED; uid++) {
        if (!(attention_graph_has(g, uid) && uid > ATTENTION_GRAD_V && uid < ATTENTION_SCALE)) continue;
        int64_t bytes = (int64_t)attention_graph_tensor_bytes(g, uid, e->config.length);
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
    e->planned = attention_plan_build(&e->plan, l, &g) == OTT_OK;
    if (e->planned) lay_out_workspace(e, &g);
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

static attention_entry *find_or_add_entry(const attention_plans *p, const attention_config *config,
                                          bool backward) {
    attention_entry *e = p->entries;
    while (e && (e->backward != backward || memcmp(&e->config, config, sizeof *config) != 0)) e = e->next;
    return e;
}

static ott_status add_entry(cuda_device *c, const attention_config *config, bool backward,
                            attention_entry **out) {
    attention_plans *p = c->attentions;
    TRY(mem_alloc(c->base.account, MEM_OTHER, sizeof(attention_entry), "a plan of attention", out));
    attention_entry *e = *out;
    memcpy(&e->config, config, sizeof *config);
    e->backward = backward;
    e->next = p->entries;
    p->entries = e;
    p->count++;
    plan_entry(e, &p->library);
    return OTT_OK;
}

/* Finds or builds the plan for the call. If there is no plan, sets *reason to the cause, else to NULL. */
static ott_status find_plan(cuda_device *c, const attention_call *call, attention_entry **out,
                            const char **reason) {
    attention_config config;
    TRY(open_attention_plans(c));
    *reason = refuse_call(call);
    if (*reason) return OTT_OK;
    TRY(cuda_check(cudaSetDevice(c->index), c->name));
    fill_config(&config, call);
    *reason = refuse_config(c, open_cudnn(c), &config, call->backward);
    if (*reason) return OTT_OK;
    *out = find_or_add_entry(c->attentions, &config, call->backward);
    if (!*out && c->attentions->count == PLANS_MOST)
        *reason = "there are too many different sequence lengths";
    else if (!*out)
        TRY(add_entry(c, &config, call->backward, out));
    if (*out && !(*out)->planned) *reason = (*out)->plan.error;
    return OTT_OK;
}

int64_t attention_plans_workspace(cuda_device *c, const attention_call *call) {
    attention_entry *e = NULL;
    const char *reason;
    if (find_plan(c, call, &e, &reason) != OTT_OK || reason) return 0; /* attention_plans_run reports why */
    return e->bytes;
}

/* ---- running ---- */

static void log_refusal(const exec *cx, const char *reason) {
    attention_plans *p = cuda_device_of(cx->device)->attentions;
    int i = 0;
    while (i < REASONS_MOST && p->reported[i] && p->reported[i] != reason) i++;
    if (i == REASONS_MOST || p->reported[i]) return;
    p->reported[i] = reason;
    log_warning(cx->log, "attention uses Ottava's slow kernels instead of cuDNN: %s", reason);
}

static ott_status fill_offsets(exec *cx, const attention_call *call, const attention_entry *e,
                               void *const data[ATTENTION_NAMED]) {
    const int64_t *stride = e->config.stride;
    attention_offsets to = {.q_lengths = data[ATTENTION_Q_LENGTHS],
                            .k_lengths = data[ATTENTION_K_LENGTHS],
                            .offsets = {data[ATTENTION_Q_OFFSETS], data[ATTENTION_K_OFFSETS],
                                        data[ATTENTION_O_OFFSETS], data[ATTENTION_LSE_OFFSETS]},
                            .strides = {stride[ATTENTION_Q], stride[ATTENTION_K], stride[ATTENTION_O], 1}};
    return cuda_check(attention_offsets_launch(call->cu_seqlens, e->config.documents, e->config.length, &to,
                                               cuda_stream(cx)),
                      "attention: the documents");
}

static ott_status run_plan(exec *cx, const attention_call *call, attention_entry *e, char *workspace) {
    float scale = call->scale, one = 1, minus_infinity = -INFINITY, window = (float)e->config.window;
    void *data[ATTENTION_NAMED];
    for (int uid = 0; uid < ATTENTION_NAMED; uid++) data[uid] = workspace + e->offset[uid];
    for (int uid = ATTENTION_Q; uid <= ATTENTION_GRAD_V; uid++)
        if (call->tensors[uid]) data[uid] = call->tensors[uid]->data;
    data[ATTENTION_SCALE] = &scale, data[ATTENTION_ONE] = &one;
    data[ATTENTION_MINUS_INFINITY] = &minus_infinity, data[ATTENTION_WINDOW] = &window;
    if (e->config.packed) TRY(fill_offsets(cx, call, e, data));
    if (e->sum_bytes > 0)
        TRY(cuda_check(cudaMemsetAsync(data[ATTENTION_GRAD_Q_SUM], 0, e->sum_bytes, cuda_stream(cx)),
                       "attention: clearing the gradient's sum"));
    return attention_plan_run(&e->plan, &cuda_device_of(cx->device)->attentions->library, data,
                              data[ATTENTION_NONE]);
}

ott_status attention_plans_run(exec *cx, const attention_call *call, void *workspace, bool *ran) {
    cuda_device *c = cuda_device_of(cx->device);
    attention_entry *e = NULL;
    const char *reason;
    TRY(find_plan(c, call, &e, &reason));
    *ran = !reason;
    if (reason) return log_refusal(cx, reason), OTT_OK;
    TRY(run_plan(cx, call, e, workspace));
    if (e->checked || c->is_capturing) return OTT_OK;
    return attention_check(cx, call, c->attentions->library.version, &e->checked);
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
