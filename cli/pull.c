/* cli/pull: `ottava pull`: downloads a model or a dataset of the Hugging Face hub. Also downloads models that
   other verbs name. */
#include "cli.h"
#include "hub/hub.h"
#include <stdio.h>
#include <string.h>

/* ---- what the download reports ---- */

static bool is_stopped(void *user) {
    (void)user;
    return cli_stop_signal() != 0;
}

/* Log lines go to standard error: the output of pull is the folder. Only rank 0 prints them. */
static void log_download(void *user, ott_log_level level, const char *text) {
    (void)user;
    if (output_rank() <= 0) cli_error(0, "%s%s", level == OTT_LOG_WARNING ? "warning: " : "", text);
}

static void show_bytes(void *user, const char *what, int64_t done, int64_t total) {
    char line[200];
    snprintf(line, sizeof line, "%.80s  %.2f/%.2f GB  %d%%", what, (double)done / 1e9, (double)total / 1e9,
             total > 0 ? (int)(100.0 * (double)done / (double)total) : 100);
    output_live(user, line);
}

static void show_rows(void *user, const char *what, int64_t done, int64_t total) {
    char line[120];
    snprintf(line, sizeof line, "%s %lld/%lld", what, (long long)done, (long long)total);
    output_live(user, line);
}

/* On a terminal the live line shows the progress, in a pipe the log does. */
static hub_caller describe_caller(output *out, const logger *log) {
    return (hub_caller){.cancellation = {.log = log, .stop = is_stopped, .user = out},
                        .progress = show_bytes,
                        .retry_seconds = 1};
}

static logger open_log(const output *out) {
    return (logger){.callback = log_download, .level = out->terminal ? OTT_LOG_WARNING : OTT_LOG_INFO};
}

static int end_download(output *out, ott_status status) {
    output_live_end(out);
    return status == OTT_ERR_STOPPED ? CLI_SIGNAL + cli_stop_signal() : cli_code(status);
}

/* ---- models that other verbs name ---- */

int cli_fetch(output *out, const char *name, bool weights, char folder[CLI_PATH]) {
    const logger log = open_log(out);
    const hub_caller caller = describe_caller(out, &log);
    return end_download(out, hub_find_or_pull(&caller, name, weights, folder));
}

int cli_fetch_argument(const char **name, bool weights) {
    char folder[CLI_PATH];
    ott_context *context;
    output out;
    if (!*name || !hub_is_name(*name)) return CLI_DONE;
    output_open(&out);
    ott_status status = ott_context_open(NULL, &context);
    if (status != OTT_OK) return cli_fail(status);
    cli_stop_begin(context, CLI_STOP_PLAIN);
    int code = cli_fetch(&out, *name, weights, folder);
    cli_stop_end();
    ott_context_close(context);
    if (code == CLI_DONE && !(*name = strdup(folder))) code = cli_error(CLI_FAILED, "out of memory");
    return code;
}

/* ---- the verb ---- */

typedef struct pull_request {
    const char *name, *revision, *dataset, *config, *split, *out;
} pull_request;

static int pull(ott_context *context, output *out, void *user) {
    const pull_request *r = user;
    char folder[CLI_PATH];
    const logger log = open_log(out);
    hub_caller caller = describe_caller(out, &log);
    if (r->dataset) caller.progress = show_rows;
    cli_stop_begin(context, CLI_STOP_PLAIN);
    ott_status status = r->dataset ? hub_pull_rows(&caller, r->dataset, r->config, r->split, r->out)
                                   : hub_pull(&caller, r->name, r->revision, true, folder);
    int code = end_download(out, status);
    cli_stop_end();
    if (code == CLI_DONE) output_line(out, r->dataset ? r->out : folder);
    return code;
}

static int check_pull_request(const pull_request *r) {
    if (!r->dataset && !r->name)
        return cli_error(CLI_BAD_INPUT, "pull: NAME is missing: ottava pull ORGANIZATION/MODEL");
    if (!r->dataset && (r->config || r->out))
        return cli_error(CLI_BAD_INPUT, "pull: --config, --split and --out need --dataset NAME");
    if (r->dataset && r->name)
        return cli_error(CLI_BAD_INPUT, "pull: \"%s\" and --dataset are given; give one of them", r->name);
    if (r->dataset && !r->out)
        return cli_error(CLI_BAD_INPUT, "pull: --out is missing: --out=FILE.jsonl receives the rows");
    return CLI_DONE;
}

int verb_pull(int argc, char **argv) {
    pull_request r = {.revision = "main", .split = "train"};
    const option options[] = {
        {"--revision", "R", OPTION_TEXT, &r.revision, "branch, tag or commit of the model (main)"},
        {"--dataset", "NAME", OPTION_TEXT, &r.dataset, "write a dataset's rows as JSONL"},
        {"--config", "C", OPTION_TEXT, &r.config, "its configuration (the only one, or default)"},
        {"--split", "S", OPTION_TEXT, &r.split, "its split (train)"},
        {"--out", "FILE", OPTION_TEXT, &r.out, "JSONL file to write; complete or absent"},
    };
    const command c = {
        .name = "pull",
        .synopsis = "NAME [--revision R]\n"
                    "       ottava pull --dataset NAME [--config C] [--split S] --out FILE",
        .about = "Downloads a model of the Hugging Face hub into the cache that Python's huggingface_hub\n"
                 "uses too, and prints its folder. A download that was cut is resumed, and every file's\n"
                 "checksum is verified. All verbs take the name of a model where they take its folder,\n"
                 "and download a model that the cache lacks. pull again fetches a newer version.\n\n"
                 "Environment: HF_TOKEN (private models and models with a license to accept), HF_HOME and\n"
                 "HF_HUB_CACHE (folders), HF_HUB_OFFLINE=1 (no network), HF_ENDPOINT (another hub).",
        COMMAND_OPTIONS(options),
        .operand = "NAME",
        .operands_most = 1,
        .operand_optional = true};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    r.name = operands > 0 ? argv[0] : NULL;
    code = check_pull_request(&r);
    return code == CLI_DONE ? cli_run(OTT_LOG_WARNING, pull, &r) : code;
}
