/* cli/inspect: `ottava inspect`: lists and checks a model file or folder. */
#include "cli.h"
#include <unistd.h>

typedef struct inspection {
    const char *path;
    ott_inspect_options options;
} inspection;

/* A missing path is bad input. Any other error means that a file is damaged: CLI_FAILED. */
static int print_listing(ott_context *context, output *out, void *user) {
    const inspection *i = user;
    ott_status status = ott_inspect(context, i->path, &i->options, output_write, out);
    int code = cli_code(status);
    bool bad_input =
        status == OTT_ERR_ARGUMENT || status == OTT_ERR_UNSUPPORTED || access(i->path, F_OK) != 0;
    return code == CLI_DONE || bad_input ? code : CLI_FAILED;
}

int verb_inspect(int argc, char **argv) {
    inspection i;
    ott_inspect_options_init(&i.options);
    const option options[] = {
        {"--stats", NULL, OPTION_FLAG, &i.options.statistics,
         "minimum, maximum, mean, deviation, zeros, NaN of each tensor"},
        {"--json", NULL, OPTION_FLAG, &i.options.json, "one JSON object instead of a table"},
    };
    const command c = {
        .name = "inspect",
        .synopsis = "PATH [options]",
        .about =
            "Lists the tensors of PATH: a safetensors file, its index, a GGUF file, or the folder of a "
            "model,\n"
            "of PEFT adapters, of a checkpoint or of a run (its newest checkpoint). Verifies a checkpoint's "
            "checksums\n"
            "first. Exit code 1: a file is damaged, and the error names the place.",
        COMMAND_OPTIONS(options),
        .operand = "PATH",
        .operands_most = 1,
        .operand_is_model = true};
    int operands, code = options_take(&c, argc, argv, &operands);
    i.path = argv[0];
    return code == OPTIONS_CONTINUE ? cli_run(OTT_LOG_WARNING, print_listing, &i) : code;
}
