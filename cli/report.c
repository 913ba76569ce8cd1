/* cli/report: `ottava report`: compares runs, as text and as an HTML page. */
#include "cli.h"

enum { WIDEST_PLOT = 80, HIGHEST_PLOT = 20 };

typedef struct comparison {
    const char *const *runs;
    int count;
    ott_report_options options;
} comparison;

static int print_comparison(ott_context *context, output *out, void *user) {
    const comparison *r = user;
    ott_status status = ott_report(context, r->runs, r->count, &r->options, output_write, out);
    if (status == OTT_OK && r->options.html && !r->options.json) {
        output_text(out, "\nPage: ");
        output_line(out, r->options.html);
    }
    return cli_code(status);
}

int verb_report(int argc, char **argv) {
    comparison r = {.runs = (const char *const *)argv};
    ott_report_options *o = &r.options;
    int no_plot = 0, width = output_width();
    ott_report_options_init(o);
    const option options[] = {
        {"--out", "FILE", OPTION_TEXT, &o->html, "write an HTML page with the curves, which works offline"},
        {"--title", "TEXT", OPTION_TEXT, &o->title, "title of the page"},
        {"--no-plot", NULL, OPTION_FLAG, &no_plot, "no plot in the terminal"},
        {"--json", NULL, OPTION_FLAG, &o->json, "one JSON object instead of table and plot"},
    };
    const command c = {
        .name = "report",
        .synopsis = "RUN_DIR... [options]",
        .about = "Compares runs with the first one: losses, gaps, speed, memory, number of FP8 GEMMs.\n"
                 "Runs that differ only in the seed become one row: means and their standard errors.",
        COMMAND_OPTIONS(options),
        .operand = "RUN_DIR",
        .operands_most = 1000};
    int code = options_take(&c, argc, argv, &r.count);
    if (code != OPTIONS_CONTINUE) return code;
    o->plot_width = no_plot ? 0 : width < WIDEST_PLOT ? width : WIDEST_PLOT;
    o->plot_height = no_plot ? 0 : HIGHEST_PLOT;
    return cli_run(OTT_LOG_WARNING, print_comparison, &r);
}
