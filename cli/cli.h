/*
 * cli: declarations shared by the program's verbs. The program uses only the public API, bench/bench.h,
 * plan/plan.h and plan/doctor.h. Each verb is one file with one function; main.c has the table of verbs.
 *
 * Exit codes: 0 done, 1 the run failed, 2 bad input (ott_status_exit_code), 128 + N if signal N ended the
 * program early (SIGPIPE if the reader of a training's output went away). Errors are printed as one line
 * "ottava: ..." on standard error.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <ottava/ottava.h>
#include <stdbool.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_BAD_INPUT = 2, CLI_SIGNAL = 128 };

/* ---- verbs: argc and argv are the arguments after the verb; the result is the exit code ---- */

int verb_train(int argc, char **argv);
int verb_generate(int argc, char **argv);
int verb_eval(int argc, char **argv);
int verb_tokenize(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_inspect(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_recipes(int argc, char **argv);
int verb_doctor(int argc, char **argv);

/* ---- errors (output.c) ---- */

/* Prints one line and returns exit_code. For CLI_BAD_INPUT it calls cli_wait_for_rank_0 first, because all
   ranks of a job have the same arguments. */
int cli_error(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the library's text for its last failure, immediately on every rank. Returns the exit code of
   `status`. */
int cli_fail(ott_status status);
/* Lets only rank 0 print an error that all ranks have: any other rank waits 3 s for the launcher to end it.
   If it returns, only this rank has the error. */
void cli_wait_for_rank_0(void);

/* ---- standard output (output.c) ---- */

/*
 * Writes are unbuffered, so that text streams and errors are detected immediately. If the reader went away
 * (EPIPE), the program ends quietly; any other failure is an error. A write waits while a pipe is full. After
 * a stop request it waits 2 s at most and then drops the text.
 */
typedef struct output {
    bool terminal;     /* standard output is a terminal, so the live line can be redrawn */
    bool color;        /* print warnings in color; false until metrics.color is read */
    bool ends_at_once; /* a failed write ends the program immediately */
    bool live_shown;
    bool quiet;       /* drop log lines */
    int rank;         /* output_rank */
    int error;        /* errno of the first failed write; 0: none */
    double live_time; /* time of the last redraw, in seconds */
    char live[256];   /* the live line */
} output;

/* This process's rank according to the launcher's environment variables; -1 without a launcher. */
int output_rank(void);
void output_open(output *o);
/* Writes bytes unchanged; no live line may be shown. */
void output_bytes(output *o, const void *data, size_t bytes);
void output_text(output *o, const char *text); /* writes text above the live line */
void output_line(output *o, const char *text); /* the same with a newline */
/* Shows the live line at the bottom of a terminal, redrawn at most ten times a second. Does nothing in a
   pipe. */
void output_live(output *o, const char *text);
void output_live_end(output *o);
/* Closes the output. Returns the program's exit code: exit_code unless a write failed. */
int output_close(output *o, int exit_code);
int output_width(void); /* columns of the terminal; 80 without one */
/* Writes "1:02:03"; "-" if there is no estimate. */
void output_duration(double seconds, char out[32]);

/* ott_text_fn and ott_log_fn callbacks; `user` is an output. */
void output_write(void *user, const char *text);
void output_log(void *user, ott_log_level level, const char *text); /* "[ottava] date - root - INFO - text" */
/* Opens a context that logs warnings and errors to standard error, for verbs with their result on standard
   output. */
ott_status cli_open_context(ott_context **out);
ott_status cli_open_context_at(int level, ott_context **out); /* the same with a log level: OTT_LOG_INFO */
/* Opens the configuration of the arguments. If they name no file, uses the file of the environment variable
   CONFIG_FILE, with a log line (`log` may be NULL). */
ott_status cli_open_config(ott_context *context, output *log, int argc, char **argv, ott_config **out);
bool cli_is_config_file(
    const char *argument); /* true for a path of a configuration file, or an option for it */

/* `train --nproc-per-node N`, as in automodel and torchrun: replaces this process by `mpirun -np N ottava
   train` with the other arguments. Returns CLI_NOT_LAUNCHED if the option is missing or 1, or mpirun started
   this process; after an error, an exit code. */
enum { CLI_NOT_LAUNCHED = -1 };
int cli_launch(output *log, int argc, char **argv);

/* PLAIN: a second signal ends the program. SAVING: the work saves before it stops; SIGHUP and SIGUSR1 stop it
   too; only a second SIGINT ends the program. */
typedef enum cli_stop_kind { CLI_STOP_PLAIN, CLI_STOP_SAVING } cli_stop_kind;
/* From now on SIGINT and SIGTERM stop the work of this context (ott_stop), until cli_stop_end. */
void cli_stop_begin(ott_context *context, cli_stop_kind kind);
void cli_stop_end(void);
int cli_stop_signal(void); /* the first signal that requested a stop; 0 if there was none */

/* ---- options of a verb (options.c) ---- */

typedef enum option_type {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_INT,
    OPTION_INT64,
    OPTION_UINT64,
    OPTION_REAL,
    OPTION_TEXTS
} option_type;

/* The values of an option that may be given several times. */
typedef struct option_texts {
    const char *text[32];
    int count;
} option_texts;

/* `to` points to the bool, const char *, int, int64_t, uint64_t, double or option_texts that receives the
   value. The caller stores the default there first. */
typedef struct option {
    const char *name;  /* "--max-tokens" */
    const char *value; /* the value's name in the help, "N"; NULL for a flag */
    option_type type;
    void *to;
    const char *help;
} option;

typedef struct command {
    const char *name;     /* "generate" */
    const char *synopsis; /* "RUN_DIR --prompt TEXT [options]" */
    const char *about;    /* sentences */
    const option *options;
    int option_count;
    const char *operand;    /* name of the operand, "RUN_DIR" */
    int operands_most;      /* maximum; at least one is required; 0: none allowed */
    bool operand_optional;  /* no operand is allowed too */
    option_texts *settings; /* receives --section.key=value options for the library; NULL: not allowed */
} command;

enum { OPTIONS_CONTINUE = -1 };

/* Reads the options (--name=value or --name value; "--" ends them) and moves the operands to the front of
   argv; *operands is their number. Returns OPTIONS_CONTINUE or an exit code: 0 after --help, 2 after it
   printed an error. */
int options_take(const command *c, int argc, char **argv, int *operands);
/* The word of `words` nearest to `word`; NULL if none is near. */
const char *options_nearest(const char *word, const char *const *words, int count);

#endif
