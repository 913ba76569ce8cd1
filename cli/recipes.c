/* cli/recipes: `ottava recipes`: the FP8 recipes side by side. */
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
            "matrix products, where its scales come from, what it keeps for the backward pass, which\n"
            "devices can run it. A word is e4m3 or e5m2, or high for the activation format; then what\n"
            "shares a scale (tensor when nothing is said), then the scale's rule. The same words set single\n"
            "operands: ottava train ... --float8.input=\"e4m3 1x128 pow2\".",
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
