/*
 * tests/cuda/emulate: runs CUDA kernels on the CPU, for tests without a GPU. The unchanged kernel source is
 * compiled as C++. LAUNCH queues the grid on the stream (cudart.h), which runs it block by block when a
 * thread waits for it. Each thread of a block is a fiber.
 *
 * Supported: threadIdx and similar, SHARED, __syncthreads, __shfl_xor_sync of full warps, atomicMax,
 * atomicAdd, __ffs, and the arithmetic that Ottava's kernels use. To find mistakes, each block's shared
 * memory is filled with 0xFF, and threads run in another order after each barrier. The program aborts if some
 * threads miss a barrier, or if a launch or its shared memory exceeds a GPU's limits. With the thread
 * sanitizer (sanitize.h), each thread of a block is a sanitizer thread, and only barriers order them: neither
 * shuffles nor the order of blocks do.
 */
#ifndef EMULATE_H
#define EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <vector_types.h>
#include "cudart.h"
#include "sanitize.h"

#ifndef __x86_64__
#error "emulate.h switches between fibers by instructions of x86-64"
#endif

namespace emulate {

/* Pushes the callee-saved registers, stores the stack's top in *from, and continues on stack `to`. */
__attribute__((naked, noinline, unused)) static void switch_stack(void **, void *) {
    __asm__("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
            "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
            "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
constexpr int saved_registers = 6, frame_bytes = 512;

enum class waits { nothing, warp, block, done };

struct shuffled {
    uint64_t words[2];
};

struct fiber {
    void *stack; /* top of this fiber's stack while another fiber runs */
    waits state;
    /* values that this thread passed to its last two shuffles; others may still read the older one */
    shuffled slots[2];
    bool turn;   /* index of the slot for the next shuffle */
    actor *seen; /* the thread as the sanitizer sees it (sanitize.h) */
    bool fresh;
};

constexpr int warp_size = 32, stack_bytes = 64 << 10;
/* Limits of a launch. shared_limit: bytes of shared memory of a kernel without opt-in attributes. */
constexpr unsigned block_limit = 1024, grid_limit = 65535;
constexpr size_t shared_limit = 48 << 10;

/* The fibers of one block. The sanitizer regards blocks that use the same fibers as ordered, and would miss
   races between them. So neighboring blocks use different sets, and streams never share a set. */
struct fiber_set {
    fiber of[block_limit];
    char block_start, block_barrier; /* the members' addresses identify the barriers to the sanitizer */
    char *stacks;
};
struct stream_fibers {
    actor *stream;
    stream_fibers *next;
    fiber_set sets[sanitize_fiber_sets];
    char block_end;
};
inline stream_fibers *all_streams;
inline stream_fibers *works; /* stream of the running kernel */
inline fiber_set *set;       /* fibers of the running block */
inline fiber *fibers;

inline uint64_t launches;       /* number of the running launch */
inline uint64_t blocks;         /* number of the running block */
inline size_t shared_of_launch; /* bytes used by the running launch */

inline const std::function<void()> *body;
inline void *scheduler; /* stack top of the scheduler while a fiber runs */
inline int current, count;
inline uint3 thread_index, block_index;
inline dim3 block_size, grid_size;

UNSEEN inline void run(int i) {
    current = i;
    thread_index = {i % block_size.x, i / block_size.x % block_size.y, i / block_size.x / block_size.y};
    fibers[i].state = waits::nothing;
    actor_become(fibers[i].seen);
    if (fibers[i].fresh) order_acquire(&set->block_start);
    fibers[i].fresh = false;
    switch_stack(&scheduler, fibers[i].stack);
}

/* Waits at a barrier. The thread sanitizer then takes all that threads do before the barrier as ordered
   before all that they do after it. barrier NULL: the sanitizer takes the threads as not ordered. */
UNSEEN inline void wait(waits what, void *barrier) {
    int me = current;
    fibers[me].state = what;
    if (barrier) order_release(barrier);
    /* the sanitizer need not know of the scheduler, which kernels cannot observe */
    switch_stack(&fibers[me].stack, scheduler);
    if (barrier) order_acquire(barrier);
}

inline void enter() {
    (*body)();
    wait(waits::done, &works->block_end);
}

/* True if [from, to) has unfinished fibers, and all unfinished ones are in the state `what`. */
UNSEEN inline bool all_wait(int from, int to, waits what) {
    bool any = false;
    for (int i = from; i < to; i++) {
        if (fibers[i].state == waits::done) continue;
        if (fibers[i].state != what) return false;
        any = true;
    }
    return any;
}

UNSEEN inline void run_all(int from, int to, int round) {
    int n = to - from;
    for (int k = 0; k < n; k++) {
        int i = from + (round % 2 ? n - 1 - k : k);
        if (fibers[i].state != waits::done) run(i);
    }
}

/* If all threads of a warp, or of the block, wait at one barrier, lets them continue, else returns false. */
UNSEEN inline bool pass_a_barrier(int round) {
    bool passed = false;
    for (int from = 0; from < count; from += warp_size) {
        int to = from + warp_size < count ? from + warp_size : count;
        if (all_wait(from, to, waits::warp)) {
            run_all(from, to, round);
            passed = true;
        }
    }
    if (!passed && all_wait(0, count, waits::block)) {
        run_all(0, count, round);
        passed = true;
    }
    return passed;
}

/* Prepares fiber i's stack so that the first switch_stack to the fiber returns into `enter`. */
UNSEEN inline void make_fiber(int i) {
    /* bytes by which the stack is shifted, so that the stack tops do not share cache lines */
    int apart = i % 32 * 512;
    uintptr_t end = (uintptr_t)(set->stacks + (size_t)stack_bytes * (i + 1) - apart) & ~(uintptr_t)15;
    /* the stack's last fiber never returned from `enter`: the sanitizer may forbid these bytes */
    memory_allow((char *)end - frame_bytes, frame_bytes);
    void **top = (void **)end;
    *--top = nullptr; /* return address of enter, never used */
    *--top = (void *)enter;
    fibers[i].stack = top - saved_registers;
    fibers[i].state = waits::nothing;
    fibers[i].fresh = true;
    fibers[i].turn = false;
    if (!fibers[i].seen) fibers[i].seen = actor_new();
}

UNSEEN inline void take_set() {
    set = &works->sets[blocks++ % sanitize_fiber_sets];
    fibers = set->of;
    if (!set->stacks) set->stacks = (char *)malloc((size_t)stack_bytes * block_limit);
    if (!set->stacks) abort();
}

UNSEEN inline void run_block() {
    take_set();
    for (int i = 0; i < count; i++) make_fiber(i);
    order_release(&set->block_start);
    int round = 0;
    run_all(0, count, round++);
    while (pass_a_barrier(round)) round++;
    actor_become(works->stream);
    for (int i = 0; i < count; i++) {
        if (fibers[i].state == waits::done) continue;
        fprintf(stderr,
                "emulated kernel: thread %d of block (%u,%u,%u) waits at a barrier that other threads do not "
                "reach\n",
                i, block_index.x, block_index.y, block_index.z);
        abort();
    }
}

UNSEEN inline stream_fibers *fibers_of(actor *a) {
    stream_fibers *s = all_streams;
    while (s && s->stream != a) s = s->next;
    if (s) return s;
    s = (stream_fibers *)calloc(1, sizeof *s);
    if (!s) abort();
    s->stream = a;
    s->next = all_streams;
    return all_streams = s;
}

UNSEEN inline void run_grid(dim3 grid, dim3 block, const std::function<void()> &kernel) {
    grid_size = grid;
    block_size = block;
    count = block.x * block.y * block.z;
    works = fibers_of(actor_now());
    body = &kernel;
    launches++;
    shared_of_launch = 0;
    for (block_index.z = 0; block_index.z < grid.z; block_index.z++)
        for (block_index.y = 0; block_index.y < grid.y; block_index.y++)
            for (block_index.x = 0; block_index.x < grid.x; block_index.x++) run_block();
    order_acquire(&works->block_end);
}

struct grid_job {
    dim3 grid, block;
    std::function<void()> kernel;
};

UNSEEN inline void run_job(void *argument) {
    grid_job *job = (grid_job *)argument;
    run_grid(job->grid, job->block, job->kernel);
}

inline void drop_job(void *argument) {
    delete (grid_job *)argument;
}

inline void check_launch(const char *kernel, dim3 grid, dim3 block) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    bool fits = threads >= 1 && threads <= block_limit && block.z <= 64 && grid.x >= 1 &&
                grid.x <= INT32_MAX && grid.y >= 1 && grid.y <= grid_limit && grid.z >= 1 &&
                grid.z <= grid_limit;
    if (fits) return;
    fprintf(stderr, "emulated kernel %s: no GPU supports a grid of (%u,%u,%u) blocks of (%u,%u,%u) threads\n",
            kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z);
    abort();
}

/* Returns a kernel's argument if it is a pointer, or its data pointer if it is a matrix, else NULL. */
template <class T> const void *address_in(T *const &x, int) {
    return x;
}
template <class T> auto address_in(const T &x, int) -> decltype((const void *)x.data) {
    return x.data;
}
template <class T> const void *address_in(const T &, long) {
    return nullptr;
}

template <class... Arguments> void check_arguments(const char *kernel, const Arguments &...arguments) {
    (..., cudart_require_memory(kernel, address_in(arguments, 0)));
}

UNSEEN inline void count_launch() {
    cudart_lock(); /* the sanitizer does not see this lock */
    cudart_launches++;
    cudart_unlock();
}

inline void launch(const char *name, dim3 grid, dim3 block, cudaStream_t stream,
                   std::function<void()> kernel) {
    check_launch(name, grid, block);
    count_launch();
    cudart_queue(stream, run_job, new grid_job{grid, block, std::move(kernel)}, drop_job);
}

/* A warp shuffle: every lane passes `value` and receives the value of lane `from(lane)`. */
template <class T, class From> UNSEEN T shuffle(T value, From from) {
    static_assert(sizeof(T) <= sizeof(shuffled), "a shuffled value has at most 16 bytes");
    int lane = current % warp_size, first = current - lane;
    int turn = fibers[current].turn;
    fibers[current].turn = !turn;
    memcpy(&fibers[current].slots[turn], &value, sizeof value);
    wait(waits::warp, nullptr);
    T got;
    memcpy(&got, &fibers[first + from(lane)].slots[turn], sizeof got);
    return got;
}

/* Adds the `bytes` bytes of a shared variable to the launch's shared memory, once per launch. */
UNSEEN inline void count_shared(uint64_t &launch, size_t bytes) {
    if (launch == launches) return;
    launch = launches;
    shared_of_launch += (bytes + 127) / 128 * 128;
    if (shared_of_launch <= shared_limit) return;
    fprintf(stderr, "emulated kernel: %zu bytes of shared memory, and the limit is %zu\n", shared_of_launch,
            shared_limit);
    abort();
}

/* Returns the block's shared variable of type T. The type `Place` is unique to each SHARED. */
template <class Place, class T> UNSEEN T &shared() {
    static void *at;
    static uint64_t launch, block;
    count_shared(launch, sizeof(T));
    if (block != blocks) at = memory_renew(at, (sizeof(T) + 127) / 128 * 128, 0xFF);
    block = blocks;
    return *reinterpret_cast<T *>(at);
}

} // namespace emulate

#undef __global__
#undef __device__
#undef __launch_bounds__
#undef __forceinline__
#define __global__ static
#define __device__ static
#define SHARED(name, ...)                                                                                    \
    struct shared_##name;                                                                                    \
    auto &name = emulate::shared<shared_##name, __VA_ARGS__>()
#define __launch_bounds__(...)
#define GRID_CONSTANT(...) const __VA_ARGS__ & /* a reference, so that threads do not copy the argument */
#define __forceinline__    inline
#define threadIdx          emulate::thread_index
#define blockIdx           emulate::block_index
#define blockDim           emulate::block_size
#define gridDim            emulate::grid_size

/* As on a GPU, the arguments are evaluated at the launch, although the kernel runs later. */
#define LAUNCH(kernel, grid, block, stream, ...)                                                             \
    emulate::check_arguments(#kernel, __VA_ARGS__),                                                          \
        emulate::launch(#kernel, (grid), (block), (stream), [arguments = std::make_tuple(__VA_ARGS__)] {     \
            std::apply([](const auto &...argument) { kernel(argument...); }, arguments);                     \
        })

static inline void __syncthreads() {
    emulate::wait(emulate::waits::block, &emulate::set->block_barrier);
}

template <class T> static inline T __shfl_xor_sync(unsigned, T value, int mask) {
    return emulate::shuffle(value, [mask](int lane) { return lane ^ mask; });
}

static inline int atomicMax(int *p, int v) {
    int old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v > old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

static inline int atomicAdd(int *p, int v) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

/* Position of the lowest set bit, counted from 1; 0 if no bit is set. */
static inline int __ffs(int bits) {
    return __builtin_ffs(bits);
}

static inline int __float_as_int(float f) {
    int i;
    memcpy(&i, &f, 4);
    return i;
}
static inline float __int_as_float(int i) {
    float f;
    memcpy(&f, &i, 4);
    return f;
}
static inline unsigned __float_as_uint(float f) {
    return (unsigned)__float_as_int(f);
}
static inline float __uint_as_float(unsigned i) {
    return __int_as_float((int)i);
}
/* Selects four of the eight bytes of a (bytes 0 to 3) and b (bytes 4 to 7). Byte i of the result is byte
   number (selector >> 4 i) & 7. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) result |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}

#endif
