/* cuda/graph: stream capture and instantiated graphs. */
#include "cuda/graph.h"
#include "cuda/cuda.h"

struct device_graph {
    cudaGraphExec_t ready;
};

ott_status graph_capture_begin(device *d) {
    cuda_device *c = cuda_device_of(d);
    TRY(cuda_check(cudaSetDevice(c->index), c->name));
    TRY(cuda_check(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "recording a graph"));
    c->is_capturing = true;
    return OTT_OK;
}

static ott_status make_ready(device *d, cudaGraph_t recorded, device_graph **out) {
    device_graph *g;
    TRY(mem_alloc(d->account, MEM_OTHER, sizeof(device_graph), "a graph", &g));
    ott_status status = cuda_check(cudaGraphInstantiate(&g->ready, recorded, 0), "instantiating a graph");
    if (status == OTT_OK)
        *out = g;
    else
        mem_free(d->account, g);
    return status;
}

ott_status graph_capture_end(device *d, device_graph **out) {
    cudaGraph_t recorded = NULL;
    cuda_device *c = cuda_device_of(d);
    c->is_capturing = false;
    cudaError_t error = cudaStreamEndCapture(c->stream, &recorded);
    if (error != cudaSuccess) cudaGetLastError();
    ott_status status = out ? cuda_check(error, "recording a graph") : OTT_OK;
    if (status == OTT_OK && out) status = make_ready(d, recorded, out);
    if (recorded) cudaGraphDestroy(recorded);
    return status;
}

ott_status graph_run(device *d, device_graph *g) {
    cuda_device *c = cuda_device_of(d);
    TRY(cuda_check(cudaSetDevice(c->index), c->name));
    return cuda_check(cudaGraphLaunch(g->ready, c->stream), "a graph");
}

void graph_close(device *d, device_graph *g) {
    cudaSetDevice(cuda_device_of(d)->index);
    cudaGraphExecDestroy(g->ready);
    mem_free(d->account, g);
}
