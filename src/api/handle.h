/*
 * api/handle: the common head of all public objects, which detects misuse, and the lock of a context.
 * Internal to this folder.
 *
 * A closed object frees everything except its own struct, which stays allocated until the context is closed.
 * So use after close is an error, not a crash. A loop may open and close any number of tensors: only the last
 * HANDLE_KEEP closed tensors and quantized tensors stay allocated, and new ones reuse the older structs.
 */
#ifndef API_HANDLE_H
#define API_HANDLE_H

#include "api/context.h"

/* X(constant, name in messages) */
#define HANDLE_MAP(X)                                                                                        \
    X(TENSOR, "tensor")                                                                                      \
    X(QTENSOR, "quantized tensor")                                                                           \
    X(RECIPE, "recipe")                                                                                      \
    X(GROUP, "group")                                                                                        \
    X(MODULE, "module")                                                                                      \
    X(OPTIMIZER, "optimizer")                                                                                \
    X(GENERATOR, "generator")                                                                                \
    X(CONFIG, "configuration")

typedef enum handle_kind {
#define X(constant, text) HANDLE_##constant,
    HANDLE_MAP(X)
#undef X
        HANDLE_KINDS
} handle_kind;

typedef struct handle {
    uint64_t magic; /* one of two constants: this is an open handle, or a closed one */
    handle_kind kind;
    ott_context *context;
    int64_t bytes; /* size of the object */
    bool busy;     /* a call is using it; callbacks may not change or close it (handle_enter_exclusive) */
    struct handle *next; /* next newer closed handle of this kind in the context */
} handle;

#define HANDLE_KEEP 1024

struct ott_config {
    handle handle;
    struct config *values;
    bool changed; /* ott_config_set was called after the last config_check */
};

/* Allocates a zero-filled object of `bytes` that begins with a handle. */
ott_status handle_open(ott_context *context, handle_kind kind, int64_t bytes, void **out);
/* Marks the object closed. The caller has freed its memory. The other bytes stay unchanged. */
void handle_close(handle *h);
/* Frees the closed handles of a context; part of closing the context. */
void handle_close_all(ott_context *context);
/* True if the object is open and of this kind. Close functions do nothing otherwise. */
bool handle_is_open(const void *object, handle_kind kind);
/* OTT_ERR_ARGUMENT, naming function and argument, if the object is NULL, closed or of another kind. */
ott_status handle_check(const void *object, handle_kind kind, const char *function, const char *argument);
#define API_HANDLE(object, kind) TRY(handle_check((object), HANDLE_##kind, __func__, #object))
/* The same; also OTT_ERR_ARGUMENT if the object belongs to another context. */
ott_status handle_check_in(const void *object, handle_kind kind, const ott_context *context,
                           const char *function, const char *argument);
#define API_HANDLE_IN(object, kind, context)                                                                 \
    TRY(handle_check_in((object), HANDLE_##kind, (context), __func__, #object))

/*
 * The lock of a context. api_enter locks it for this thread until api_leave. OTT_ERR_ARGUMENT while another
 * thread holds it, and in a child of fork, where the device's worker threads do not exist. Calls from
 * callbacks nest. Functions that only read a member need no lock.
 */
ott_status api_enter(ott_context *context, const char *function);
void api_leave(ott_context *context);
/* api_enter for calls that change or close an object. Also OTT_ERR_ARGUMENT inside a callback of a call that
   uses the object (`busy`). */
ott_status handle_enter_exclusive(handle *h, const char *function);
/* return API_INSIDE(context, call): runs the call between api_enter and api_leave. */
#define API_INSIDE(context, call)                                                                            \
    (api_enter((context), __func__) == OTT_OK ? api_left((context), (call)) : OTT_ERR_ARGUMENT)
static inline ott_status api_left(ott_context *context, ott_status status) {
    api_leave(context);
    return status;
}

#endif
