/* dies: runs a function in a child process and checks that the function ends this process. */
#ifndef TEST_BASE_DIES_H
#define TEST_BASE_DIES_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* True if `act` aborted, accessed invalid memory or was stopped by a sanitizer. Its stderr is discarded. */
static inline bool dies(void (*act)(void)) {
    enum { SURVIVED = 77 };
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(SURVIVED);
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would continue with the next test */
        act();
        _exit(SURVIVED);
    }
    int result = 0;
    return child > 0 && waitpid(child, &result, 0) == child &&
           !(WIFEXITED(result) && WEXITSTATUS(result) == SURVIVED);
}

#endif
