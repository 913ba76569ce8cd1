/*
 * api/handle: the first member of all public objects, which detects misuse, and the lock of a context.
 * Internal to this folder.
 *
 * Closing an object frees everything except its own struct, which stays allocated until the context is
 * closed. So use after close is an error, not a crash. But only the last HANDLE_KEEP closed tensors and
 * quantized tensors keep their structs: new tensors reuse the structs of older ones.
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
    uint64_t magic; /* MAGIC_OPEN or MAGIC_CLOSED: whether the object is open */
    handle_kind kind;
    ott_context *context;
    int64_t bytes; /* size of the object in bytes */
    bool busy;     /* a call is using the object, so callbacks must not change it (handle_enter_exclusive) */
    struct handle *next; /* the object of this kind that was closed after this one */
} handle;

#define HANDLE_KEEP 1024

struct ott_config {
    handle handle;
    struct config *values;
    bool changed; /* ott_config_set changed a value after the last config_check */
};

/* Allocates a zero-filled object of `bytes` bytes, which begins with a handle. */
ott_status handle_open(ott_context *context, handle_kind kind, int64_t bytes, void **out);
#define handle_open(context, kind, bytes, out) handle_open(context, kind, bytes, MEM_OUT(out))
/* Marks the object as closed. The caller must have freed its memory. All other bytes stay unchanged. */
void handle_close(handle *h);
/* Frees the structs of all closed objects, when the context is closed. */
void handle_close_all(ott_context *context);
/* True if the object is open and of this kind. If not, functions that close objects do nothing. */
bool handle_is_open(const void *object, handle_kind kind);
/* Fails with OTT_ERR_ARGUMENT unless the object is open and of this kind. The text names the argument. */
ott_status handle_check(const void *object, handle_kind kind, const char *function, const char *argument);
#define API_HANDLE(object, kind) TRY(handle_check((object), HANDLE_##kind, __func__, #object))
/* Like handle_check; also OTT_ERR_ARGUMENT if the object belongs to another context. */
ott_status handle_check_in(const void *object, handle_kind kind, const ott_context *context,
                           const char *function, const char *argument);
#define API_HANDLE_IN(object, kind, context)                                                                 \
    TRY(handle_check_in((object), HANDLE_##kind, (context), __func__, #object))

/*
 * The lock of a context. api_enter locks the context for the calling thread, until api_leave.
 * OTT_ERR_ARGUMENT while another thread has the lock, and in a child process after fork, which lacks the
 * device's worker threads. Callbacks may make nested calls. Functions that only read a member need no lock.
 */
ott_status api_enter(ott_context *context, const char *function);
void api_leave(ott_context *context);
/* Like api_enter, for calls that change or close an object. Also OTT_ERR_ARGUMENT inside a callback of a call
   that uses the object (`busy`). */
ott_status handle_enter_exclusive(handle *h, const char *function);
/* `return API_INSIDE(context, call);` makes the call between api_enter and api_leave. */
#define API_INSIDE(context, call)                                                                            \
    (api_enter((context), __func__) == OTT_OK ? api_left((context), (call)) : OTT_ERR_ARGUMENT)
static inline ott_status api_left(ott_context *context, ott_status status) {
    api_leave(context);
    return status;
}

#endif
