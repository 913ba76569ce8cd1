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

typedef struct plan_request {
    plan_options options;
    char **arguments; /* [count] arguments of the configuration */
    int count;
    bool fits; /* the run fits in memory */
} plan_request;

static int print_plan(ott_context *context, output *out, void *user) {
    plan_request *r = user;
    ott_config *config;
    ott_status status = cli_open_config(context, NULL, r->count, r->arguments, &config);
    if (status != OTT_OK) return cli_fail(status);
    cli_stop_begin(context, CLI_STOP_PLAIN);
    int code = cli_fetch_models(out, config, false);
    cli_stop_end();
    if (code != CLI_DONE) return ott_config_close(config), code;
    status = plan_run(context, config, &r->options, output_write, out, &r->fits);
    ott_config_close(config);
    return cli_code(status);
}

int verb_plan(int argc, char **argv) {
    option_texts keys; /* only for completion and help: split_arguments takes the keys away */
    plan_request r = {.fits = true};
    plan_options *o = &r.options;
    plan_options_init(o);
    const option options[] = {
        {"--device", "cpu|a100|l40s|rtx-4090|rtx-5090|h100|h100-500w|h200|b200", OPTION_TEXT, &o->device,
         "cpu: this machine, measured; others: data-sheet values (cpu)"},
        {"--rates", "KEY=N,...", OPTION_TEXT, &o->rates,
         "replace values of the device: bf16_tflops, fp8_tflops, memory_gbs, link_gbs, gib, ..."},
        {"--ranks", "N", OPTION_INT64, &o->ranks, "processes, each with its own device (1)"},
        {"--sweep", NULL, OPTION_FLAG, &o->sweep,
         "also try other meshes, micro-batches and recomputation, and list the fastest that fit"},
        {"--json", NULL, OPTION_FLAG, &o->json, "one JSON object instead of a page"},
    };
    const command c = {.name = "plan",
                       .synopsis = "FILE [--section.key=value ...] [options]",
                       .about = about,
                       COMMAND_OPTIONS(options),
                       .settings = &keys};
    int operands;
    if (argc == OPTIONS_COMPLETE) return options_take(&c, argc, argv, &operands);
    r.arguments = calloc((size_t)argc + 1, sizeof *r.arguments);
    if (!r.arguments) return cli_error(CLI_FAILED, "plan: out of memory");
    argc = split_arguments(&c, argc, argv, r.arguments, &r.count);
    int code = options_take(&c, argc, argv, &operands);
    if (code == OPTIONS_CONTINUE) code = cli_run(OTT_LOG_WARNING, print_plan, &r);
    free(r.arguments);
    if (code == CLI_DONE && !r.fits)
        return cli_error(CLI_FAILED,
                         "plan: the run does not fit in memory; the plan names settings that would help");
    return code;
}
