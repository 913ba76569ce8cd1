/* cli/pull: `ottava pull`: downloads a model or a dataset of the Hugging Face hub. Also downloads models that
   other verbs name. */
#include "cli.h"
#include "hub/hub.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pull_request {
    const char *name, *revision, *dataset, *config, *split, *out;
    bool weights, prefer_cache; /* as in hub_pull */
} pull_request;

static bool is_stopped(void *user) {
    (void)user;
    return cli_stop_signal() != 0;
}

/* Log lines go to standard error: the output of pull is the folder. Only rank 0 prints them. */
static void log_download(void *user, ott_log_level level, const char *text) {
    (void)user;
    if (output_rank() <= 0) cli_error(0, "%s%s", level == OTT_LOG_WARNING ? "warning: " : "", text);
}

/* Redraws the live line. `total` is in bytes, or in rows. */
static void show_download(void *user, const char *what, int64_t done, int64_t total) {
    char line[200];
    bool rows = strcmp(what, "rows") == 0;
    double unit = rows ? 1 : 1e9;
    snprintf(line, sizeof line, "%.80s  %.*f/%.*f%s  %d%%", what, rows ? 0 : 2, (double)done / unit,
             rows ? 0 : 2, (double)total / unit, rows ? "" : " GB",
             total > 0 ? (int)(100.0 * (double)done / (double)total) : 100);
    output_live(user, line);
}

/* Downloads a model, or a dataset if r->dataset is not NULL. On a terminal the live line shows the progress.
   In a pipe the log shows it. */
static int download(output *out, const pull_request *r, char folder[PATH_MAX]) {
    const logger log = {.callback = log_download, .level = out->terminal ? OTT_LOG_WARNING : OTT_LOG_INFO};
    const hub_caller caller = {.cancellation = {.log = &log, .stop = is_stopped, .user = out},
                               .progress = show_download,
                               .retry_seconds = 1};
    ott_status status = r->dataset
                            ? hub_pull_rows(&caller, r->dataset, r->config, r->split, r->out)
                            : hub_pull(&caller, r->name, r->revision, r->weights, r->prefer_cache, folder);
    output_live_end(out);
    if (status != OTT_OK) cli_wait_for_rank_0();
    return status == OTT_ERR_STOPPED ? CLI_SIGNAL + cli_stop_signal() : cli_code(status);
}

int cli_fetch(output *out, const char *name, bool weights, char folder[PATH_MAX]) {
    const pull_request r = {.name = name, .revision = "main", .weights = weights, .prefer_cache = true};
    return download(out, &r, folder);
}

/* A folder that replaces an argument. Like arguments, it stays valid until the program ends. */
typedef struct fetched_folder {
    struct fetched_folder *previous;
    char path[];
} fetched_folder;

static fetched_folder *fetched_folders;

/* Returns NULL if memory runs out. */
static const char *keep_folder(const char *path) {
    size_t bytes = strlen(path) + 1;
    fetched_folder *f = malloc(sizeof *f + bytes);
    if (!f) return NULL;
    f->previous = fetched_folders;
    fetched_folders = f;
    return memcpy(f->path, path, bytes);
}

int cli_fetch_argument(const char **name, bool weights) {
    char folder[PATH_MAX];
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
    if (code == CLI_DONE && !(*name = keep_folder(folder))) code = cli_error(CLI_FAILED, "out of memory");
    return code;
}

/* ---- the verb ---- */

static int pull(ott_context *context, output *out, void *user) {
    const pull_request *r = user;
    char folder[PATH_MAX];
    cli_stop_begin(context, CLI_STOP_PLAIN);
    int code = download(out, r, folder);
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
        return cli_error(CLI_BAD_INPUT, "pull: \"%s\" and --dataset are both given; give one", r->name);
    if (r->dataset && !r->out)
        return cli_error(CLI_BAD_INPUT, "pull: --out is missing: --out=FILE.jsonl receives the rows");
    return CLI_DONE;
}

int verb_pull(int argc, char **argv) {
    pull_request r = {.revision = "main", .split = "train", .weights = true};
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
                 "uses too, and prints its folder. A broken download is resumed, and every file's\n"
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
