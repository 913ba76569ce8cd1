/* cli/recipes: `ottava recipes`: lists the FP8 recipes. */
#include "cli.h"

static int print_recipes(ott_context *context, output *out, void *json) {
    return cli_code(ott_recipe_table(context, *(const int *)json, output_write, out));
}

int verb_recipes(int argc, char **argv) {
    int json = 0;
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
        COMMAND_OPTIONS(options)};
    int operands, code = options_take(&c, argc, argv, &operands);
    return code == OPTIONS_CONTINUE ? cli_run(OTT_LOG_WARNING, print_recipes, &json) : code;
}
