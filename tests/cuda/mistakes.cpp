/*
 * Mistakes that tests on the emulated GPU must detect. `mistakes NAME` makes one and fails when it is
 * detected. faults.def lists the sanitizer that detects it. Without a name, the correct versions run.
 */
#include <emulate.h>

enum { COUNT = 64 };

__global__ void mirror(const float *x, float *y, bool waits) {
    SHARED(tile, float[COUNT]);
    tile[threadIdx.x] = x[threadIdx.x];
    if (waits) __syncthreads();
    y[threadIdx.x] = tile[COUNT - 1 - threadIdx.x];
}

/* With step 0 all blocks write the same elements, which is a race. With a larger step they do not. */
__global__ void number(float *y, int step) {
    y[step * blockIdx.x + threadIdx.x] = (float)threadIdx.x;
}

/* A lane reads what another lane wrote. Without a barrier this is a race: shuffles do not order accesses. */
__global__ void exchange(float *y, bool waits) {
    y[threadIdx.x] = (float)threadIdx.x;
    int other = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
    if (waits) __syncthreads();
    float got = y[other];
    __syncthreads();
    y[threadIdx.x] = got;
}

__global__ void copy_four(const float *x, float *y) {
    *(float4 *)y = *(const float4 *)x;
}

__global__ void reserve_much(float *y, bool much) {
    if (much) {
        SHARED(large, float[16 << 10]);
        y[threadIdx.x] = large[threadIdx.x];
    }
}

struct mistakes {
    const char *name; /* name of the mistake; NULL: none */
    float *x, *y;     /* device memory, COUNT elements each */
    cudaStream_t stream, other;
    cudaEvent_t event;
};

static bool is(const mistakes &m, const char *name) {
    return m.name && strcmp(m.name, name) == 0;
}

static void make_kernels(const mistakes &m) {
    LAUNCH(mirror, dim3(1), dim3(COUNT), m.stream, m.x, m.y, !is(m, "barrier"));
    LAUNCH(number, dim3(2), dim3(COUNT / 2), m.stream, m.y, is(m, "blocks") ? 0 : COUNT / 2);
    LAUNCH(exchange, dim3(1), dim3(32), m.stream, m.y, !is(m, "shuffle"));
    LAUNCH(copy_four, dim3(1), dim3(1), m.stream, m.x + is(m, "vector"), m.y);
    LAUNCH(mirror, dim3(1), dim3(COUNT), m.stream, m.x + is(m, "bounds"), m.y, true);
    LAUNCH(number, dim3(is(m, "no_blocks") ? 0 : 1), dim3(COUNT), m.stream, m.y, 0);
    LAUNCH(reserve_much, dim3(1), dim3(1), m.stream, m.y, is(m, "shared_memory"));
    float host[COUNT] = {};
    LAUNCH(mirror, dim3(1), dim3(COUNT), m.stream, m.x, is(m, "host_memory") ? host : m.y, true);
}

/* One stream reads what another stream wrote. The mistake: the reading stream does not wait for an event. */
static void use_streams(const mistakes &m) {
    LAUNCH(number, dim3(1), dim3(COUNT), m.stream, m.x, 0);
    cudaEventRecord(m.event, m.stream);
    if (!is(m, "stream_wait")) cudaStreamWaitEvent(m.other, m.event, 0);
    LAUNCH(mirror, dim3(1), dim3(COUNT), m.other, m.x, m.y, true);
    cudaStreamSynchronize(m.stream);
    cudaStreamSynchronize(m.other);
}

/* The host refills staging memory. The mistake: a copy may still read this memory. */
static void use_staging(const mistakes &m) {
    void *memory;
    cudaHostAlloc(&memory, COUNT * sizeof(float), cudaHostAllocDefault);
    float *staging = (float *)memory;
    staging[0] = 1;
    cudaMemcpyAsync(m.x, staging, COUNT * sizeof(float), cudaMemcpyHostToDevice, m.stream);
    if (!is(m, "staging")) cudaStreamSynchronize(m.stream);
    staging[0] = 2;
    cudaStreamSynchronize(m.stream);
    cudaFreeHost(memory);
}

/* Frees memory in stream order. The mistake: a kernel that uses the memory runs later in the stream. */
static void use_freed(const mistakes &m) {
    void *memory;
    cudaMallocAsync(&memory, COUNT * sizeof(float), m.stream);
    if (is(m, "freed")) cudaFreeAsync(memory, m.stream);
    LAUNCH(number, dim3(1), dim3(COUNT), m.stream, (float *)memory, 0);
    if (!is(m, "freed")) cudaFreeAsync(memory, m.stream);
    cudaStreamSynchronize(m.stream);
}

/* A graph keeps the addresses of its recording. The mistake: the memory is freed before the graph runs. */
static void use_graph(const mistakes &m) {
    void *memory;
    cudaGraph_t recorded;
    cudaGraphExec_t graph;
    cudaMalloc(&memory, COUNT * sizeof(float));
    cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeThreadLocal);
    LAUNCH(number, dim3(1), dim3(COUNT), m.stream, (float *)memory, 0);
    cudaStreamEndCapture(m.stream, &recorded);
    cudaGraphInstantiate(&graph, recorded, 0);
    cudaGraphDestroy(recorded);
    cudaGraphLaunch(graph, m.stream);
    cudaStreamSynchronize(m.stream);
    if (is(m, "graph")) cudaFree(memory);
    cudaGraphLaunch(graph, m.stream);
    cudaStreamSynchronize(m.stream);
    if (!is(m, "graph")) cudaFree(memory);
    cudaGraphExecDestroy(graph);
}

int main(int argc, char **argv) {
    mistakes m = {};
    void *memory[2];
    m.name = argc > 1 ? argv[1] : nullptr;
    for (void *&data : memory) cudaMalloc(&data, COUNT * sizeof(float));
    m.x = (float *)memory[0], m.y = (float *)memory[1];
    cudaStreamCreate(&m.stream);
    cudaStreamCreate(&m.other);
    cudaEventCreate(&m.event);
    cudaMemsetAsync(m.x, 0, COUNT * sizeof(float), m.stream);
    make_kernels(m);
    cudaStreamSynchronize(m.stream);
    use_streams(m);
    use_staging(m);
    use_freed(m);
    use_graph(m);
    for (void *data : memory) cudaFree(data);
    return 0;
}
