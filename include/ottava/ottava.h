/*
 * Ottava: training of language models in 8-bit floating point. The public C API.
 *
 * Errors: a function that can fail returns an ott_status; ott_error_text() then gives the reason, one line
 * that names the thing, its value and the way out. The library never exits and never prints: it logs through
 * the context's callback.
 *
 * Ownership: an object made by ott_x_open is closed by ott_x_close (NULL is allowed), and before its context;
 * strings given in are copied.
 *
 * Threads: a context and all that is made with it belong to one thread at a time: a call that comes from
 * another thread during a call is OTT_ERR_ARGUMENT. Two contexts may be used by two threads. ott_stop may be
 * called from any thread and from a signal handler.
 *
 * Option structs start with struct_size and are filled by their _init function, so that a program built
 * against an older header keeps working. Compiles as C11 and as C++17.
 */
#ifndef OTTAVA_OTTAVA_H
#define OTTAVA_OTTAVA_H

#include "ottava/context.h"
#include "ottava/fp8.h"
#include "ottava/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ---- */

typedef struct ott_config ott_config;

/* Reads a configuration as `ottava train` takes it: at most one file (a plain path or --config FILE) and
   overrides (--section.key=value). */
OTT_API ott_status ott_config_open(ott_context *context, int argc, const char *const *argv, ott_config **out);
OTT_API void ott_config_close(ott_config *config);
/* One more override: key "train.max_steps", value "100". */
OTT_API ott_status ott_config_set(ott_config *config, const char *key, const char *value);
/* Writes every key with type, default and meaning. */
OTT_API ott_status ott_config_help(ott_context *context, ott_text_fn write, void *user);

/* ---- training ---- */

typedef struct ott_progress {
    int64_t step, max_steps;
    double loss;            /* mean over the tokens of the step */
    double validation_loss; /* NaN until the first validation */
    double learning_rate, grad_norm;
    double tokens_per_second; /* over the last steps */
    double seconds_left;      /* estimated */
} ott_progress;

/* Called after every step on the calling thread. */
typedef void (*ott_progress_fn)(void *user, const ott_progress *progress);

typedef struct ott_train_options {
    size_t struct_size;
    ott_progress_fn progress; /* NULL: none */
    void *user;
} ott_train_options;

OTT_API void ott_train_options_init(ott_train_options *options);
/* Trains as the configuration says, to the last step or until ott_stop. Writes the run folder: config.toml,
   metrics.jsonl, summary.json, checkpoints. OTT_ERR_DIVERGED after too many non-finite steps in a row.
   options may be NULL. */
OTT_API ott_status ott_train(ott_context *context, ott_config *config, const ott_train_options *options);

/* ---- generation ---- */

typedef struct ott_generate_options {
    size_t struct_size;
    const char *prompt; /* not empty */
    int64_t max_tokens; /* how many to add */
    double temperature; /* 0: the most likely token always */
    double top_p;       /* (0, 1]: smallest set of tokens with this probability */
    uint64_t seed;
    int threads; /* 0: all cores */
} ott_generate_options;

OTT_API void ott_generate_options_init(ott_generate_options *options);
/* Continues the prompt with the model of a run folder (its newest checkpoint) or of one checkpoint folder, in
   the precision it was trained in. Writes the prompt, then the text token by token. options must be given. */
OTT_API ott_status ott_generate(ott_context *context, const char *run, const ott_generate_options *options,
                                ott_text_fn write, void *user);

/* ---- reports ---- */

typedef struct ott_report_options {
    size_t struct_size;
    const char *html;            /* file to write the self-contained page to; NULL: none */
    const char *title;           /* NULL: a default */
    int plot_width, plot_height; /* of the text plot, in characters; 0: none */
} ott_report_options;

OTT_API void ott_report_options_init(ott_report_options *options);
/* Compares run folders with the first of them: writes the table and the plot as text, and the page. */
OTT_API ott_status ott_report(ott_context *context, const char *const *runs, int count,
                              const ott_report_options *options, ott_text_fn write, void *user);

/* ---- benchmarks ---- */

typedef struct ott_bench_options {
    size_t struct_size;
    const char *what; /* "gemm" */
    int threads;      /* 0: all cores */
    int repeats;      /* interleaved; the median counts */
    int json;         /* 1: one JSON object, 0: a table */
} ott_bench_options;

OTT_API void ott_bench_options_init(ott_bench_options *options);
OTT_API ott_status ott_bench(ott_context *context, const ott_bench_options *options, ott_text_fn write,
                             void *user);

#ifdef __cplusplus
}
#endif
#endif
