/*
 * cli: declarations that the verbs of the program share. The program uses only the public API, bench/bench.h,
 * plan/plan.h, plan/doctor.h and hub/hub.h. Each verb is one function in one file. main.c has the table of
 * verbs.
 *
 * Exit codes: 0 done, 1 the run failed, 2 bad input (ott_status_exit_code), 128 + N if signal N ended the
 * program early (SIGPIPE if training ended because the reader of its output went away). Errors are printed on
 * standard error, as one line "ottava: ...".
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <limits.h>
#include <ottava/ottava.h>
#include <stdbool.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_BAD_INPUT = 2, CLI_SIGNAL = 128 };

/* ---- verbs. argc, argv: the arguments after the verb. They return the exit code. ---- */

int verb_train(int argc, char **argv);
int verb_generate(int argc, char **argv);
int verb_eval(int argc, char **argv);
int verb_tokenize(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_inspect(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_pull(int argc, char **argv);
int verb_recipes(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_completion(int argc, char **argv);

/* ---- errors (output.c) ---- */

/* Prints one line and returns exit_code. For CLI_BAD_INPUT it first calls cli_wait_for_rank_0, because all
   ranks of a job have the same arguments. */
int cli_error(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the message of the library's last error, without waiting for rank 0. Returns its exit code. */
int cli_fail(ott_status status);
int cli_code(ott_status status); /* CLI_DONE, or cli_fail of an error */
/* Call this before an error that all ranks find, so that only rank 0 prints it: the launcher ends the waiting
   ranks when rank 0 exits. Returns after 3 s if rank 0 has no such error. Rank 0 does not wait. */
void cli_wait_for_rank_0(void);

/* ---- standard output (output.c) ---- */

/* Standard output. It is unbuffered, so that text appears and errors are noticed immediately. If the reader
   of a pipe has closed it (EPIPE), the program ends without a message. Any other failure is an error. While a
   pipe is full, a write blocks. After a stop request it blocks for at most 2 s, and then the text is lost. */
typedef struct output {
    bool terminal;     /* standard output is a terminal, on which the live line can be redrawn */
    bool color;        /* print warnings in color; false until metrics.color was read */
    bool ends_at_once; /* a failed write ends the program immediately */
    bool live_shown;
    bool quiet;       /* print no log lines */
    int rank;         /* rank of this process (output_rank) */
    int error;        /* errno of the first failed write; 0: none */
    double live_time; /* seconds; when the live line was last redrawn */
    char live[256];   /* text of the live line */
} output;

/* Returns the rank of this process, from the launcher's environment variables; -1 without a launcher. */
int output_rank(void);
void output_open(output *o);
/* Writes bytes unchanged. The live line must not be shown. */
void output_bytes(output *o, const void *data, size_t bytes);
void output_text(output *o, const char *text); /* writes text above the live line */
void output_line(output *o, const char *text); /* writes the text and a newline above the live line */
/* Sets the live line, which is shown at the bottom of a terminal. It is redrawn at most ten times a second.
   Does nothing if the output is a pipe. */
void output_live(output *o, const char *text);
void output_live_end(output *o);
/* Closes the output. Returns the program's exit code: exit_code, or another one if a write failed. */
int output_close(output *o, int exit_code);
int output_width(void); /* columns of the terminal; 80 if there is none */
/* Writes a time as "1:02:03"; "-" if it is unknown. */
void output_duration(double seconds, char out[32]);

/* Callbacks that write to an output: an ott_text_fn and an ott_log_fn. user: the output. */
void output_write(void *user, const char *text);
void output_log(void *user, ott_log_level level, const char *text); /* "[ottava] date - root - INFO - text" */

/* The work of a verb. Returns an exit code. */
typedef int (*cli_work)(ott_context *context, output *out, void *user);
/* Opens standard output and a context, calls `work` and closes both. The context logs `level` and more severe
   levels to standard error. Returns the exit code. */
int cli_run(ott_log_level level, cli_work work, void *user);
/* Opens the configuration that the arguments describe. If they name no file, uses the file that the
   environment variable CONFIG_FILE names, and logs this (log NULL: no log). */
ott_status cli_open_config(ott_context *context, output *log, int argc, char **argv, ott_config **out);
/* Downloads the models that the configuration names. weights: false if only their other files are needed.
   Call it between cli_stop_begin and cli_stop_end. Returns an exit code; it printed the error. */
int cli_fetch_models(output *out, const ott_config *config, bool weights);
/* True for the path of a configuration file, or an option that gives the path. */
bool cli_is_config_file(const char *argument);

/* `train --nproc-per-node N`, as in automodel and torchrun: replaces this process by `mpirun -np N ottava
   train` with the other arguments. Returns CLI_NOT_LAUNCHED if the option is missing, if N is not 2 to 4096,
   or if mpirun started this process. Returns an exit code after an error. */
enum { CLI_NOT_LAUNCHED = -1 };
int cli_launch(output *log, int argc, char **argv);

/* Finds the folder of a hub name in the cache, or downloads the model. weights: false if only its other files
   are needed. Call it between cli_stop_begin and cli_stop_end. Returns an exit code; it printed the error. */
int cli_fetch(output *out, const char *name, bool weights, char folder[PATH_MAX]);
/* If *name is a hub name, sets it to the folder that cli_fetch finds, and lets signals stop the download. */
int cli_fetch_argument(const char **name, bool weights);

/* What signals do. CLI_STOP_PLAIN: SIGINT or SIGTERM stops the work; the same signal again ends the program.
   CLI_STOP_SAVING: SIGINT, SIGTERM, SIGHUP or SIGUSR1 lets the work save and stop; only a second SIGINT ends
   the program. */
typedef enum cli_stop_kind { CLI_STOP_PLAIN, CLI_STOP_SAVING } cli_stop_kind;
/* Lets SIGINT and SIGTERM stop the work of this context (ott_stop), until cli_stop_end. */
void cli_stop_begin(ott_context *context, cli_stop_kind kind);
void cli_stop_end(void);
int cli_stop_signal(void); /* the signal that requested a stop; 0: none */

/* ---- options of a verb (options.c) ---- */

typedef enum option_type {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_MODEL,     /* a folder or a hub name, which options_take replaces by its folder */
    OPTION_TOKENIZER, /* the same; only the tokenizer is needed */
    OPTION_INT,
    OPTION_INT64,
    OPTION_UINT64,
    OPTION_REAL,
    OPTION_TEXTS
} option_type;

/* All values of an option that may be given several times. */
typedef struct option_texts {
    const char *text[32];
    int count;
} option_texts;

/* An option. `to` points to an int (1: the flag is given), const char *, int, int64_t, uint64_t, double or
   option_texts, depending on the type. The caller first stores the default in *to, and options_take then
   stores the value there. */
typedef struct option {
    const char *name; /* name of the option, "--max-tokens" */
    /* The value in the help, "N". Words that the option takes are separated by |, "cpu|cuda|auto"; a word in
       capitals is the name of further values. NULL: the option is a flag. */
    const char *value;
    option_type type;
    void *to;
    const char *help;
} option;

typedef struct command {
    const char *name;      /* name of the verb, "generate" */
    const char *synopsis;  /* usage, "RUN_DIR --prompt TEXT [options]" */
    const char *about;     /* sentences that describe the verb */
    const option *options; /* set both members with COMMAND_OPTIONS(array) */
    int option_count;
    const char *operand;    /* name of the operand, "RUN_DIR" */
    int operands_most;      /* maximum number of operands; the minimum is 1. 0: no operand is allowed */
    bool operand_optional;  /* the minimum number of operands is 0 */
    const char *words;      /* words that the first operand may be, "gemm|gemv"; NULL: any text */
    bool operand_is_model;  /* operands are handled as OPTION_MODEL */
    option_texts *settings; /* receives --section.key=value, for the library; NULL: not allowed */
} command;

#define COMMAND_OPTIONS(array) .options = array, .option_count = sizeof(array) / sizeof *(array)

/* Help texts that several verbs share. */
#define HELP_DEVICE                                                                                          \
    "where to compute: cpu; cuda: a GPU; cuda:1: the second GPU; auto: a usable GPU, else cpu (auto)"
#define DEVICES      "cpu|cuda|cuda:1|auto"
#define HELP_THREADS "CPU threads; 0: all cores (0)"
#define HELP_PRECISION                                                                                       \
    "trained (as in training; bf16 for a folder), fp32, bf16, fp16, fp8, or a recipe: tensorwise, "          \
    "rowwise, ... (trained)"
#define PRECISIONS     "trained|fp32|bf16|fp16|fp8|tensorwise|rowwise|RECIPE"
#define HELP_TOKENIZER "folder, tokenizer.json or tokenizer.model, instead of the model's own"
#define HELP_BASE      "folder of the base weights of a run with adapters, if they were moved"

/* OPTIONS_CONTINUE: the verb continues. OPTIONS_COMPLETE is a special argc of a verb: argv has the previous
   and the current word of a command line. The verb then only calls options_take, which prints the candidates
   for the current word. Each line is a word, or a word, a tab and its meaning. */
enum { OPTIONS_CONTINUE = -1, OPTIONS_COMPLETE = -2 };
/* Prints the words of "gemm|gemv|FILE" that are not in capitals, one a line. */
void options_print_words(output *out, const char *words);
/* Prints the candidates for the last of the `count` words after "ottava" (main.c). */
int cli_complete(int count, char **words);

/* Reads the options (--name=value or --name value; "--" ends them) and moves the operands to the front of
   argv. *operands: number of operands. Downloads models that the arguments name. Returns OPTIONS_CONTINUE, or
   an exit code: 0 after --help, 2 after an error, which it printed. */
int options_take(const command *c, int argc, char **argv, int *operands);
/* Returns the word in words[count] that is nearest to `word`; NULL if none is near. */
const char *options_nearest(const char *word, const char *const *words, int count);

#endif
