/* cli/stop: stops the work of a verb on signals. */
#include "cli.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* State of the signal handler. It is static, because no pointer can be passed to a signal handler. */
static struct {
    ott_context *context;
    cli_stop_kind kind;
    volatile sig_atomic_t asked; /* the first signal; 0: none yet */
    bool is_single;              /* there is no launcher, so this process prints the message */
} stopping;

/* Writes a text. Drops it if the pipe is full, because a signal handler must not wait. */
static void write_error_text(const char *text) {
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) return;
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* errors are ignored */
}

static void print_over_live_line(const char *text) {
    if (isatty(STDOUT_FILENO)) write_error_text("\r\x1b[K");
    write_error_text(text);
}

/* After the first signal, training saves the last complete step and ends. A second Ctrl-C ends the program at
   once, without saving. A second SIGTERM is ignored, because schedulers repeat it. */
static void stop_training(int signal_number) {
    if (stopping.asked && signal_number == SIGINT) {
        print_over_live_line("ottava: ended immediately; resume from the last checkpoint\n");
        _exit(CLI_SIGNAL + SIGINT);
    }
    if (stopping.asked) return;
    stopping.asked = signal_number;
    ott_stop(stopping.context);
    if (stopping.is_single)
        print_over_live_line("ottava: saving and ending; Ctrl-C again ends immediately\n");
}

static void handle_signal(int signal_number) {
    int saved_errno = errno;
    if (stopping.kind == CLI_STOP_SAVING) {
        stop_training(signal_number);
    } else {
        stopping.asked = signal_number;
        signal(signal_number, SIG_DFL); /* the same signal again ends the program */
        ott_stop(stopping.context);
    }
    errno = saved_errno;
}

void cli_stop_begin(ott_context *context, cli_stop_kind kind) {
    struct sigaction action = {.sa_handler = handle_signal, .sa_flags = SA_RESTART}, old;
    stopping.context = context;
    stopping.kind = kind;
    stopping.is_single = output_rank() < 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bool nohup = sigaction(SIGHUP, NULL, &old) != 0 || old.sa_handler == SIG_IGN;
    if (kind == CLI_STOP_SAVING && !nohup) sigaction(SIGHUP, &action, NULL);
    if (kind == CLI_STOP_SAVING) sigaction(SIGUSR1, &action, NULL); /* mpirun forwards SIGUSR1 to the ranks */
}

void cli_stop_end(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    stopping.context = NULL;
}

int cli_stop_signal(void) {
    return stopping.asked;
}
