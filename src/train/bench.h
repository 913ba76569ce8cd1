/* train/bench: measuring: medians of interleaved repeats, against the peak measured in the same run. */
#ifndef TRAIN_BENCH_H
#define TRAIN_BENCH_H

#include "base/log.h"
#include "base/mem.h"
#include "ottava/ottava.h"

/* See ott_bench with what = "gemm": FP8, BF16 and FP32 operands over three layouts and a list of shapes. */
ott_status bench_gemm(mem *account, const logger *log, const ott_bench_options *options, ott_text_fn write,
                      void *user);

#endif
