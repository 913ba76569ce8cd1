/* api/bench: measuring speed. */
#include "train/bench.h"
#include "api/handle.h"
#include <string.h>

typedef ott_status (*bench_run)(mem *account, const logger *log, const ott_bench_options *options,
                                ott_text_fn write, void *user);

static const struct {
    const char *name;
    bench_run run;
} benches[] = {{"gemm", bench_gemm}};
enum { BENCHES = sizeof benches / sizeof *benches };

void ott_bench_options_init(ott_bench_options *options) {
    if (options) *options = (ott_bench_options){.struct_size = sizeof *options, .what = "gemm", .repeats = 5};
}

static ott_status find_bench(const char *what, bench_run *run) {
    for (int i = 0; what && i < BENCHES; i++)
        if (strcmp(what, benches[i].name) == 0) {
            *run = benches[i].run;
            return OTT_OK;
        }
    return status_fail(OTT_ERR_ARGUMENT, "there is no benchmark \"%s\"; there is: gemm", what ? what : "");
}

ott_status ott_bench(ott_context *context, const ott_bench_options *options, ott_text_fn write, void *user) {
    ott_bench_options o;
    bench_run run = NULL;
    API_REQUIRE(context);
    API_REQUIRE_CALL(write);
    ott_bench_options_init(&o);
    TRY(api_take_options(options, &o, sizeof o, "ott_bench_options"));
    TRY(find_bench(o.what, &run));
    if (o.threads < 0)
        return status_fail(OTT_ERR_ARGUMENT, "threads = %d: give 0 (all cores) or more", o.threads);
    return API_INSIDE(context, run(context->account, &context->log, &o, write, user));
}
