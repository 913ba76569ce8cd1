/*
 * cli: what the verbs of the program share. The program sees only the public API; each verb is one file with
 * one function, and main.c is the table of them.
 *
 * Exit codes: 0 done, 1 the run failed, 2 bad input (ott_status_exit_code), 128 and the number of the signal
 * that ended it before it was done, SIGPIPE for a training whose reader went away. An error is one line
 * "ottava: ..." on standard error.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <ottava/ottava.h>
#include <stdbool.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_BAD_INPUT = 2, CLI_SIGNAL = 128 };

/* ---- verbs; `argc` and `argv` are what follows the verb; they return the program's exit code ---- */

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

/* Prints one line and returns the code. CLI_BAD_INPUT is an error of the arguments, which every rank of a job has: rank 0
   prints it first (cli_wait_for_rank_0). */
int cli_error(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with the library's reason for its last failure, at once on every rank. */
int cli_fail(ott_status status);
/* On a rank other than 0: waits 3 s for the launcher to end this process, because rank 0 prints the same error. Returns if it
   does not: then the error is this rank's alone. */
void cli_wait_for_rank_0(void);

/* ---- standard output (output.c) ---- */

/*
 * Writes go straight to the system, so that text streams and a failure is noticed where it happens. A reader
 * that went away (EPIPE) ends the program quietly, any other failure is an error. While a reader does not read,
 * the program waits; once it is asked to stop it waits no longer, and what it has to say is dropped.
 */
typedef struct output {
    bool terminal;     /* a person is watching, and lines can be redrawn */
    bool color;        /* warnings are coloured; false until the user's wish is known */
    bool ends_at_once; /* on a failed write: nothing the program still does would matter */
    bool live_shown;
    bool quiet;       /* log lines are dropped */
    int rank;         /* output_rank */
    int error;        /* errno of the first failed write; 0: none */
    double live_time; /* when the live line was drawn last */
    char live[256];   /* the live line */
} output;

/* Of a process that a launcher started as one of several; -1: it is alone. */
int output_rank(void);
void output_open(output *o);
/* As they are; no live line may be shown. */
void output_bytes(output *o, const void *data, size_t bytes);
void output_text(output *o, const char *text); /* above the live line */
void output_line(output *o, const char *text); /* and a newline */
/* The one line below all others on a terminal: drawn in place, at most ten times a second; nothing into a
 * pipe. */
void output_live(output *o, const char *text);
void output_live_end(output *o);
/* Ends the output: the exit code of the program, given the one it would have without trouble here. */
int output_close(output *o, int exit_code);
int output_width(void); /* columns of the terminal; 80 when it is none */
/* "1:02:03"; "-" while there is no estimate. */
void output_duration(double seconds, char out[32]);

/* ott_text_fn and ott_log_fn over an output. */
void output_write(void *user, const char *text);
void output_log(void *user, ott_log_level level, const char *text); /* "[ottava] date - root - INFO - text" */
/* A context for verbs whose standard output is their result: warnings and errors go to standard error. */
ott_status cli_open_context(ott_context **out);
ott_status cli_open_context_at(int level, ott_context **out); /* messages of this level too: OTT_LOG_INFO */
/* The configuration that arguments describe, or the file of the environment variable CONFIG_FILE where they name none, which
   `log` hears of (NULL: nobody). */
ott_status cli_open_config(ott_context *context, output *log, int argc, char **argv, ott_config **out);
bool cli_is_config_file(const char *argument); /* does it name one: a path, or an option for it? */

/* `train --nproc-per-node N`, as automodel and torchrun have it: replaces this process by `mpirun -np N ottava train` with the other
   arguments. CLI_NOT_LAUNCHED: it is not given, says 1, or mpirun started this process; else an exit code, after an error. */
enum { CLI_NOT_LAUNCHED = -1 };
int cli_launch(output *log, int argc, char **argv);

/* Work that saves before it stops (SIGHUP asks it too, and only a second SIGINT ends the program), and work
   that does not (a second signal ends the program). */
typedef enum cli_stop_kind { CLI_STOP_PLAIN, CLI_STOP_SAVING } cli_stop_kind;
/* SIGINT and SIGTERM ask the work of this context to stop, until cli_stop_end. */
void cli_stop_begin(ott_context *context, cli_stop_kind kind);
void cli_stop_end(void);
int cli_stop_signal(void); /* that asked it; 0: none did */

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

/* An option that may be given several times. */
typedef struct option_texts {
    const char *text[32];
    int count;
} option_texts;

/* `to` points to a bool, const char *, int, int64_t, uint64_t, double or option_texts, which holds the
   default before. */
typedef struct option {
    const char *name;  /* "--max-tokens" */
    const char *value; /* what the help calls it, "N"; NULL for a flag */
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
    const char *operand;   /* what it works on, "RUN_DIR" */
    int operands_most;     /* at least one is needed; 0: it takes none */
    bool operand_optional; /* it works without one, too */
    option_texts
        *settings; /* gets the options --section.key=value, which the library reads; NULL: there are none */
} command;

enum { OPTIONS_CONTINUE = -1 };

/* Takes options (--name=value or --name value, "--" ends them) and moves the operands to the front of argv;
   their number goes to `operands`. OPTIONS_CONTINUE, or the exit code: 0 after --help, 2 after an error, which
   it printed. */
int options_take(const command *c, int argc, char **argv, int *operands);
/* The word of `words` nearest to `word`, or NULL when none is near. */
const char *options_nearest(const char *word, const char *const *words, int count);

#endif
