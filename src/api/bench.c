/* api/bench: measuring speed. */
#include "bench/bench.h"
#include "api/handle.h"

void ott_bench_options_init(ott_bench_options *options) {
    if (options) *options = (ott_bench_options){.struct_size = sizeof *options, .what = "gemm", .repeats = 5};
}

ott_status ott_bench(ott_context *context, const ott_bench_options *options, ott_text_fn write, void *user) {
    ott_bench_options o;
    API_REQUIRE(context);
    API_REQUIRE_CALL(write);
    ott_bench_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_bench_options"));
    return API_INSIDE(context, bench_run(context->account, &context->log, &o, write, user));
}
