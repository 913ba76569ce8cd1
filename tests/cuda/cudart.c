/*
 * tests/cuda/cudart: a CPU stand-in for the CUDA runtime functions that Ottava uses. Device memory is host
 * memory: an allocation is filled with 0xFF and has a guard on each side. Freeing memory with an overwritten
 * guard aborts the program. A stream is a queue whose work runs only when a thread waits for it. Copies
 * behave as in CUDA: a copy from pageable memory reads the bytes immediately, a copy to it waits, copies of
 * pinned memory are queued, and a copy within host memory is waited for. A copy call states whether source
 * and destination are in host or GPU memory, or lets the runtime find out. Kernels can access their GPU's
 * memory and mapped host memory. Library products and collectives can access only GPU memory. An event stores
 * the time at which its stream reached it.
 *
 * CUDART_DEVICES gives the number of GPUs (cudart.h). The current GPU is a property of the thread. Another
 * GPU's memory is not device memory, and another GPU's stream accepts no work. One lock is held while a job
 * runs, so only one job runs at a time, even with several GPUs. A job may release the lock while it waits for
 * another GPU (cudart_wait).
 *
 * The thread sanitizer sees each stream as a thread that only events and waits order with other threads
 * (sanitize.h). The address sanitizer forbids accesses to the guards.
 */
#include "cudart.h"
#include "sanitize.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

static _Thread_local int device;

/* ---- the lock ---- */

/* If the thread sanitizer saw the emulator's lock, the lock would order a GPU's streams and so hide races. So
   it is a C11 lock, which the sanitizer does not see. */
static mtx_t lock;
static cnd_t changed;
static _Thread_local int depth; /* how often this thread holds the lock */

__attribute__((constructor)) static void make_lock(void) {
    mtx_init(&lock, mtx_plain);
    cnd_init(&changed);
}

void cudart_lock(void) {
    if (depth++ == 0) mtx_lock(&lock);
}

void cudart_unlock(void) {
    if (--depth == 0) mtx_unlock(&lock);
}

void cudart_wait(void) {
    int before = depth;
    depth = 0;
    cnd_wait(&changed, &lock);
    depth = before;
}

int cudart_leave(void) {
    int before = depth;
    depth = 0;
    mtx_unlock(&lock);
    return before;
}

void cudart_return(int before) {
    mtx_lock(&lock);
    depth = before;
}

void cudart_notify(void) {
    cnd_broadcast(&changed);
}

/* ---- memory ---- */

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

/* An allocation in memory: [guard][data][guard]. */
typedef struct block {
    unsigned char *data;
    size_t bytes;
    bool pinned; /* pinned host memory */
    bool mapped; /* pinned host memory that kernels can access */
    int device;  /* the GPU of device memory */
    bool pooled; /* device memory that was allocated from the GPU's pool */
    struct block *next;
} block;

static block *blocks;

/* A GPU's pool: bytes reserved from the GPU, and bytes in use. */
static struct CUmemPoolHandle_st { uint64_t reserved, used; } pools[CUDART_DEVICES_MAX];

int64_t cudart_launches, cudart_waits;

static void die(const char *message, size_t bytes) {
    fprintf(stderr, "CUDA stand-in: %s (%zu bytes)\n", message, bytes);
    abort();
}

static void *need_memory(void *p) {
    if (!p) die("out of memory", 0);
    return p;
}

static const block *block_around(const void *address) {
    for (const block *b = blocks; b; b = b->next)
        if ((const unsigned char *)address >= b->data && (const unsigned char *)address < b->data + b->bytes)
            return b;
    return NULL;
}

static bool holds(const void *data, size_t bytes, bool pinned) {
    const block *b = block_around(data);
    return b && b->pinned == pinned && (pinned || b->device == device) &&
           (size_t)((const unsigned char *)data - b->data) + bytes <= b->bytes;
}

void cudart_require_device(const char *what, const void *data, size_t bytes) {
    cudart_lock();
    if (bytes && !holds(data, bytes, false)) die(what, bytes);
    cudart_unlock();
}

void cudart_require_memory(const char *kernel, const void *address) {
    cudart_lock();
    const block *b = blocks;
    while (b &&
           ((const unsigned char *)address < b->data || (const unsigned char *)address > b->data + b->bytes))
        b = b->next;
    bool reached = b && (!b->pinned || b->mapped);
    cudart_unlock();
    if (!address || reached) return;
    fprintf(stderr, "emulated kernel %s: is given %p, which is not memory of the GPU\n", kernel, address);
    abort();
}

static cudaError_t allocate(void **data, size_t bytes, bool pinned, bool mapped) {
    size_t rounded = (bytes + 2 * GUARD + GUARD - 1) / GUARD * GUARD;
    unsigned char *start = bytes < SIZE_MAX / 2 ? aligned_alloc(GUARD, rounded) : NULL;
    if (!start) return cudaErrorMemoryAllocation;
    memset(start, GUARD_BYTE, rounded);
    memset(start + GUARD, pinned ? 0 : 0xFF, bytes);
    memory_forbid(start, GUARD);
    memory_forbid(start + GUARD + bytes, rounded - GUARD - bytes);
    block *b = need_memory(malloc(sizeof *b));
    cudart_lock();
    *b = (block){start + GUARD, bytes, pinned, mapped, device, false, blocks};
    blocks = b;
    cudart_unlock();
    *data = b->data;
    return cudaSuccess;
}

static block *take_block(void *data, bool pinned) {
    for (block **at = &blocks; *at; at = &(*at)->next)
        if ((*at)->data == data && (*at)->pinned == pinned) {
            block *b = *at;
            *at = b->next;
            return b;
        }
    return NULL;
}

/* Fills freed memory with 0xFF, so that late reads see NaN. */
static void free_block(block *b) {
    memory_allow(b->data - GUARD, b->bytes + 2 * GUARD);
    for (size_t i = 0; i < GUARD; i++)
        if (b->data[-1 - (ptrdiff_t)i] != GUARD_BYTE || b->data[b->bytes + i] != GUARD_BYTE)
            die("a write outside of an allocation", b->bytes);
    memset(b->data, 0xFF, b->bytes);
    free(b->data - GUARD);
    free(b);
}

static void run_all_streams(void);

static cudaError_t release(void *data, bool pinned) {
    if (!data) return cudaSuccess;
    cudart_lock();
    run_all_streams();
    block *b = take_block(data, pinned);
    cudart_unlock();
    if (!b) return cudaErrorInvalidValue;
    free_block(b);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **data, size_t bytes) {
    return allocate(data, bytes, false, false);
}

cudaError_t cudaFree(void *data) {
    return release(data, false);
}

cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned flags) {
    return allocate(data, bytes, true, flags & cudaHostAllocMapped);
}

cudaError_t cudaFreeHost(void *data) {
    return release(data, true);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
    *total = (size_t)16 << 30;
    *left = *total;
    cudart_lock();
    *left -= pools[device].reserved;
    for (const block *b = blocks; b; b = b->next)
        if (!b->pinned && !b->pooled && b->device == device) *left -= b->bytes;
    cudart_unlock();
    return cudaSuccess;
}

/* ---- the device ---- */

static int number_of(const char *variable, int otherwise) {
    const char *value = getenv(variable);
    return value && *value ? atoi(value) : otherwise;
}

int cudart_capability(void) {
    return number_of(CUDART_CAPABILITY, 90);
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = number_of(CUDART_DEVICES, 1);
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

static cudaError_t check_device(int index) {
    return index >= 0 && index < number_of(CUDART_DEVICES, 1) ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaSetDevice(int index) {
    if (check_device(index) != cudaSuccess) return cudaErrorInvalidDevice;
    device = index;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *index) {
    *index = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int index) {
    int capability = cudart_capability();
    *properties = (struct cudaDeviceProp){
        .major = capability / 10, .minor = capability % 10, .l2CacheSize = 1 << 16, .multiProcessorCount = 2};
    strcpy(properties->name, "CPU shim");
    properties->uuid.bytes[0] = (char)(1 + index);
    return check_device(index);
}

/* Reports that kernels exist for all compute capabilities except the oldest. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *kernel) {
    (void)kernel;
    *found = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024};
    return cudart_capability() < 80 ? cudaErrorNoKernelImageForDevice : cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *address) {
    *found = (struct cudaPointerAttributes){.type = holds(address, 1, false) ? cudaMemoryTypeDevice
                                                                             : cudaMemoryTypeUnregistered,
                                            .device = device};
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = number_of(CUDART_DRIVER, CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t status) {
    return status == cudaSuccess                       ? "no error"
           : status == cudaErrorMemoryAllocation       ? "out of memory"
           : status == cudaErrorNoKernelImageForDevice ? "no kernel image is available"
                                                       : "error";
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

/* ---- streams ---- */

typedef struct job {
    void (*run)(void *argument);
    void *argument;
    void (*drop)(void *argument);
    struct job *next;
} job;

/* A graph: the work that a stream capture recorded. */
struct CUgraph_st {
    job *first, **last;
    bool broken; /* a call was made that cannot be captured */
};

struct CUstream_st {
    job *first, **last;
    struct CUgraph_st *capture; /* NULL: no capture */
    uint64_t queued, done;      /* number of queued jobs; number of finished jobs */
    int device;
    bool runs;  /* a job is running */
    int waited; /* number of threads that wait for the stream */
    pthread_t runner;
    actor *seen;
    struct CUstream_st *next;
};

static struct CUstream_st default_streams[CUDART_DEVICES_MAX];
static struct CUstream_st *streams;

static struct CUstream_st *stream_of(cudaStream_t stream) {
    if (stream) return stream;
    struct CUstream_st *s = &default_streams[device];
    if (!s->last) s->last = &s->first;
    s->device = device;
    return s;
}

int64_t cudart_queued;

uint64_t cudart_queue(cudaStream_t stream, void (*run)(void *), void *argument, void (*drop)(void *)) {
    struct CUstream_st *s = stream_of(stream);
    job *j = need_memory(malloc(sizeof *j));
    *j = (job){run, argument, drop, NULL};
    if (s->device != device)
        die("work is queued on a stream of a GPU that is not the thread's current GPU", 0);
    order_release(j);
    cudart_lock();
    job ***last = s->capture ? &s->capture->last : &s->last;
    **last = j;
    *last = &j->next;
    if (!s->capture) s->queued++, cudart_queued++;
    uint64_t number = s->queued;
    cudart_notify();
    cudart_unlock();
    return number;
}

static void drop_job(job *j) {
    if (j->drop) j->drop(j->argument);
    free(j);
}

/* True if the stream is being captured. CUDA refuses the call then, so the capture is marked as failed. */
static bool breaks_capture(cudaStream_t stream) {
    struct CUgraph_st *g = stream_of(stream)->capture;
    if (g) g->broken = true;
    return g;
}

/* Runs the stream's first job as the stream's actor (sanitize.h). The job may release the caller's lock. */
static void run_job(struct CUstream_st *s) {
    job *j = s->first;
    s->first = j->next;
    if (!s->first) s->last = &s->first;
    s->runs = true;
    s->runner = pthread_self();
    actor *waiting = actor_now();
    if (!s->seen) s->seen = actor_new();
    actor_become(s->seen);
    order_acquire(j);
    j->run(j->argument);
    s->runs = false;
    s->done++;
    drop_job(j);
    order_release(s);
    actor_become(waiting);
    cudart_notify();
}

void cudart_run(cudaStream_t stream, uint64_t done) {
    cudart_lock();
    stream->waited++;
    while (stream->done < done) {
        if (!stream->runs)
            run_job(stream);
        else if (pthread_equal(stream->runner, pthread_self()))
            die("a stream waits for work that is queued after the wait", 0);
        else
            cudart_wait();
    }
    if (--stream->waited == 0) cudart_notify();
    cudart_unlock();
}

/* Runs all jobs of the stream. Informs the sanitizer that the calling thread waits for these jobs. */
static void run_stream(struct CUstream_st *s) {
    cudart_run(s, s->queued);
    order_acquire(s);
}

static void run_all_streams(void) {
    struct CUstream_st *first = stream_of(NULL);
    run_stream(first);
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s->device == device) run_stream(s);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    struct CUstream_st *s = need_memory(calloc(1, sizeof *s));
    s->last = &s->first;
    s->device = device;
    cudart_lock();
    s->seen = actor_new();
    s->next = streams;
    streams = s;
    cudart_unlock();
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    cudart_lock();
    run_stream(stream);
    while (stream->waited > 0) cudart_wait();
    struct CUstream_st **at = &streams;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    cudart_unlock();
    if (stream->seen) actor_end(stream->seen);
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    cudart_waits++;
    run_stream(stream_of(stream));
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    cudart_waits++;
    cudart_lock();
    run_all_streams();
    cudart_unlock();
    return cudaSuccess;
}

/* ---- stream-ordered memory ---- */

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int index) {
    cudaError_t error = check_device(index);
    if (error == cudaSuccess) *pool = &pools[index];
    return error;
}

/* Accepts only the release threshold UINT64_MAX, with which the pool keeps all freed memory. */
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    (void)pool;
    bool keeps = attribute == cudaMemPoolAttrReleaseThreshold && *(const uint64_t *)value == UINT64_MAX;
    return keeps ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    cudart_lock();
    *(uint64_t *)value = attribute == cudaMemPoolAttrReservedMemCurrent ? pool->reserved : pool->used;
    cudart_unlock();
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t least) {
    cudart_lock();
    pool->reserved = pool->used > least ? pool->used : least;
    cudart_unlock();
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **data, size_t bytes, cudaStream_t stream) {
    if (breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    cudaError_t error = cudaMalloc(data, bytes);
    if (error != cudaSuccess) return error;
    cudart_lock();
    struct CUmemPoolHandle_st *pool = &pools[device];
    block *b = blocks;
    while (b->data != *data) b = b->next;
    b->pooled = true;
    pool->used += bytes;
    if (pool->reserved < pool->used) pool->reserved = pool->used;
    cudart_unlock();
    return cudaSuccess;
}

static void run_free(void *data) {
    block *b = take_block(data, false);
    if (!b || !b->pooled) die("cudaFreeAsync of memory that is not from a pool", 0);
    pools[b->device].used -= b->bytes;
    free_block(b);
}

cudaError_t cudaFreeAsync(void *data, cudaStream_t stream) {
    if (breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    if (data) cudart_queue(stream, run_free, data, NULL);
    return cudaSuccess;
}

/* ---- copies ---- */

typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t to_pitch, from_pitch, width, height;
    int value; /* the byte that a memset writes */
    unsigned char taken[];
} copy;

static void run_copy(void *argument) {
    copy *c = argument;
    for (size_t row = 0; row < c->height; row++)
        memmove(c->to + row * c->to_pitch, c->from + row * c->from_pitch, c->width);
}

static void run_set(void *argument) {
    copy *c = argument;
    memset(c->to, c->value, c->width);
}

static size_t spread(size_t pitch, const copy *c) {
    return c->width && c->height ? (c->height - 1) * pitch + c->width : 0;
}

/* The kind of copy, found from the memory of both sides. */
static enum cudaMemcpyKind kind_of(const copy *c) {
    bool to_host = !holds(c->to, 1, false), from_host = !holds(c->from, 1, false);
    if (to_host) return from_host ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost;
    return from_host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
}

/* True if all bytes are in host memory (`host`), or on the GPU (not `host`). Memory that was not allocated
   here is pageable host memory, whatever its size. */
static bool side_fits(const void *data, size_t bytes, bool host) {
    return (host && !block_around(data)) || holds(data, bytes, host);
}

/* Makes a copy job that already holds the source's bytes, as CUDA does for pageable memory. */
static copy *take_source(const copy *c) {
    copy *later = need_memory(malloc(sizeof *later + c->width * c->height));
    *later = *c;
    for (size_t row = 0; row < c->height; row++)
        memcpy(later->taken + row * c->width, c->from + row * c->from_pitch, c->width);
    later->from = later->taken;
    later->from_pitch = c->width;
    return later;
}

static cudaError_t copy_rows(const copy *c, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (c->width == 0 || c->height == 0) return cudaSuccess;
    cudart_lock();
    if (kind == cudaMemcpyDefault) kind = kind_of(c);
    bool within = kind == cudaMemcpyHostToHost;
    bool from_host = within || kind == cudaMemcpyHostToDevice,
         to_host = within || kind == cudaMemcpyDeviceToHost;
    bool fits = side_fits(c->to, spread(c->to_pitch, c), to_host) &&
                side_fits(c->from, spread(c->from_pitch, c), from_host);
    bool pageable_from = from_host && !block_around(c->from), pageable_to = to_host && !block_around(c->to);
    cudart_unlock();
    if (!fits) return cudaErrorInvalidValue;
    bool waits = pageable_to || within;
    if ((pageable_from || waits) && breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    copy *later = need_memory(malloc(sizeof *later));
    *later = *c;
    if (pageable_from) {
        free(later);
        later = take_source(c);
    }
    cudart_queue(stream, run_copy, later, free);
    return waits ? cudaStreamSynchronize(stream) : cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return copy_rows(&(copy){.to = to, .from = from, .width = bytes, .height = 1}, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    return copy_rows(&(copy){.to = to,
                             .from = from,
                             .to_pitch = to_pitch,
                             .from_pitch = from_pitch,
                             .width = width,
                             .height = height},
                     kind, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    cudart_lock();
    const block *b = block_around(to);
    if (!holds(to, bytes, b && b->mapped)) die("memset outside of device memory", bytes);
    cudart_unlock();
    copy *later = need_memory(malloc(sizeof *later));
    *later = (copy){.to = to, .width = bytes, .value = value};
    cudart_queue(stream, run_set, later, free);
    return cudaSuccess;
}

/* ---- events ---- */

struct CUevent_st {
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t number;            /* number of the event's job within the stream */
    struct timespec at;
};

/* Stores the time at which the stream reached the event. */
static void run_record(void *argument) {
    clock_gettime(CLOCK_MONOTONIC, &((struct CUevent_st *)argument)->at);
    order_release(argument);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = need_memory(calloc(1, sizeof **event));
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    return cudaEventCreate(event);
}

static void run_until_event(struct CUevent_st *event) {
    if (event->stream) cudart_run(event->stream, event->number);
    order_acquire(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    run_until_event(event);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    cudart_lock();
    event->number = cudart_queue(stream, run_record, event, NULL);
    event->stream = stream_of(stream);
    if (event->stream->done + 1 == event->number && !event->stream->runs)
        run_until_event(event); /* no other job of the stream is unfinished */
    cudart_unlock();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudart_waits += event->stream && event->stream->done < event->number;
    run_until_event(event);
    return cudaSuccess;
}

/* The argument of a job that makes its stream wait until another stream has finished `number` jobs. */
typedef struct stream_wait {
    struct CUstream_st *stream;
    uint64_t number;
    cudaEvent_t event;
} stream_wait;

static void run_wait(void *argument) {
    stream_wait *w = argument;
    cudart_run(w->stream, w->number);
    order_acquire(w->event);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    if (breaks_capture(stream)) return cudaErrorStreamCaptureUnsupported;
    if (!event->stream) return cudaSuccess;
    stream_wait *w = need_memory(malloc(sizeof *w));
    *w = (stream_wait){event->stream, event->number, event};
    cudart_queue(stream, run_wait, w, free);
    return cudaSuccess;
}

static bool has_happened(const struct CUevent_st *e) {
    return e->stream && e->stream->done >= e->number;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    cudart_lock();
    bool happened = !event->stream || has_happened(event);
    cudart_unlock();
    if (happened) order_acquire(event);
    return happened ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from->stream || !to->stream) return cudaErrorInvalidResourceHandle;
    if (!has_happened(from) || !has_happened(to)) return cudaErrorNotReady;
    const struct timespec *a = &from->at, *b = &to->at;
    *ms = (float)(1e3 * (double)(b->tv_sec - a->tv_sec) + 1e-6 * (double)(b->tv_nsec - a->tv_nsec));
    return cudaSuccess;
}

/* ---- graphs: jobs queued during stream capture, in order ---- */

struct CUgraphExec_st {
    job *first;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    (void)mode;
    if (breaks_capture(stream)) return cudaErrorIllegalState;
    struct CUgraph_st *g = need_memory(calloc(1, sizeof *g));
    g->last = &g->first;
    stream_of(stream)->capture = g;
    return cudaSuccess;
}

static void drop_jobs(job *first) {
    while (first) {
        job *next = first->next;
        drop_job(first);
        first = next;
    }
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    struct CUgraph_st *g = stream_of(stream)->capture;
    *graph = NULL;
    if (!g) return cudaErrorIllegalState;
    stream_of(stream)->capture = NULL;
    if (!g->broken) {
        *graph = g;
        return cudaSuccess;
    }
    drop_jobs(g->first);
    free(g);
    return cudaErrorStreamCaptureInvalidated;
}

/* Instantiates a graph. It takes the jobs out of the graph, so a graph can be instantiated only once. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ready, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    *ready = need_memory(calloc(1, sizeof **ready));
    (*ready)->first = graph->first;
    graph->first = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    drop_jobs(graph->first);
    free(graph);
    return cudaSuccess;
}

static void run_graph(void *argument) {
    for (job *j = ((struct CUgraphExec_st *)argument)->first; j; j = j->next) j->run(j->argument);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
    cudart_queue(stream, run_graph, ready, NULL);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
    cudaDeviceSynchronize();
    drop_jobs(ready->first);
    free(ready);
    return cudaSuccess;
}
