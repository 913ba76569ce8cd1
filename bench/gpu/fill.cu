/* bench/gpu/fill: implements fill.h. */
#include "fill.h"
#include "cuda/launch.h"

/* Returns 64 well-mixed bits for a counter: the finalizer of splitmix64 (Steele, Lea and Flood 2014). */
__device__ __forceinline__ uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Returns an approximately normal number with mean 0 and standard deviation 1: the sum of four uniform
   numbers in [0, 1), each minus 1/2, times sqrt(3). The variance of the sum is 4 / 12. */
__device__ __forceinline__ float normal(uint64_t random) {
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += ((float)(random >> 16 * i & 0xffff) + 0.5f) / 65536.0f - 0.5f;
    return sum * 1.7320508f;
}

__device__ __forceinline__ void store(float *p, float x) {
    *p = x;
}
__device__ __forceinline__ void store(__nv_bfloat16 *p, float x) {
    *p = __float2bfloat16(x);
}
__device__ __forceinline__ void store(__nv_fp8_e4m3 *p, float x) {
    *p = __nv_fp8_e4m3(x);
}
__device__ __forceinline__ void store(__nv_fp8_e5m2 *p, float x) {
    *p = __nv_fp8_e5m2(x);
}

static const unsigned block_threads = 256, grid_max = 4096;

static unsigned blocks(size_t count) {
    size_t n = (count + block_threads - 1) / block_threads;
    return n > grid_max ? grid_max : (unsigned)n;
}

template <class T> __global__ void normal_kernel(T *data, size_t count, float deviation, uint64_t seed) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        store(data + i, deviation * normal(mix(mix(seed) + i)));
}

__global__ void scales_kernel(float *data, size_t count, float low, float high, uint64_t seed) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        data[i] = exp2f(low + (high - low) * ((float)(mix(mix(seed) + i) >> 40) / 16777216.0f));
}

template <class T>
static void launch_normal(void *data, size_t count, float deviation, uint64_t seed, cudaStream_t stream) {
    LAUNCH(normal_kernel<T>, blocks(count), block_threads, stream, (T *)data, count, deviation, seed);
}

extern "C" cudaError_t fill_normal(void *data, ott_dtype format, size_t count, float deviation, uint64_t seed,
                                   cudaStream_t stream) {
    switch (format) {
    case OTT_F32: launch_normal<float>(data, count, deviation, seed, stream); break;
    case OTT_BF16: launch_normal<__nv_bfloat16>(data, count, deviation, seed, stream); break;
    case OTT_E4M3: launch_normal<__nv_fp8_e4m3>(data, count, deviation, seed, stream); break;
    case OTT_E5M2: launch_normal<__nv_fp8_e5m2>(data, count, deviation, seed, stream); break;
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

extern "C" cudaError_t fill_scales(float *data, size_t count, float low, float high, uint64_t seed,
                                   cudaStream_t stream) {
    if (count == 0) return cudaSuccess; /* CUDA refuses an empty grid */
    LAUNCH(scales_kernel, blocks(count), block_threads, stream, data, count, low, high, seed);
    return cudaGetLastError();
}
