/* cli/report: `ottava report`: compares runs, as text and as an HTML page. */
#include "cli.h"

enum { WIDEST_PLOT = 80, HIGHEST_PLOT = 20 };

static ott_status report(ott_context *context, char **runs, int count, const ott_report_options *options,
                         output *out) {
    ott_status status = ott_report(context, (const char *const *)runs, count, options, output_write, out);
    if (status == OTT_OK && options->html && !options->json) {
        output_text(out, "\nPage: ");
        output_line(out, options->html);
    }
    return status;
}

int verb_report(int argc, char **argv) {
    ott_report_options o;
    bool no_plot = false, json = false;
    ott_report_options_init(&o);
    const option options[] = {
        {"--out", "FILE", OPTION_TEXT, &o.html, "write an HTML page with the curves, which works offline"},
        {"--title", "TEXT", OPTION_TEXT, &o.title, "title of the page"},
        {"--no-plot", NULL, OPTION_FLAG, &no_plot, "no plot in the terminal"},
        {"--json", NULL, OPTION_FLAG, &json, "one JSON object instead of table and plot"},
    };
    const command c = {
        .name = "report",
        .synopsis = "RUN_DIR... [options]",
        .about = "Compares runs with the first one: losses, gaps, speed, memory, number of FP8 GEMMs.\n"
                 "Runs that differ only in the seed become one row: means and their standard errors.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operand = "RUN_DIR",
        .operands_most = 1000};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    int width = output_width();
    o.json = json;
    o.plot_width = no_plot ? 0 : width < WIDEST_PLOT ? width : WIDEST_PLOT;
    o.plot_height = no_plot ? 0 : HIGHEST_PLOT;

    output out;
    ott_context *context;
    output_open(&out);
    ott_status status = cli_open_context(&context);
    if (status != OTT_OK) return cli_fail(status);
    status = report(context, argv, operands, &o, &out);
    code = output_close(&out, status == OTT_OK ? CLI_DONE : cli_fail(status));
    ott_context_close(context);
    return code;
}
