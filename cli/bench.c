/* cli/bench: `ottava bench`: the speed of this machine. */
#include "cli.h"

int verb_bench(int argc, char **argv) {
    ott_bench_options o;
    bool json = false;
    ott_bench_options_init(&o);
    const option options[] = {
        {"--threads", "N", OPTION_INT, &o.threads, "CPU threads; 0: all cores (0)"},
        {"--repeats", "N", OPTION_INT, &o.repeats,
         "measurements of each, interleaved; the median counts (5)"},
        {"--json", NULL, OPTION_FLAG, &json, "one JSON object instead of a table"},
    };
    const command c = {
        .name = "bench",
        .synopsis = "gemm [options]",
        .about = "gemm: matrix products with FP8, BF16 and FP32 operands, against the machine's peak.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operand = "benchmark",
        .operands_most = 1};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_GO_ON) return code;
    o.what = argv[0];
    o.json = json;

    output out;
    ott_context *context;
    output_open(&out);
    ott_status status = cli_open_context(&context);
    if (status != OTT_OK) return cli_fail(status);
    status = ott_bench(context, &o, output_write, &out);
    code = output_close(&out, status == OTT_OK ? CLI_DONE : cli_fail(status));
    ott_context_close(context);
    return code;
}
