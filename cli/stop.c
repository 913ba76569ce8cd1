/* cli/stop: signals that ask a verb to stop. */
#include "cli.h"
#include <signal.h>

static ott_context *working; /* a signal handler has no argument */

static void handle_stop(int signal_number) {
    signal(signal_number, SIG_DFL); /* a second one ends it at once */
    ott_stop(working);
}

void cli_stop_begin(ott_context *context) {
    working = context;
    signal(SIGINT, handle_stop);
    signal(SIGTERM, handle_stop);
}

void cli_stop_end(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    working = NULL;
}
