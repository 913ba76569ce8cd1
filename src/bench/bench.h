/* bench/bench: measuring: medians of interleaved repeats, against the peaks measured in the same run. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/log.h"
#include "base/mem.h"
#include "ottava/ottava.h"

/* See ott_bench. OTT_ERR_ARGUMENT for an option that is wrong, or that this benchmark does not have. */
ott_status bench_run(mem *account, const logger *log, const ott_bench_options *options, ott_text_fn write,
                     void *user);

#endif
