/* api/context: the context, and checks of arguments. Internal to this folder. */
#ifndef API_CONTEXT_H
#define API_CONTEXT_H

#include "base/log.h"
#include "base/mem.h"
#include "base/text/str.h"
#include "ottava/ottava.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define CONTEXT_OPEN   UINT64_C(0x6f7474636f6e7465)
#define CONTEXT_CLOSED UINT64_C(0x6f7474636c6f7365)

/* Closed handles of one kind, the oldest first (api/handle.h). */
typedef struct closed_handles {
    struct handle *first, *last;
    int64_t count;
} closed_handles;

struct ott_context {
    uint64_t magic;           /* CONTEXT_OPEN or CONTEXT_CLOSED (then all members but `next` are zero) */
    struct ott_context *next; /* the context that was closed after this one */
    mem *account;             /* memory account of the context and its objects */
    logger log;               /* passes log lines to the caller's callback */
    atomic_bool stop;         /* ott_stop was called; set from any thread and from signal handlers */
    atomic_uintptr_t owner;   /* address that identifies the thread inside a call; 0: none (api_enter) */
    int depth;                /* nested calls of this thread (callbacks may call the library) */
    pid_t process;            /* the process that opened the context */
    int threads;              /* CPU threads of the device; 0: one per core */
    char *device_name;        /* name that backend_open gets; NULL: "auto" */
    /* the model of the run that calls its progress callback; NULL outside of this callback */
    const struct live_model *live;
    struct device *device; /* device of all objects; NULL until an object needs it (api_device) */
    /* plan for ops that run immediately, without recording; NULL if `device` is NULL */
    struct plan *plan;
    struct closed_handles *closed; /* [HANDLE_KINDS]; NULL until the first handle is opened */
    int64_t open_handles;
    struct autocast *autocast; /* state of autocast regions; NULL until a module needs it */
    int64_t modules;           /* modules opened so far; used to draw weights of modules without a seed */
    int64_t step;              /* number of optimizer steps; quantized weights are valid for one step */
};

/* True if ott_stop was called. Long calls use it as their stop callback. user: the context. */
bool api_must_stop(void *user);

/* Returns OTT_ERR_ARGUMENT if the pointer is NULL. The error text names the function and the argument. */
ott_status api_require(const void *pointer, const char *function, const char *argument);
#define API_REQUIRE(argument) TRY(api_require((argument), __func__, #argument))
#define API_REQUIRE_BOTH(a, b)                                                                               \
    do {                                                                                                     \
        API_REQUIRE(a);                                                                                      \
        API_REQUIRE(b);                                                                                      \
    } while (0)
#define API_REQUIRE_CALL(argument) TRY(api_require((const void *)(uintptr_t)(argument), __func__, #argument))

/* Fills a caller's struct of `size` bytes with the defaults `own`, and sets struct_size to `size`. A caller
   that was compiled with an older header has a shorter struct. Does nothing for NULL. */
void api_init_struct(void *given, size_t size, const void *own, size_t own_bytes);
/* Calls api_init_struct with an initializer list of defaults, such as `.bias = 1`; 0 if all members are 0. */
#define API_INIT(given, size, ...)                                                                           \
    api_init_struct(given, size, &(const __typeof__(*(given))){__VA_ARGS__}, sizeof *(given))
/*
 * Reads an option struct whose caller may be compiled with an older or newer header. `own` has own_bytes
 * bytes and already has the defaults. Copies the members that both versions have from `given` to `own`.
 * `given` begins with its size_t struct_size; NULL: `own` keeps the defaults. OTT_ERR_ARGUMENT if the struct
 * was not initialized, or if a member is set that this version does not have.
 */
ott_status api_read_options(const void *given, void *own, size_t own_bytes, const char *name);

/* Call this before computing a result: fails with OTT_ERR_ARGUMENT if the struct is not initialized. */
ott_status api_check_struct(const void *given, const char *name);
/* Checks the settings of ott_eval_options and ott_generate_options. */
ott_status api_check_settings(const char *const *settings, int count);
/* Copies a result to the caller's struct. If the caller's struct has additional members, sets them to 0. */
ott_status api_write_struct(void *given, const void *own, size_t own_bytes, const char *name);

/* Passes the text to `write`. OTT_ERR_MEMORY if building the text ran out of memory. */
ott_status api_write(const str *text, ott_text_fn write, void *user);

#endif
