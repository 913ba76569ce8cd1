/* cli/output: writes text, log lines and errors, and redraws the live line. */
#include "cli.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define CLEAR_LINE     "\r\x1b[K"
#define YELLOW         "\x1b[33m"
#define PLAIN          "\x1b[0m"
#define REDRAW_SECONDS 0.1

/* ---- writing ---- */

enum { SLICE_MS = 100, GRACE_MS = 2000 };

/* Waits while a pipe is full. Returns false if it is still full 2 s after a stop request. */
static bool wait_until_writable(int descriptor) {
    struct pollfd p = {.fd = descriptor, .events = POLLOUT};
    for (int waited = 0; waited < GRACE_MS;) {
        int ready = poll(&p, 1, SLICE_MS);
        if (ready > 0 || (ready < 0 && errno != EINTR && errno != EAGAIN))
            return true; /* if poll failed, write() reports the error */
        if (cli_stop_signal()) waited += SLICE_MS;
    }
    return false;
}

/* Writes in pieces of PIPE_BUF bytes, so that write() never blocks and stop requests are noticed. Returns 0
   or an errno; ETIMEDOUT if the pipe stays full. */
static int write_all(int descriptor, const char *text, size_t bytes) {
    while (bytes > 0) {
        if (!wait_until_writable(descriptor)) return ETIMEDOUT;
        ssize_t written = write(descriptor, text, bytes < PIPE_BUF ? bytes : PIPE_BUF);
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (written < 0) return errno;
        text += written;
        bytes -= (size_t)written;
    }
    return 0;
}

/* ---- errors ---- */

static int print_error(int exit_code, const char *reason) {
    char text[4200], line[sizeof text + 16];
    snprintf(text, sizeof text, "%s", reason);
    for (char *c = text; *c; c++) { /* removes terminal codes; keeps newlines only before indented lines */
        bool item = *c == '\n' && strncmp(c + 1, "  ", 2) == 0;
        bool second =
            (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 && (unsigned char)c[1] < 0xa0;
        if (((unsigned char)*c < 0x20 && !item) || *c == 0x7f) *c = ' ';
        if (second) c[0] = c[1] = ' '; /* U+0080 to U+009F control terminals too */
    }
    int length = snprintf(line, sizeof line, "ottava: %s\n", text);
    (void)write_all(STDERR_FILENO, line, (size_t)length);
    return exit_code;
}

void cli_wait_for_rank_0(void) {
    const struct timespec nap = {.tv_nsec = 10 * 1000 * 1000};
    for (int naps = output_rank() > 0 ? 300 : 0; naps > 0; naps--) {
        nanosleep(&nap, NULL);
        if (cli_stop_signal()) _exit(CLI_SIGNAL + cli_stop_signal());
    }
}

int cli_error(int exit_code, const char *format, ...) {
    char text[4200];
    va_list arguments;
    if (exit_code == CLI_BAD_INPUT) cli_wait_for_rank_0();
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return print_error(exit_code, text);
}

int cli_fail(ott_status status) {
    const char *reason = ott_error_text();
    bool by_signal = status == OTT_ERR_STOPPED && cli_stop_signal();
    return print_error(by_signal ? CLI_SIGNAL + cli_stop_signal() : ott_status_exit_code(status),
                       *reason ? reason : ott_status_meaning(status));
}

int cli_code(ott_status status) {
    return status == OTT_OK ? CLI_DONE : cli_fail(status);
}

/* ---- the output ---- */

static int exit_code_of(const output *o, int exit_code) {
    if (o->error == 0 || o->error == EPIPE || o->error == ETIMEDOUT) return exit_code;
    int code = o->error == EBADF ? CLI_BAD_INPUT : CLI_FAILED; /* EBADF: standard output is closed */
    return cli_error(code, "standard output: cannot write: %s", strerror(o->error));
}

void output_bytes(output *o, const void *data, size_t bytes) {
    if (o->error) return;
    o->error = write_all(STDOUT_FILENO, data, bytes);
    if (o->error && o->ends_at_once) _exit(exit_code_of(o, CLI_DONE));
}

/* mpirun sets the first variable, srun the second. */
int output_rank(void) {
    const char *value = getenv("OMPI_COMM_WORLD_RANK");
    if (!value) value = getenv("PMIX_RANK");
    return value && *value ? atoi(value) : -1;
}

void output_open(output *o) {
    const char *kind = getenv("TERM");
    int rank = output_rank(); /* a launcher collects the output of all ranks, so there is no live line */
    *o =
        (output){.rank = rank,
                 .terminal = rank < 0 && isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0};
}

int output_close(output *o, int exit_code) {
    output_live_end(o);
    if (!o->error && close(STDOUT_FILENO) != 0)
        o->error = errno; /* network file systems report errors here */
    return exit_code_of(o, exit_code);
}

int output_width(void) {
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* ---- the live line ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Leaves the last column free, because a line that wraps could not be cleared. */
static void draw_live_line(output *o) {
    char line[sizeof o->live + 16];
    snprintf(line, sizeof line, "\r%.*s\x1b[K", output_width() - 1, o->live);
    output_bytes(o, line, strlen(line));
    o->live_shown = true;
}

static void clear_live_line(output *o) {
    if (o->live_shown) output_bytes(o, CLEAR_LINE, strlen(CLEAR_LINE));
    o->live_shown = false;
}

void output_live(output *o, const char *text) {
    double time = now();
    if (!o->terminal) return;
    snprintf(o->live, sizeof o->live, "%s", text);
    if (o->live_shown && time - o->live_time < REDRAW_SECONDS) return;
    o->live_time = time;
    draw_live_line(o);
}

void output_live_end(output *o) {
    clear_live_line(o);
    o->live[0] = '\0';
}

void output_text(output *o, const char *text) {
    clear_live_line(o);
    output_bytes(o, text, strlen(text));
    if (o->live[0]) draw_live_line(o);
}

void output_line(output *o, const char *text) {
    char line[4200];
    /* usually one write, so that lines of several processes do not mix in a pipe */
    bool fits = snprintf(line, sizeof line, "%s\n", text) < (int)sizeof line;
    output_text(o, fits ? line : text);
    if (!fits) output_text(o, "\n");
}

/* ---- callbacks ---- */

void output_write(void *user, const char *text) {
    output_text(user, text);
}

/* Writes the time as Python's logging does: "2026-11-20 13:41:26,042". */
static void print_time(char out[32]) {
    struct timespec t;
    struct tm parts;
    char seconds[24] = "";
    clock_gettime(CLOCK_REALTIME, &t);
    if (localtime_r(&t.tv_sec, &parts)) strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(out, 32, "%s,%03d", seconds, (int)(t.tv_nsec / 1000000) % 1000);
}

/* Prints a log line. If `text` begins with "[rank3]:", the line does too, as in torchtitan's output. */
void output_log(void *user, ott_log_level level, const char *text) {
    static const char *const names[] = {[OTT_LOG_ERROR] = "ERROR",
                                        [OTT_LOG_WARNING] = "WARNING",
                                        [OTT_LOG_INFO] = "INFO",
                                        [OTT_LOG_DEBUG] = "DEBUG"};
    char when[32], line[4200];
    output *o = user;
    bool marked = o->color && level == OTT_LOG_WARNING;
    if (o->quiet) return;
    int mark = strncmp(text, "[rank", 5) == 0 ? (int)strcspn(text, ":") + 1 : 0;
    print_time(when);
    snprintf(line, sizeof line, "%s%.*s[ottava] %s - root - %s - %s%s", marked ? YELLOW : "", mark, text,
             when, names[level], text + mark, marked ? PLAIN : "");
    output_line(o, line);
}

static void log_aside(void *user, ott_log_level level, const char *text) {
    (void)user;
    cli_error(0, "%s%s", level == OTT_LOG_WARNING ? "warning: " : "", text);
}

int cli_run(ott_log_level level, cli_work work, void *user) {
    output out;
    ott_context *context;
    ott_context_options options;
    output_open(&out);
    ott_context_options_init(&options);
    options.log = log_aside;
    options.log_level = level;
    ott_status status = ott_context_open(&options, &context);
    if (status != OTT_OK) return cli_fail(status);
    int code = output_close(&out, work(context, &out, user));
    ott_context_close(context);
    return code;
}

void output_duration(double seconds, char out[32]) {
    if (!(seconds >= 0 && seconds < 1e9)) { /* also NaN: no estimate yet */
        strcpy(out, "-");
        return;
    }
    int rounded = (int)(seconds + 0.5);
    snprintf(out, 32, "%d:%02d:%02d", rounded / 3600, rounded / 60 % 60, rounded % 60);
}
