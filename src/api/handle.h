/*
 * api/handle: the objects of the public API that are made with a context, and how misuse of them is told
 * apart. Internal to this floor.
 *
 * Every such object begins with a handle. A closed one gives back all it held but its own few bytes, which
 * stay until the context is closed: so a use after close is an error and no crash. Of closed tensors, which
 * a loop makes without end, only the last HANDLE_KEEP stay; an older one's bytes become a new one's.
 */
#ifndef API_HANDLE_H
#define API_HANDLE_H

#include "api/context.h"

/* X(constant, what messages call it) */
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
    uint64_t magic; /* says that this is a handle, open or closed */
    handle_kind kind;
    ott_context *context;
    int64_t bytes; /* of the object */
    bool busy;     /* a call runs on it, whose callbacks may not change or close it (handle_enter_alone) */
    struct handle *next; /* of the context's closed handles of this kind, the oldest first */
} handle;

#define HANDLE_KEEP 1024

struct ott_config {
    handle handle;
    struct config *values;
    bool changed; /* by ott_config_set since it was last checked */
};

/* A zero-filled object of `bytes`, which begins with a handle. */
ott_status handle_open(ott_context *context, handle_kind kind, int64_t bytes, void **out);
/* Marks it closed. What it held must have been given back. Its other bytes stay as they are. */
void handle_close(handle *h);
/* Frees the closed handles of a context that is being closed. */
void handle_close_all(ott_context *context);
/* Is it open? For the close functions, which do nothing otherwise. */
bool handle_is_open(const void *object, handle_kind kind);
/* OTT_ERR_ARGUMENT, naming function and argument, when the object is NULL, closed or something else. */
ott_status handle_check(const void *object, handle_kind kind, const char *function, const char *argument);
#define API_HANDLE(object, kind) TRY(handle_check((object), HANDLE_##kind, __func__, #object))
/* The same, and OTT_ERR_ARGUMENT when it belongs to another context than `context`. */
ott_status handle_check_in(const void *object, handle_kind kind, const ott_context *context,
                           const char *function, const char *argument);
#define API_HANDLE_IN(object, kind, context)                                                                 \
    TRY(handle_check_in((object), HANDLE_##kind, (context), __func__, #object))

/*
 * A context is used by one thread at a time, of the process that opened it: the threads that work for it are not in
 * a child of fork. enter marks it as used by this thread until leave, and is OTT_ERR_ARGUMENT while another thread
 * has it and in a child; calls from callbacks nest. Functions that only read a field need neither.
 */
ott_status api_enter(ott_context *context, const char *function);
void api_leave(ott_context *context);
/* enter for what changes or closes an object that calls with callbacks run on: OTT_ERR_ARGUMENT from a callback of
   such a call as well (`busy`). */
ott_status handle_enter_alone(handle *h, const char *function);
/* return API_INSIDE(context, call): the call between enter and leave. */
#define API_INSIDE(context, call)                                                                            \
    (api_enter((context), __func__) == OTT_OK ? api_left((context), (call)) : OTT_ERR_ARGUMENT)
static inline ott_status api_left(ott_context *context, ott_status status) {
    api_leave(context);
    return status;
}

#endif
