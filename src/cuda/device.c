/* cuda/device: the device table (tensor/device.h), implemented with the CUDA runtime. All work is queued on
   one stream. Memory comes from the runtime's pool in stream order, so allocating and freeing do not wait.
   Mapped host memory has the same address on the device. */
#include "base/text/size.h"
#include "cuda/attention/attention_plans.h"
#include "cuda/cuda.h"
#include "cuda/graph.h"
#include "cuda/kernels/kernels.h"
#include "cuda/nccl/group.h"
#include "cuda/ops.h"
#include "cuda/gemm/products.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ott_status cuda_check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return OTT_OK;
    return status_fail(OTT_ERR_DEVICE, "%s: CUDA error %d: %s", what, (int)error, cudaGetErrorString(error));
}

/* Each thread has its own current CUDA device. Several threads use the GPU, so each call sets the device. */
static ott_status make_current(const cuda_device *c) {
    return cuda_check(cudaSetDevice(c->index), c->name);
}

/* ---- memory ---- */

struct cuda_block {
    void *data;
    int64_t bytes;
    mem_kind kind;
    bool mapped; /* mapped host memory; not counted as GPU memory */
    cuda_block *next;
};

static void keep_block(cuda_device *c, cuda_block *b) {
    pthread_mutex_lock(&c->lock);
    b->next = c->blocks;
    c->blocks = b;
    c->taken.allocations++;
    if (!b->mapped) mem_stats_add(&c->taken, b->kind, b->bytes);
    pthread_mutex_unlock(&c->lock);
}

static cuda_block *take_block(cuda_device *c, const void *data) {
    pthread_mutex_lock(&c->lock);
    cuda_block **at = &c->blocks;
    while (*at && (*at)->data != data) at = &(*at)->next;
    cuda_block *b = *at;
    if (b) {
        *at = b->next;
        if (!b->mapped) mem_stats_add(&c->taken, b->kind, -b->bytes);
    }
    pthread_mutex_unlock(&c->lock);
    return b;
}

static mem_stats taken(const device *d) {
    cuda_device *c = cuda_device_of(d);
    pthread_mutex_lock(&c->lock);
    mem_stats stats = c->taken;
    pthread_mutex_unlock(&c->lock);
    return stats;
}

/* Bytes that CUDA's memory pool has reserved but not allocated. cudaMemGetInfo counts them as used. */
static int64_t read_slack(const cuda_device *c) {
    uint64_t reserved = 0, used = 0;
    if (cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrReservedMemCurrent, &reserved) != cudaSuccess ||
        cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess)
        cudaGetLastError();
    return reserved > used ? (int64_t)(reserved - used) : 0;
}

static void read_memory(const device *d, device_memory *out) {
    const cuda_device *c = cuda_device_of(d);
    size_t left = 0, total = 0;
    cudaSetDevice(c->index);
    if (cudaMemGetInfo(&left, &total) != cudaSuccess) cudaGetLastError();
    int64_t free_bytes = (int64_t)left + read_slack(c) - DEVICE_RESERVED;
    *out = (device_memory){.total = (int64_t)total,
                           .limit = {.left = free_bytes > 0 ? free_bytes : 0, .total = (int64_t)total}};
    snprintf(out->limit.owner, sizeof out->limit.owner, "%.128s", c->properties.name);
}

static ott_status fail_device_memory(const cuda_device *c, mem_kind kind, int64_t bytes, const char *what) {
    device_memory m;
    char needed[SIZE_TEXT], used[SIZE_TEXT], left[LIMIT_TEXT];
    cudaGetLastError(); /* clears CUDA's last error, which the next check would report */
    read_memory(&c->base, &m);
    return status_fail(OTT_ERR_MEMORY,
                       "out of GPU memory: %s (%s) needs %s, %s are in use, and %s: use less memory, or free "
                       "some on the GPU",
                       what, mem_kind_name(kind), size_text(bytes, needed),
                       size_text(taken(&c->base).now, used), limit_text(&m.limit, left));
}

static ott_status allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    cuda_device *c = cuda_device_of(d);
    void *memory, *data = NULL;
    TRY(make_current(c));
    TRY(mem_alloc(d->account, MEM_OTHER, sizeof(cuda_block), what, &memory));
    size_t size = bytes > 0 ? (size_t)bytes : 1;
    cudaError_t error = cudaMallocAsync(&data, size, c->stream);
    if (error != cudaSuccess) {
        mem_free(d->account, memory);
        return error == cudaErrorMemoryAllocation ? fail_device_memory(c, kind, bytes, what)
                                                  : cuda_check(error, what);
    }
    cuda_block *b = memory;
    *b = (cuda_block){.data = data, .bytes = bytes, .kind = kind};
    keep_block(c, b);
    *out = data;
    return cuda_check(cudaMemsetAsync(data, 0, size, c->stream), what);
}

static void release(device *d, void *data) {
    cuda_device *c = cuda_device_of(d);
    cuda_block *b = take_block(c, data);
    if (!b) return;
    cudaSetDevice(c->index);
    if (b->mapped) {
        cudaStreamSynchronize(c->stream);
        cudaFreeHost(data);
    } else {
        cudaFreeAsync(data, c->stream);
    }
    mem_free(d->account, b);
}

/* ---- pinned host memory; the account does not count it ---- */

static ott_status take_pinned(const cuda_device *c, unsigned flags, mem_kind kind, int64_t bytes,
                              const char *what, void **out) {
    void *data = NULL;
    TRY(make_current(c));
    cudaError_t error = cudaHostAlloc(&data, bytes > 0 ? (size_t)bytes : 1, flags);
    if (error == cudaErrorMemoryAllocation) {
        char needed[SIZE_TEXT];
        cudaGetLastError();
        return status_fail(
            OTT_ERR_MEMORY,
            "out of pinned memory: %s (%s) needs %s of page-locked host memory; raise its limit "
            "(ulimit -l) or free memory",
            what, mem_kind_name(kind), size_text(bytes, needed));
    }
    TRY(cuda_check(error, what));
    memset(data, 0, (size_t)bytes);
    return *out = data, OTT_OK;
}

static ott_status allocate_host(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    return take_pinned(cuda_device_of(d), cudaHostAllocDefault, kind, bytes, what, out);
}

static ott_status allocate_mapped(device *d, mem_kind kind, int64_t bytes, const char *what, void **out) {
    cuda_device *c = cuda_device_of(d);
    cuda_block *b;
    TRY(mem_alloc(d->account, MEM_OTHER, sizeof(cuda_block), what, &b));
    ott_status status = take_pinned(c, cudaHostAllocMapped | cudaHostAllocPortable, kind, bytes, what, out);
    if (status != OTT_OK) return mem_free(d->account, b), status;
    *b = (cuda_block){.data = *out, .bytes = bytes, .kind = kind, .mapped = true};
    keep_block(c, b);
    return OTT_OK;
}

static bool is_mapped(cuda_device *c, const char *address) {
    pthread_mutex_lock(&c->lock);
    const cuda_block *b = c->blocks;
    while (b && !(b->mapped && address >= (char *)b->data && address < (char *)b->data + b->bytes))
        b = b->next;
    pthread_mutex_unlock(&c->lock);
    return b;
}

static void release_host(device *d, void *data) {
    cudaSetDevice(cuda_device_of(d)->index);
    cudaFreeHost(data);
}

/* ---- copies: the runtime knows from the address whether memory is on the host or the device ---- */

static ott_status queue_copy(const device *d, void *to, const void *from, int64_t bytes, const char *what) {
    const cuda_device *c = cuda_device_of(d);
    TRY(make_current(c));
    return cuda_check(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, c->stream), what);
}

static ott_status synchronize(device *d) {
    const cuda_device *c = cuda_device_of(d);
    TRY(make_current(c));
    TRY(cuda_check(cudaStreamSynchronize(c->stream), "waiting for the GPU"));
    return nccl_watchdog_check(c);
}

/* Returns after the copy is done, so the caller may then change the memory at `from`. */
static ott_status copy_in(device *d, void *to, const void *from, int64_t bytes) {
    TRY(queue_copy(d, to, from, bytes, "a copy to the GPU"));
    return synchronize(d);
}

static ott_status copy_in_async(device *d, void *to, const void *staging, int64_t bytes) {
    return queue_copy(d, to, staging, bytes, "a copy to the GPU");
}

static ott_status copy_out(device *d, void *to, const void *from, int64_t bytes) {
    TRY(queue_copy(d, to, from, bytes, "a copy from the GPU"));
    return synchronize(d);
}

static ott_status copy(device *d, void *to, const void *from, int64_t bytes) {
    return queue_copy(d, to, from, bytes, "a copy within the GPU");
}

static ott_status copy_many(device *d, const device_piece *pieces, int64_t count) {
    const cuda_device *c = cuda_device_of(d);
    TRY(make_current(c));
    return cuda_check(copy_launch(pieces, count, c->stream), "copies within the GPU");
}

static ott_status zero(device *d, void *data, int64_t bytes) {
    const cuda_device *c = cuda_device_of(d);
    TRY(make_current(c));
    return cuda_check(cudaMemsetAsync(data, 0, (size_t)bytes, c->stream), "clearing memory of the GPU");
}

/* ---- events ---- */

struct device_event {
    cudaEvent_t event;
};

static ott_status event_open(device *d, device_event **out) {
    device_event *e;
    TRY(make_current(cuda_device_of(d)));
    TRY(mem_alloc(d->account, MEM_OTHER, sizeof(device_event), "an event", &e));
    ott_status status = cuda_check(cudaEventCreate(&e->event), "an event");
    if (status == OTT_OK)
        *out = e;
    else
        mem_free(d->account, e);
    return status;
}

static void event_close(device *d, device_event *e) {
    cudaEventDestroy(e->event);
    mem_free(d->account, e);
}

static ott_status event_record(device *d, device_event *e) {
    const cuda_device *c = cuda_device_of(d);
    TRY(make_current(c));
    return cuda_check(cudaEventRecord(e->event, c->stream), "an event");
}

static ott_status event_wait(device *d, device_event *e) {
    TRY(cuda_check(cudaEventSynchronize(e->event), "waiting for the GPU"));
    return nccl_watchdog_check(cuda_device_of(d));
}

static ott_status event_seconds(device *d, device_event *from, device_event *to, double *out) {
    float milliseconds = 0;
    TRY(event_wait(d, from));
    TRY(event_wait(d, to));
    TRY(cuda_check(cudaEventElapsedTime(&milliseconds, from->event, to->event), "the time between events"));
    return *out = 1e-3 * (double)milliseconds, OTT_OK;
}

/* ---- the device ---- */

static double peak(device *d, ott_dtype format) {
    return gpu_peak(cuda_device_of(d)->properties.name, format);
}

/* True if the memory is on this GPU, even if another library has allocated the memory. */
static bool holds(device *d, const void *data, int64_t bytes) {
    cuda_device *c = cuda_device_of(d);
    const char *ends[] = {data, (const char *)data + (bytes > 0 ? bytes - 1 : 0)};
    struct cudaPointerAttributes found;
    for (int i = 0; i < 2; i++) {
        if (is_mapped(c, ends[i])) continue;
        if (make_current(c) != OTT_OK || cudaPointerGetAttributes(&found, ends[i]) != cudaSuccess)
            return cudaGetLastError(), false;
        bool is_there = found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged;
        if (!is_there || found.device != c->index) return false;
    }
    return true;
}

/* `place` is the GPU's UUID in NVIDIA's notation. */
static ott_status describe(device *d, device_card *out) {
    const cuda_device *c = cuda_device_of(d);
    const nccl_calls *calls;
    int version = 0, length = snprintf(out->place, sizeof out->place, "GPU");
    TRY(nccl_library(&calls));
    calls->version(&version);
    snprintf(out->name, sizeof out->name, "%s", c->name);
    snprintf(out->libraries, sizeof out->libraries, "%s, NCCL %d.%d.%d", c->libraries, version / 10000,
             version / 100 % 100, version % 100);
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += snprintf(out->place + length, sizeof out->place - (size_t)length, "%s%02x", dash,
                           (unsigned char)c->properties.uuid.bytes[i]);
    }
    return OTT_OK;
}

static void close_device(device *d) {
    cuda_device *c = cuda_device_of(d);
    cudaSetDevice(c->index);
    nccl_watchdog_close(c);
    while (c->blocks) release(d, c->blocks->data);
    if (c->stream) {
        cudaStreamSynchronize(c->stream);
        products_close(c);
        attention_plans_close(c);
        cudaStreamDestroy(c->stream);
        cudaMemPoolTrimTo(c->pool, 0); /* gives the pool's unused memory back to the GPU */
    }
    pthread_mutex_destroy(&c->lock);
    mem_free(d->account, c);
}

static const device_table table = {
    .allocate = allocate,
    .release = release,
    .allocate_mapped = allocate_mapped,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .copy_in = copy_in,
    .copy_in_async = copy_in_async,
    .copy_out = copy_out,
    .copy = copy,
    .copy_many = copy_many,
    .zero = zero,
    .synchronize = synchronize,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_seconds = event_seconds,
    .taken = taken,
    .read_memory = read_memory,
    .peak = peak,
    .holds = holds,
    .capture_begin = graph_capture_begin,
    .capture_end = graph_capture_end,
    .graph_run = graph_run,
    .graph_close = graph_close,
    .describe = describe,
    .make_link = nccl_make_link,
    .open_group = nccl_open_group,
    .close = close_device,
};

ott_status cuda_count(int *out) {
    *out = 0; /* cudaGetDeviceCount does not set *out on failure */
    cudaError_t error = cudaGetDeviceCount(out);
    if (error == cudaSuccess && *out > 0) return OTT_OK;
    return status_fail(
        OTT_ERR_DEVICE,
        "cuda: no GPU can be used: %s; `ottava doctor` shows what is missing, and \"cpu\" computes on the "
        "CPU",
        cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error));
}

static ott_status find_gpu(int index) {
    int count;
    TRY(cuda_count(&count));
    if (index < count) return OTT_OK;
    return status_fail(OTT_ERR_DEVICE, "cuda:%d: there %s %d GPU%s here, counted from 0", index,
                       count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
}

/* Keeps freed memory in the pool until the device is closed: returning it to the system would synchronize. */
static ott_status keep_pool(cuda_device *c) {
    uint64_t threshold = UINT64_MAX;
    TRY(cuda_check(cudaDeviceGetDefaultMemPool(&c->pool, c->index), "the GPU's memory pool"));
    return cuda_check(cudaMemPoolSetAttribute(c->pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                      "the GPU's memory pool");
}

/* Fails if the plugin was not built for this compute capability. */
static ott_status check_code(const cuda_device *c) {
    cudaError_t error = kernels_find();
    if (error == cudaSuccess) return OTT_OK;
    cudaGetLastError();
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s: this CUDA backend has no code for compute capability %d.%d (%s): build it with "
                       "cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=%d%d && cmake --build --preset cuda",
                       c->name, c->properties.major, c->properties.minor, cudaGetErrorString(error),
                       c->properties.major, c->properties.minor);
}

/* The runtime encodes version 13.1 as 13010, cuBLASLt as 130100. */
static void describe_libraries(cuda_device *c) {
    int driver = 0, runtime = 0, products = (int)cublasLtGetVersion();
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(c->libraries, sizeof c->libraries, "CUDA %d.%d, cuBLASLt %d.%d.%d", runtime / 1000,
             runtime % 1000 / 10, products / 10000, products % 10000 / 100, products % 100);
    snprintf(c->about, sizeof c->about, "%s, driver for CUDA %d.%d, %s", c->name, driver / 1000,
             driver % 1000 / 10, c->libraries);
}

static ott_status fill_device(cuda_device *c, int index, bool emulates) {
    c->index = index;
    TRY(cuda_check(cudaGetDeviceProperties(&c->properties, index), "the GPU's properties"));
    snprintf(c->name, sizeof c->name, "cuda:%d %s", index, c->properties.name);
    gpu_fill_capabilities(10 * c->properties.major + c->properties.minor, c->name, emulates, &c->can);
    describe_libraries(c);
    TRY(make_current(c));
    TRY(check_code(c));
    TRY(keep_pool(c));
    return cuda_check(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "a stream");
}

/* Reads an environment variable. *own: true if it is "own": Ottava's kernels replace cuBLASLt or cuDNN. */
static ott_status read_own(const char *variable, const char *library, bool *own) {
    const char *who = getenv(variable);
    *own = who && strcmp(who, "own") == 0;
    if (!who || !*who || *own) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s=%s: give own, or leave it unset for %s", variable, who, library);
}

ott_status cuda_open(mem *account, int index, bool emulates, device **out) {
    cuda_device *c;
    *out = NULL;
    TRY(find_gpu(index));
    TRY(mem_alloc(account, MEM_OTHER, sizeof(cuda_device), "the CUDA device", &c));
    c->base =
        (device){.table = &table, .ops = &cuda_ops, .can = &c->can, .account = account, .name = c->about};
    pthread_mutex_init(&c->lock, NULL);
    ott_status status = read_own("OTTAVA_CUDA_GEMM", "cuBLASLt", &c->own_products);
    if (status == OTT_OK) status = read_own("OTTAVA_CUDA_ATTENTION", "cuDNN", &c->own_attention);
    if (status == OTT_OK) status = fill_device(c, index, emulates);
    if (status != OTT_OK) return close_device(&c->base), status;
    return *out = &c->base, OTT_OK;
}
