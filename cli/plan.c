/* cli/plan: `ottava plan`: estimates the memory and speed of a run. */
#include "plan/plan.h"
#include "cli.h"
#include <stdlib.h>
#include <string.h>

static const char about[] =
    "Estimates the memory and speed of the configuration FILE: parameters, memory by kind,\n"
    "time by kind of work, communication, tokens/s and MFU, and where FP8 pays off. FILE and\n"
    "--section.key=value are as in ottava train. Nothing is started: data, device and other\n"
    "ranks may be missing. The memory comes from train's dry run. Exit code 1: the run does\n"
    "not fit; the plan then names settings that would help.";

/* Moves plan's own options to the front of argv, and the arguments of the configuration to `rest`. */
static int split_arguments(const command *c, int argc, char **argv, char **rest, int *rest_count) {
    int count = 0;
    for (int i = 0; i < argc; i++) {
        size_t length = strcspn(argv[i], "=");
        bool own = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0, value = false;
        for (int k = 0; k < c->option_count; k++) {
            const option *o = &c->options[k];
            if (strlen(o->name) != length || strncmp(o->name, argv[i], length) != 0) continue;
            own = true;
            value = o->value && !argv[i][length];
        }
        if (!own)
            rest[(*rest_count)++] = argv[i];
        else
            argv[count++] = argv[i];
        if (value && i + 1 < argc) argv[count++] = argv[++i];
    }
    return count;
}

static ott_status plan_with_config(ott_context *context, const plan_options *o, int argc, char **argv,
                                   output *out, bool *fits) {
    ott_config *config;
    ott_status status = cli_open_config(context, NULL, argc, argv, &config);
    if (status != OTT_OK) return status;
    status = plan_run(context, config, o, output_write, out, fits);
    ott_config_close(config);
    return status;
}

static int print_plan(const plan_options *o, int argc, char **argv) {
    output out;
    ott_context *context;
    bool fits = true;
    output_open(&out);
    ott_status status = cli_open_context(&context);
    if (status != OTT_OK) return cli_fail(status);
    status = plan_with_config(context, o, argc, argv, &out, &fits);
    int code = output_close(&out, status == OTT_OK ? CLI_DONE : cli_fail(status));
    if (code == CLI_DONE && !fits)
        code = cli_error(CLI_FAILED,
                         "plan: the run does not fit in memory; the plan names settings that would help");
    ott_context_close(context);
    return code;
}

int verb_plan(int argc, char **argv) {
    plan_options o;
    bool json = false, sweep = false;
    plan_options_init(&o);
    const option options[] = {
        {"--device", "NAME", OPTION_TEXT, &o.device,
         "cpu: this machine, measured; a100, h100, h100-500w, h200, b200: data-sheet values (cpu)"},
        {"--rates", "KEY=N,...", OPTION_TEXT, &o.rates,
         "replace values of the device: bf16_tflops, fp8_tflops, memory_gbs, link_gbs, gib, ..."},
        {"--ranks", "N", OPTION_INT64, &o.ranks, "processes, each with its own device (1)"},
        {"--sweep", NULL, OPTION_FLAG, &sweep,
         "also try other meshes, micro-batches and recomputation, and list the fastest that fit"},
        {"--json", NULL, OPTION_FLAG, &json, "one JSON object instead of a page"},
    };
    const command c = {.name = "plan",
                       .synopsis = "FILE [--section.key=value ...] [options]",
                       .about = about,
                       .options = options,
                       .option_count = sizeof options / sizeof *options};
    char **rest = calloc((size_t)argc + 1, sizeof *rest);
    int operands, rest_count = 0, code = CLI_FAILED;
    if (!rest) return cli_error(CLI_FAILED, "plan: out of memory");
    int own = split_arguments(&c, argc, argv, rest, &rest_count);
    code = options_take(&c, own, argv, &operands);
    o.json = json;
    o.sweep = sweep;
    if (code == OPTIONS_CONTINUE) code = print_plan(&o, rest_count, rest);
    free(rest);
    return code;
}
