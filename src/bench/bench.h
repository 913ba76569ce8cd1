/* bench/bench: `ottava bench`: medians of interleaved repeats, against the peaks measured in the same run.
   Part of the program, not of the library. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "ottava/ottava.h"

/* What a benchmark does not take must be left as bench_options_init leaves it. */
typedef struct bench_options {
    const char *what; /* "gemm", "gemv", "quantize", "attention", "norm", "optimizer", "products", "step",
                         "generate" or "load" */
    int threads;      /* 0: all cores */
    int repeats;      /* interleaved; the median counts */
    int json;         /* 1: one JSON object, 0: a table */
    /* gemm, gemv, quantize, norm: "small", "square", "llama-1b", "llama-8b" or "tiny", or M,K,N of each product:
       "1024,2048,512 1024,8192,2048"; NULL: small */
    const char *shapes;
    const char *preset;          /* step, generate: a size as model.preset names it; NULL: 42M, 124M */
    const char *precision;       /* step, generate: of fp8, bf16 and fp32 those to compare, with commas
                                    between; NULL: "fp8,bf16" */
    const char *recipe;          /* step, generate: FP8's, as float8.recipe_name; NULL: tensorwise */
    int64_t batch_size, seq_len; /* step; 0: 4, and 256 or, from 124M on, 512 */
    const char *
        path; /* load: a Hugging Face folder; products, step: a configuration file, for step instead of preset */
    const char *device; /* as in ott_context_options */
} bench_options;

void bench_options_init(bench_options *options);
/* Measures and writes the result. Speeds are given beside the peaks measured in the same run: of the unit of each product, of
   memcpy, of reading. OTT_ERR_ARGUMENT for an option that is wrong, or that this benchmark does not have. */
ott_status bench_run(ott_context *context, const bench_options *options, ott_text_fn write, void *user);

#endif
