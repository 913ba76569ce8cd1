/*
 * tests/cuda/sanitize: describes the emulated GPU to the sanitizers; does nothing without a sanitizer.
 *
 * Thread sanitizer: an actor is a thread as the sanitizer sees it: the host, a stream, or a thread of a
 * block. Switching actors does not order them. Only order_release and order_acquire of an address do, so
 * races are reported although the emulator runs everything sequentially. The sanitizer does not check the
 * emulator's code, which is marked UNSEEN.
 *
 * A build with the thread sanitizer defines SANITIZE_ORDER for all sources, also for uninstrumented sources.
 *
 * Address sanitizer, SANITIZE_MEMORY: accessing bytes after memory_forbid aborts the program.
 */
#ifndef SANITIZE_H
#define SANITIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct actor actor;

#ifdef SANITIZE_ORDER
#include <sanitizer/tsan_interface.h>
#ifdef __cplusplus
extern "C" {
#endif
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#ifdef __cplusplus
}
#endif

#define UNSEEN __attribute__((no_sanitize_thread, noinline, unused))
enum { sanitize_fiber_sets = 2 };

UNSEEN static actor *actor_new(void) {
    return (actor *)__tsan_create_fiber(0);
}
UNSEEN static actor *actor_now(void) {
    return (actor *)__tsan_get_current_fiber();
}
UNSEEN static void actor_become(actor *a) {
    __tsan_switch_to_fiber(a, __tsan_switch_to_fiber_no_sync);
}
static inline void actor_end(actor *a) {
    __tsan_destroy_fiber(a);
}
static inline void order_release(void *address) {
    __tsan_release(address);
}
static inline void order_acquire(void *address) {
    __tsan_acquire(address);
}
static inline void sanitize_pause(void) {
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
static inline void sanitize_resume(void) {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

#else
#define UNSEEN __attribute__((unused))
enum { sanitize_fiber_sets = 1 };

static inline actor *actor_new(void) {
    return NULL;
}
static inline actor *actor_now(void) {
    return NULL;
}
static inline void actor_become(actor *a) {
    (void)a;
}
static inline void actor_end(actor *a) {
    (void)a;
}
static inline void order_release(void *address) {
    (void)address;
}
static inline void order_acquire(void *address) {
    (void)address;
}
static inline void sanitize_pause(void) {}
static inline void sanitize_resume(void) {}
#endif

#ifdef SANITIZE_MEMORY
#include <sanitizer/asan_interface.h>
static inline void memory_forbid(const void *data, size_t bytes) {
    __asan_poison_memory_region(data, bytes);
}
static inline void memory_allow(const void *data, size_t bytes) {
    __asan_unpoison_memory_region(data, bytes);
}
#else
static inline void memory_forbid(const void *data, size_t bytes) {
    (void)data, (void)bytes;
}
static inline void memory_allow(const void *data, size_t bytes) {
    (void)data, (void)bytes;
}
#endif

/* Returns `bytes` bytes (a multiple of 128) with value `fill`; `old` is freed or reused. For the thread
   sanitizer, no thread has accessed these bytes yet. */
UNSEEN static void *memory_renew(void *old, size_t bytes, int fill) {
    sanitize_pause();
#ifdef SANITIZE_ORDER
    free(old);
    old = NULL;
#endif
    if (!old) old = aligned_alloc(128, bytes);
    if (!old) abort();
    memset(old, fill, bytes);
    sanitize_resume();
    return old;
}

#endif
