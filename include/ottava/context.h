/*
 * Ottava: what every other header needs: versions and errors, contexts. See ottava/ottava.h for the rules of
 * errors, ownership and threads. Compiles as C11 and as C++17.
 */
#ifndef OTTAVA_CONTEXT_H
#define OTTAVA_CONTEXT_H

#include "ottava/types.h"
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define OTT_API __attribute__((visibility("default")))
#else
#define OTT_API
#endif

/* ---- versions and errors ---- */

/* "0.1.0" */
OTT_API const char *ott_version(void);
/* Why the last call on this thread failed; "" if none did. Valid until the next failing call on this thread.
 */
OTT_API const char *ott_error_text(void);
/* "ERR_SHAPE"; its meaning in words; the exit code of a program that ends on it (0 done, 1 the run failed, 2
 * bad input). */
OTT_API const char *ott_status_name(ott_status status);
OTT_API const char *ott_status_meaning(ott_status status);
OTT_API int ott_status_exit_code(ott_status status);

/* ---- context ---- */

/* `text` is one line without newline (log), or a piece of text (output). */
typedef void (*ott_log_fn)(void *user, ott_log_level level, const char *text);
typedef void (*ott_text_fn)(void *user, const char *text);

typedef struct ott_context ott_context;
typedef struct ott_config ott_config; /* ott_config_open (ottava.h) */

typedef struct ott_context_options {
    size_t struct_size;
    ott_log_fn log; /* NULL: silent */
    void *user;     /* given to log */
    ott_log_level log_level;
    int threads; /* of the device that tensors and modules use; 0: all cores */
    const char
        *device; /* that device: "cpu"; "cuda", a GPU, "cuda:1" the second; "auto" or NULL: the best there is.
                           OTT_ERR_UNSUPPORTED for a GPU without the CUDA backend, OTT_ERR_DEVICE where there is none, each
                           with the way out. Copied */
} ott_context_options;

OTT_API void ott_context_options_init(ott_context_options *options);
/* options may be NULL: the defaults. */
OTT_API ott_status ott_context_open(const ott_context_options *options, ott_context **out);
/* Frees the context. NULL is allowed. Does nothing for a context that is closed already, and in a callback of the context;
   ott_error_text is the reason. */
OTT_API void ott_context_close(ott_context *context);
/* Asks the training that runs in this context to save its last whole step and return OTT_OK; a step under way
   is left as if it had not begun. Asked before the first step can run, it returns OTT_ERR_STOPPED. */
OTT_API void ott_stop(ott_context *context);

#ifdef __cplusplus
}
#endif
#endif
