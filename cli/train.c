/* cli/train: `ottava train`: trains a model, with log lines, a live line on a terminal, and stop signals. */
#include "cli.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct training {
    output out;
    ott_context *context;
    int64_t step;  /* last reported step; 0: none yet */
    bool complete; /* the last step of the run is done */
} training;

/* Formats 12345678 as "12,345,678". */
static void with_commas(double value, char out[32]) {
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%.0f", value < 0 || value > 1e15 ? 0.0 : value), at = 0;
    for (int i = 0; i < count; i++) {
        out[at++] = digits[i];
        if (count - 1 - i > 0 && (count - 1 - i) % 3 == 0) out[at++] = ',';
    }
    out[at] = '\0';
}

static void show_step(void *user, const ott_progress *p) {
    training *t = user;
    char line[256], validation[40] = "", rate[32], left[32];
    t->complete = p->step >= p->max_steps;
    if (t->out.error) ott_stop(t->context); /* the output cannot be written: training saves and ends */
    t->step = p->step;
    if (!t->out.terminal) return;
    if (p->validation_loss == p->validation_loss)
        snprintf(validation, sizeof validation, "  val %.4f", p->validation_loss);
    with_commas(p->tokens_per_second, rate);
    output_duration(p->seconds_left, left);
    /* the most important values come first, because a narrow terminal shows only the beginning */
    snprintf(line, sizeof line, "%sstep %lld/%lld %d%%  ETA %s  loss %.4f%s  %s tokens/s  lr %.2e",
             cli_stop_signal() ? "stopping: " : "", (long long)p->step, (long long)p->max_steps,
             p->max_steps > 0 ? (int)(100 * p->step / p->max_steps) : 0, left, p->loss, validation, rate,
             p->learning_rate);
    output_live(&t->out, line);
}

/* Shows the progress within a long step. */
static void show_work(void *user, const ott_work *w) {
    training *t = user;
    char line[160], step[40] = "first step", left[32];
    if (!t->out.terminal) return;
    if (t->step > 0) snprintf(step, sizeof step, "step %lld", (long long)t->step + 1);
    output_duration(w->seconds_left, left);
    snprintf(line, sizeof line, "%s%s: micro-batch %lld/%lld done, %s left in this step",
             cli_stop_signal() ? "stopping: " : "", step, (long long)w->done, (long long)w->total, left);
    output_live(&t->out, line);
}

/* Prints the help of one section or key; `about` NULL: of the verb and all keys. */
static int print_train_help(ott_context *context, const char *about) {
    output out;
    ott_status status;
    output_open(&out);
    if (about) {
        status = ott_config_help_about(context, about, output_write, &out);
        return output_close(&out, cli_code(status));
    }
    output_text(&out,
                "Usage: ottava train [FILE] [--section.key=value ...]\n"
                "       ottava train --help [SECTION|SECTION.KEY]\n\n"
                "Trains a model. FILE is a TOML or YAML configuration (also --config FILE, or the\n"
                "environment variable CONFIG_FILE). Options override single keys. --help with a section\n"
                "or a key (--help float8) shows only that part. The run folder (--run.dir) receives\n"
                "metrics, checkpoints and the resolved configuration.\n\n"
                "Ctrl-C saves the last complete step and ends. --checkpoint.load_path=latest resumes;\n"
                "--checkpoint.load_path=auto resumes if there is a checkpoint, else starts a new run.\n\n"
                "mpirun -np N ottava train ... or srun --mpi=pmix -n N ... trains on N ranks, sharded\n"
                "automatically (--help distributed). --nproc-per-node=N calls mpirun. SIGUSR1 to all\n"
                "ranks, or to mpirun, saves the last complete step and ends.\n\n"
                "Exit codes: 0 the last step is done, 1 the run failed, 2 bad input. If it saved and\n"
                "ended before the last step: 128 + the signal's number (130 Ctrl-C, 143 SIGTERM, 129\n"
                "SIGHUP, 138 SIGUSR1), and 141 if the reader of its output went away.\n\n");
    status = ott_config_help(context, output_write, &out);
    return output_close(&out, cli_code(status));
}

static void take_color(void *user, const char *value) {
    output *o = user;
    const char *plain = getenv("NO_COLOR"); /* see no-color.org */
    o->color = o->terminal && strcmp(value, "true") == 0 && !(plain && *plain);
}

/* Opens the configuration. Only rank 0 logs lines about it, because all ranks would log the same lines. */
static ott_status open_train_config(training *t, int argc, char **argv, ott_config **config) {
    t->out.quiet = t->out.rank > 0;
    ott_status status = cli_open_config(t->context, &t->out, argc, argv, config);
    t->out.quiet = false;
    return status;
}

/* True if the arguments have --help. *about: the section or key to explain; NULL: all keys. */
static bool asks_for_help(int argc, char **argv, const char **about) {
    *about = NULL;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--help=", 7) == 0) return *about = argv[i] + 7, true;
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
        if (i + 1 < argc && argv[i + 1][0] != '-' && !cli_is_config_file(argv[i + 1])) *about = argv[i + 1];
        return true;
    }
    return false;
}

/* Returns the exit code, which shows whether the run is complete. */
static int end_code(const training *t) {
    if (t->complete) return CLI_DONE;
    if (cli_stop_signal()) return CLI_SIGNAL + cli_stop_signal();
    return t->out.error == EPIPE ? CLI_SIGNAL + SIGPIPE : CLI_DONE;
}

static int run_training(training *t, int argc, char **argv) {
    ott_config *config = NULL;
    ott_train_options options;
    cli_stop_begin(t->context, CLI_STOP_SAVING);
    ott_status status = open_train_config(t, argc, argv, &config);
    int code = status == OTT_OK ? cli_fetch_models(&t->out, config, true) : cli_fail(status);
    if (code == CLI_DONE) {
        ott_config_get(config, "metrics.color", take_color, &t->out);
        ott_train_options_init(&options);
        options.progress = show_step;
        options.work = show_work;
        options.user = t;
        status = ott_train(t->context, config, &options);
        output_live_end(&t->out); /* ends the live line, because an error line may follow */
        code = status == OTT_OK ? end_code(t) : cli_fail(status);
    }
    ott_config_close(config);
    cli_stop_end();
    return output_close(&t->out, code);
}

/* The configuration reads the arguments of train. This table has only the options that are no keys. */
static int complete_train(char **argv) {
    static const option options[] = {
        {"--config", "FILE", OPTION_TEXT, NULL, "the configuration, a TOML or YAML file"},
        {"--nproc-per-node", "N", OPTION_TEXT, NULL, "number of ranks to start on this machine"},
    };
    option_texts keys;
    int operands;
    return options_take(&(command){.name = "train", COMMAND_OPTIONS(options), .settings = &keys},
                        OPTIONS_COMPLETE, argv, &operands);
}

int verb_train(int argc, char **argv) {
    training t = {0};
    ott_context_options options;
    const char *about;
    if (argc == OPTIONS_COMPLETE) return complete_train(argv);
    output_open(&t.out);
    ott_context_options_init(&options);
    options.log = output_log;
    options.user = &t.out;
    ott_status status = ott_context_open(&options, &t.context);
    if (status != OTT_OK) return cli_fail(status);
    int code = asks_for_help(argc, argv, &about) ? print_train_help(t.context, about)
                                                 : cli_launch(&t.out, argc, argv);
    if (code == CLI_NOT_LAUNCHED) code = run_training(&t, argc, argv);
    ott_context_close(t.context);
    return code;
}
