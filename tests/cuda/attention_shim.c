/* tests/cuda/attention_shim: implements the functions of cuda/attention/attention_cudnn that the backend
   calls. */
#include "attention_shim.h"
#include "attention_interpreter.h"
#include "cuda/attention/attention_cudnn.h"
#include "cudart.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t attention_shim_version;
attention_fault attention_shim_fault;
int attention_shim_plans, attention_shim_runs;

ott_status attention_library_open(attention_library *l, cudaStream_t stream) {
    *l = (attention_library){.version = attention_shim_version, .handle = (cudnnHandle_t)(void *)stream};
    if (l->version >= ATTENTION_CUDNN_LEAST) return OTT_OK;
    snprintf(l->error, sizeof l->error, l->version ? "cuDNN is too old" : "cuDNN is missing");
    return status_fail(OTT_ERR_DEVICE, "%s", l->error);
}

void attention_library_close(attention_library *l) {
    (void)l;
}

/* Why cuDNN has no plan for the graph with this engine on this GPU, as NVIDIA documents it; NULL: it has one.
   */
static const char *refuse_graph(size_t version, const graph *g, const attention_engine *engine) {
    int gpu = cudart_capability(), family = gpu / 10;
    bool is_backward = attention_graph_has(g, ATTENTION_GRAD_Q), is_direct = is_backward && g->config.direct;
    if (engine && engine->index == 6 && !(family == 9 && version >= 92500 && !is_direct))
        return "engine 6 sums in order on Hopper, from 9.25 on";
    if (engine && engine->index == 5 && !(family == 10 && is_direct))
        return "engine 5 is Blackwell's, for direct graphs";
    if (engine && engine->index == 5 && (engine->knob_count == 6) != (version >= 92300))
        return "9.23 has other knobs";
    if (is_direct && g->config.packed && !engine) return "packed documents need a square of all tokens";
    return NULL;
}

ott_status attention_plan_build(attention_plan *p, const attention_library *l, const graph *g,
                                const attention_engine *engine) {
    *p = (attention_plan){.plan = NULL};
    const char *refusal = refuse_graph(l->version, g, engine);
    if (refusal) {
        snprintf(p->error, sizeof p->error, "%s", refusal);
        return status_fail(OTT_ERR_UNSUPPORTED, "cuDNN: %s", p->error);
    }
    p->plan = malloc(sizeof *g);
    if (!p->plan) return status_fail(OTT_ERR_MEMORY, "no memory for a graph");
    memcpy(p->plan, g, sizeof *g);
    attention_shim_plans++;
    return OTT_OK;
}

static void plant(graph *g) {
    for (int i = 0; i < g->op_count; i++) {
        graph_op *op = &g->ops[i];
        if (attention_shim_fault == FAULT_LENGTHS) op->m = op->n = op->k = 0;
        if (attention_shim_fault == FAULT_MASKS && op->mode == GRAPH_SELECT) op->mode = GRAPH_IDENTITY;
    }
    if (attention_shim_fault == FAULT_OFFSETS) g->tensors[ATTENTION_GRAD_K_HEADS].offsets_factor = 1;
}

/* cuDNN queues the work. The stand-in computes immediately, so it must wait for the stream's earlier work. */
ott_status attention_plan_run(attention_plan *p, const attention_library *l,
                              void *const data[ATTENTION_NAMED], void *workspace) {
    (void)workspace;
    cudaStreamSynchronize((cudaStream_t)(void *)l->handle);
    static graph g;
    size_t bytes[ATTENTION_NAMED] = {0};
    memcpy(&g, p->plan, sizeof g);
    for (int uid = 1; uid < ATTENTION_NAMED; uid++)
        if (attention_graph_has(&g, uid)) bytes[uid] = attention_graph_tensor_bytes(&g, uid, g.config.rows);
    plant(&g);
    const char *error = attention_interpret(&g, data, bytes);
    attention_shim_runs++;
    return error ? status_fail(OTT_ERR_DEVICE, "the stand-in for cuDNN: %s", error) : OTT_OK;
}

void attention_plan_close(attention_plan *p, const attention_library *l) {
    (void)l;
    free(p->plan);
}
