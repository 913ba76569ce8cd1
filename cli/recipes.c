/* cli/recipes: `ottava recipes`: lists the FP8 recipes. */
#include "cli.h"

int verb_recipes(int argc, char **argv) {
    bool json = false;
    const option options[] = {
        {"--json", NULL, OPTION_FLAG, &json, "one JSON object instead of a table"},
    };
    const command c = {
        .name = "recipes",
        .synopsis = "[options]",
        .about =
            "Lists the FP8 recipes: how each stores input, weight and grad_output of a linear layer for its\n"
            "GEMMs, its scales, the tensors kept for the backward pass, and the devices that can run it.\n"
            "An entry is the format (e4m3, e5m2, or high for the activation format), what shares a scale\n"
            "(default: tensor) and the scale's rule. The same words set single operands:\n"
            "ottava train ... --float8.input=\"e4m3 1x128 pow2\".",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;

    output out;
    ott_context *context;
    output_open(&out);
    ott_status status = cli_open_context(&context);
    if (status != OTT_OK) return cli_fail(status);
    status = ott_recipe_table(context, json, output_write, &out);
    code = output_close(&out, status == OTT_OK ? CLI_DONE : cli_fail(status));
    ott_context_close(context);
    return code;
}
