/* cli/launch: starts mpirun for the option --nproc-per-node, which automodel and torchrun have. */
#include "cli.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* True for --nproc-per-node and its other names. *value: the text after "="; NULL without "=". */
static bool is_count_option(const char *argument, const char **value) {
    static const char *const names[] = {"--nproc-per-node", "--nproc_per_node", "--nproc"};
    size_t length = strcspn(argument, "=");
    *value = argument[length] ? argument + length + 1 : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && strncmp(argument, names[i], length) == 0) return true;
    return false;
}

/* Finds --nproc-per-node at argv[*at]. Returns the number of arguments for it and its value; 0: not found. */
static int find_process_count(int argc, char **argv, int *at, const char **value) {
    for (*at = 0; *at < argc; ++*at) {
        if (!is_count_option(argv[*at], value)) continue;
        if (*value) return 1;
        *value = *at + 1 < argc ? argv[*at + 1] : "";
        return 2;
    }
    return 0;
}

/* Returns the number in `text` if it is a decimal number from 2 to 4096, otherwise 0. */
static int read_count(const char *text) {
    char *end;
    errno = 0;
    long count = strtol(text, &end, 10);
    bool good = *text >= '1' && *text <= '9' && !*end && errno == 0 && count >= 2 && count <= 4096;
    return good ? (int)count : 0;
}

int cli_launch(output *log, int argc, char **argv) {
    int at, used;
    const char *value;
    char self[PATH_MAX], line[128];
    used = find_process_count(argc, argv, &at, &value);
    if (used == 0 || read_count(value) == 0 || getenv("OMPI_COMM_WORLD_SIZE")) return CLI_NOT_LAUNCHED;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char **all = calloc((size_t)argc + 8, sizeof *all);
    if (length <= 0 || !all)
        return free(all), cli_error(CLI_FAILED, "cannot start mpirun: %s", strerror(errno));
    self[length] = '\0';
    const char *const begin[] = {"mpirun", "-np", value, "--bind-to", "none", self, "train"};
    int count = sizeof begin / sizeof *begin;
    memcpy(all, begin, sizeof begin);
    for (int i = 0; i < argc; i++)
        if (i < at || i >= at + used) all[count++] = argv[i];
    snprintf(line, sizeof line, "%.40s: starting mpirun -np %s --bind-to none", argv[at], value);
    output_log(log, OTT_LOG_INFO, line);
    fflush(NULL);
    execvp(all[0], (char *const *)all);
    int code = cli_error(CLI_FAILED, "cannot start mpirun (package openmpi-bin): %s", strerror(errno));
    free(all);
    return code;
}
