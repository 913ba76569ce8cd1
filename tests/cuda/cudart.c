/*
 * tests/cuda/cudart: the calls of the CUDA runtime that our programs make, on the CPU: device memory is host
 * memory, everything runs at once, events hold the clock. An allocation is filled with 0xFF and stands
 * between two guards; a guard that was written over ends the program when the memory is freed.
 */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

typedef struct block {
    size_t bytes;
} block;

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device != 0) return cudaErrorInvalidDevice;
    *properties = (struct cudaDeviceProp){.major = 9, .l2CacheSize = 1 << 16, .multiProcessorCount = 2};
    strcpy(properties->name, "CPU shim");
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t status) {
    return status == cudaSuccess                 ? "no error"
           : status == cudaErrorMemoryAllocation ? "out of memory"
                                                 : "error";
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

/* [guard, its start holding the size][data][guard] */
cudaError_t cudaMalloc(void **data, size_t bytes) {
    size_t whole = (bytes + 2 * GUARD + GUARD - 1) / GUARD * GUARD;
    char *start = aligned_alloc(GUARD, whole);
    if (!start) return cudaErrorMemoryAllocation;
    memset(start, GUARD_BYTE, whole);
    ((block *)start)->bytes = bytes;
    memset(start + GUARD, 0xFF, bytes);
    *data = start + GUARD;
    return cudaSuccess;
}

cudaError_t cudaFree(void *data) {
    if (!data) return cudaSuccess;
    unsigned char *start = (unsigned char *)data - GUARD;
    size_t bytes = ((block *)(void *)start)->bytes;
    for (size_t i = sizeof(block); i < GUARD; i++) {
        if (start[i] == GUARD_BYTE && start[GUARD + bytes + i - sizeof(block)] == GUARD_BYTE) continue;
        fprintf(stderr, "device memory: written outside of an allocation of %zu bytes\n", bytes);
        abort();
    }
    free(start);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind, (void)stream;
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind, (void)stream;
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    for (size_t row = 0; row < height; row++)
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    *stream = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

/* An event is the time at which it was recorded. */
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    *event = calloc(1, sizeof(struct timespec));
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(void *)event);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    const struct timespec *a = (const void *)from, *b = (const void *)to;
    *ms = (float)(1e3 * (double)(b->tv_sec - a->tv_sec) + 1e-6 * (double)(b->tv_nsec - a->tv_nsec));
    return cudaSuccess;
}
