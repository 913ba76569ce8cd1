/* api/handle: opens, closes and checks handles, and locks contexts. */
#include "api/handle.h"
#include <string.h>
#include <unistd.h>

/* values that are unlikely as a text, an address or a small number */
#define MAGIC_OPEN   UINT64_C(0x6f7474617661616e)
#define MAGIC_CLOSED UINT64_C(0x6f74746176616465)

static const char *const kind_names[] = {
#define X(constant, text) text,
    HANDLE_MAP(X)
#undef X
};

/* ---- opening and closing ---- */

/* Reuses only the structs of closed tensors, because loops open and close many tensors. Other structs are not
   reused, because layers may still point to a closed object, for example a group. */
static bool is_reused(handle_kind kind) {
    return kind == HANDLE_TENSOR || kind == HANDLE_QTENSOR;
}

/* Returns the oldest closed struct of this kind for reuse; NULL unless more than HANDLE_KEEP are closed. */
static handle *reuse_closed(closed_handles *closed, handle_kind kind, int64_t bytes) {
    handle *h = closed->first;
    if (!is_reused(kind) || closed->count <= HANDLE_KEEP || h->bytes != bytes) return NULL;
    closed->first = h->next;
    closed->count--;
    memset(h, 0, (size_t)bytes);
    return h;
}

ott_status(handle_open)(ott_context *context, handle_kind kind, int64_t bytes, void **out) {
    *out = NULL;
    if (!context->closed)
        TRY(mem_alloc_array(context->account, MEM_OTHER, HANDLE_KINDS, sizeof(closed_handles),
                            "closed handles", &context->closed));
    handle *h = reuse_closed(&context->closed[kind], kind, bytes);
    if (!h) TRY(mem_alloc(context->account, MEM_OTHER, bytes, kind_names[kind], &h));
    h->magic = MAGIC_OPEN;
    h->kind = kind;
    h->context = context;
    h->bytes = bytes;
    context->open_handles++;
    return *out = h, OTT_OK;
}

void handle_close(handle *h) {
    closed_handles *closed = &h->context->closed[h->kind];
    h->magic = MAGIC_CLOSED;
    h->next = NULL;
    *(closed->count > 0 ? &closed->last->next : &closed->first) = h;
    closed->last = h;
    closed->count++;
    h->context->open_handles--;
}

void handle_close_all(ott_context *context) {
    for (int kind = 0; context->closed && kind < HANDLE_KINDS; kind++) {
        closed_handles *closed = &context->closed[kind];
        for (handle *next, *h = closed->first; closed->count > 0; h = next, closed->count--) {
            next = h->next;
            mem_free(context->account, h);
        }
    }
    mem_free(context->account, context->closed);
    context->closed = NULL;
}

/* ---- checks ---- */

bool handle_is_open(const void *object, handle_kind kind) {
    const handle *h = object;
    return h && h->magic == MAGIC_OPEN && h->kind == kind;
}

static const char *article(const char *noun) {
    return strchr("aeiou", noun[0]) ? "an" : "a";
}

ott_status handle_check(const void *object, handle_kind kind, const char *function, const char *argument) {
    const handle *h = object;
    const char *wanted = kind_names[kind];
    if (handle_is_open(object, kind)) return OTT_OK;
    if (!h) return status_fail(OTT_ERR_ARGUMENT, "%s: %s is NULL", function, argument);
    if (h->magic != MAGIC_OPEN && h->magic != MAGIC_CLOSED)
        return status_fail(OTT_ERR_ARGUMENT, "%s: %s points to no object of this library; give %s %s",
                           function, argument, article(wanted), wanted);
    if (h->kind != kind)
        return status_fail(OTT_ERR_ARGUMENT, "%s: %s is %s %s; give %s %s", function, argument,
                           article(kind_names[h->kind]), kind_names[h->kind], article(wanted), wanted);
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s is %s %s that has been closed", function, argument,
                       article(wanted), wanted);
}

ott_status handle_check_in(const void *object, handle_kind kind, const ott_context *context,
                           const char *function, const char *argument) {
    TRY(handle_check(object, kind, function, argument));
    if (((const handle *)object)->context == context) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s belongs to another context", function, argument);
}

/* ---- locking a context ---- */

ott_status api_enter(ott_context *context, const char *function) {
    static _Thread_local char of_this_thread; /* the address of this variable identifies the thread */
    uintptr_t me = (uintptr_t)&of_this_thread, unused = 0;
    if (context->magic != CONTEXT_OPEN)
        return status_fail(OTT_ERR_ARGUMENT, "%s: the context has been closed", function);
    if (getpid() != context->process)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "%s: the context was opened by the process that forked this one; open another here", function);
    if (atomic_load(&context->owner) != me && !atomic_compare_exchange_strong(&context->owner, &unused, me))
        return status_fail(
            OTT_ERR_ARGUMENT,
            "%s: the context is in use by another thread; give each thread a context of its own", function);
    context->depth++;
    return OTT_OK;
}

ott_status handle_enter_exclusive(handle *h, const char *function) {
    TRY(api_enter(h->context, function));
    if (!h->busy) return OTT_OK;
    api_leave(h->context);
    return status_fail(OTT_ERR_ARGUMENT, "%s: cannot be called from a callback of the call that uses the %s",
                       function, kind_names[h->kind]);
}

void api_leave(ott_context *context) {
    if (--context->depth == 0) atomic_store(&context->owner, 0);
}
