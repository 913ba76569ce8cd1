/* bench/bench: `ottava bench`. Reports medians of interleaved repeats, and compares them with peaks measured
   in the same run. Part of the program, not of the library. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "ottava/ottava.h"

/* Options of a benchmark. First call bench_options_init. Options that a benchmark does not use are errors. */
typedef struct bench_options {
    const char *what; /* "gemm", "gemv", "quantize", "attention", "norm", "optimizer", "products", "step",
                        "generate" or "load" */
    int threads;      /* 0: all cores */
    int repeats;      /* number of interleaved repeats; a result is their median */
    int json;         /* 1: one JSON object, 0: a table */
    /* gemm, gemv, quantize, norm: a list of sizes by its name, "small", "square", "llama-1b", "llama-8b" or
       "tiny", or M,K,N of each matrix product: "1024,2048,512 1024,8192,2048"; NULL: small */
    const char *shapes;
    const char *preset; /* step, generate: a size as in model.preset; NULL: 42M and 124M */
    /* step, generate: precisions to compare, separated by commas, of fp8, bf16 and fp32; NULL: "fp8,bf16" */
    const char *precision;
    /* step, generate: recipe of precision fp8, as in float8.recipe_name; NULL: tensorwise */
    const char *recipe;
    /* step: rows, and tokens per row; 0: as in the file, or without a file 4 and 256 (512 from 124M on) */
    int64_t batch_size, seq_len;
    /* load: a Hugging Face folder; products: a configuration file; step: a configuration file or NULL */
    const char *path;
    const char *device; /* device; see ott_context_options */
} bench_options;

void bench_options_init(bench_options *options);
/* Runs a benchmark and passes the result to `write`. Speeds are compared with peaks that are measured in the
   same run: the peak of the compute unit, of memcpy, or of reading files. OTT_ERR_ARGUMENT for an option that
   is invalid or that the benchmark does not use. */
ott_status bench_run(ott_context *context, const bench_options *options, ott_text_fn write, void *user);

#endif
