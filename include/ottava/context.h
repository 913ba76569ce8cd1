/*
 * ottava/context.h: versions, errors and contexts. Every other public header includes it. The rules for
 * errors, ownership and threads are in ottava/ottava.h. Compiles as C11 and as C++17.
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

/* The library's version, "0.1.0". Static text. */
OTT_API const char *ott_version(void);
/* Why the last failing call on this thread failed, in one line or more (ottava.h); "" if no call failed yet.
   The library owns the text. It is valid until the next failing call on this thread. */
OTT_API const char *ott_error_text(void);
/* The name of a status, "ERR_SHAPE", and its meaning, "shapes do not agree". Static texts. */
OTT_API const char *ott_status_name(ott_status status);
OTT_API const char *ott_status_meaning(ott_status status);
/* The exit code for a program that ends because of this status: 0 done, 1 the run failed, 2 bad input. */
OTT_API int ott_status_exit_code(ott_status status);

/* ---- context ---- */

/* Callbacks. `user` is the pointer that was given along with the function; `text` is valid during the call
   only. A log line has no newline. An ott_text_fn receives pieces of output that include their newlines. */
typedef void (*ott_log_fn)(void *user, ott_log_level level, const char *text);
typedef void (*ott_text_fn)(void *user, const char *text);

/* Holds the log callback, the device, and all objects that are opened with it. Contexts are independent of
   each other. An object of one context cannot be used with another context. */
typedef struct ott_context ott_context;
typedef struct ott_config ott_config; /* see ott_config_open in ottava.h */

typedef struct ott_context_options {
    size_t struct_size;
    ott_log_fn log;          /* NULL: no log */
    void *user;              /* passed to the log function */
    ott_log_level log_level; /* least severe level that is logged; default OTT_LOG_INFO */
    int threads;             /* CPU threads for tensors and modules; 0: one per core */
    /* The device for tensors and modules: "cpu", "cuda" (the first GPU), "cuda:1" (the second), "auto" or
       NULL (a GPU if one can be used, else the CPU). OTT_ERR_UNSUPPORTED for a GPU if the CUDA backend is not
       installed, OTT_ERR_DEVICE if there is no such GPU. Copied. */
    const char *device;
} ott_context_options;

OTT_API void ott_context_options_init(ott_context_options *options, size_t size);
#define ott_context_options_init(options) ott_context_options_init(options, sizeof *(options))
/*
 * Opens a context. options NULL: the defaults. The device is opened when the first tensor or module needs it.
 *
 *     ott_context *context;
 *     ott_context_options options;
 *     ott_context_options_init(&options);
 *     options.device = "cpu";
 *     if (ott_context_open(&options, &context) != OTT_OK) puts(ott_error_text());
 */
OTT_API ott_status ott_context_open(const ott_context_options *options, ott_context **out);
/* Frees the context and the memory of all objects that are still open in it (with a warning in the log). Does
   nothing for NULL and for a closed context. Also does nothing, with the reason in ott_error_text, inside a
   callback of this context, while another thread uses it, and in a child process after fork. */
OTT_API void ott_context_close(ott_context *context);
/* Stops the training, evaluation or tokenization that runs in this context. Training discards the step in
   progress, saves the last complete step and returns OTT_OK, or OTT_ERR_STOPPED if no step is complete. If
   none of them runs, the next one stops. Any thread or signal handler may call ott_stop. */
OTT_API void ott_stop(ott_context *context);

#ifdef __cplusplus
}
#endif
#endif
