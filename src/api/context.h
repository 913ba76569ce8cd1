/*
 * api/context: what stands behind the public handles, and the checks every public function makes of its
 * arguments. Internal to this floor.
 */
#ifndef API_CONTEXT_H
#define API_CONTEXT_H

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ottava/ottava.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define CONTEXT_OPEN   UINT64_C(0x6f7474636f6e7465)
#define CONTEXT_CLOSED UINT64_C(0x6f7474636c6f7365)

/* The closed handles of a kind (api/handle.h). */
typedef struct closed_handles {
    struct handle *first, *last;
    int64_t count;
} closed_handles;

struct ott_context {
    uint64_t magic;                /* CONTEXT_OPEN, or CONTEXT_CLOSED: its other fields are gone */
    struct ott_context *next;      /* of the closed contexts, the oldest first */
    mem *account;                  /* all memory of the context and of what is made with it */
    logger log;                    /* the caller's callback */
    atomic_bool stop;              /* ott_stop was called; set from any thread and from signal handlers */
    atomic_uintptr_t owner;        /* names the thread that uses the context; 0: none (api_enter) */
    int depth;                     /* of its nested calls */
    pid_t process;                 /* that opened it */
    int threads;                   /* of the device; 0: all cores */
    char *device_name;             /* as backend_open takes it */
    struct device *device;         /* NULL until one is needed (api_device) */
    struct plan *plan;             /* in the immediate mode, made with the device */
    struct closed_handles *closed; /* [HANDLE_KINDS], NULL until a handle is opened */
    int64_t open_handles;
    struct autocast *autocast; /* NULL: none */
    int64_t modules;           /* opened so far: seeds of those that give none */
    int64_t step;              /* optimizer steps done: a weight's compute copy belongs to one */
};

/* Was ott_stop called? For hooks of work that may take long; `user` is the context. */
bool api_must_stop(void *user);

/* OTT_ERR_ARGUMENT, naming function and argument, when a pointer that must be given is NULL. */
ott_status api_require(const void *pointer, const char *function, const char *argument);
#define API_REQUIRE(argument)      TRY(api_require((argument), __func__, #argument))
#define API_REQUIRE_CALL(argument) TRY(api_require((const void *)(uintptr_t)(argument), __func__, #argument))

/*
 * Takes an option struct of a caller who may know fewer fields than this library, or more: `own` (of
 * `own_bytes`, filled with the defaults) gets the fields both know. `given` begins with its size_t
 * struct_size; NULL leaves the defaults. OTT_ERR_ARGUMENT when the struct was not initialised, or asks for
 * something this library does not know.
 */
ott_status api_read_options(const void *given, void *own, size_t own_bytes, const char *name);

/* OTT_ERR_ARGUMENT unless a struct that is to be filled was initialised: asked before the work it tells of. NULL: not
   wanted. */
ott_status api_check_struct(const void *given, const char *name);
/* Gives an output struct to a caller who may know fewer fields, or more, which become zero. `given` begins
   with its size_t struct_size, which stays. */
/* Settings of ott_eval_options and ott_generate_options. */
ott_status api_check_settings(const char *const *settings, int count);
ott_status api_write_struct(void *given, const void *own, size_t own_bytes, const char *name);

/* Gives a finished text to the caller's function; OTT_ERR_MEMORY when the text is not complete. */
ott_status api_write(const str *text, ott_text_fn write, void *user);

#endif
