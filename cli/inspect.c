/* cli/inspect: `ottava inspect`: lists and checks a model file or folder. */
#define _GNU_SOURCE
#include "cli.h"
#include <unistd.h>

/* A missing path is bad input. Any other error means that a file is damaged: CLI_FAILED. */
static int fail_inspect(const char *path, ott_status status) {
    int code = cli_fail(status);
    return status == OTT_ERR_ARGUMENT || status == OTT_ERR_UNSUPPORTED || access(path, F_OK) != 0
               ? code
               : CLI_FAILED;
}

int verb_inspect(int argc, char **argv) {
    bool statistics = false, json = false;
    const option options[] = {
        {"--stats", NULL, OPTION_FLAG, &statistics,
         "minimum, maximum, mean, deviation, zeros, NaN of each tensor"},
        {"--json", NULL, OPTION_FLAG, &json, "one JSON object instead of a table"},
    };
    const command c = {
        .name = "inspect",
        .synopsis = "PATH [options]",
        .about =
            "Lists the tensors of PATH: a safetensors file, its index, or the folder of a model, of PEFT\n"
            "adapters, of a checkpoint or of a run (its newest checkpoint). Verifies a checkpoint's "
            "checksums\n"
            "first. Exit code 1: a file is damaged, and the error names the place.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operand = "PATH",
        .operands_most = 1};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;

    ott_inspect_options o;
    ott_inspect_options_init(&o);
    o.statistics = statistics;
    o.json = json;
    output out;
    ott_context *context;
    output_open(&out);
    ott_status status = cli_open_context(&context);
    if (status != OTT_OK) return cli_fail(status);
    status = ott_inspect(context, argv[0], &o, output_write, &out);
    code = output_close(&out, status == OTT_OK ? CLI_DONE : fail_inspect(argv[0], status));
    ott_context_close(context);
    return code;
}
