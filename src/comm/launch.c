/* comm/launch: reads the environment variables that launchers set for each process. */
#include "comm/launch.h"
#include "base/text/str.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct launcher {
    const char *variable;
    /* if this variable is set too, it counts instead: it has its own entry; NULL: none */
    const char *better;
    const char *name, *instead;
} launcher;

#define MPIRUN "mpirun of Open MPI (mpirun -np %lld ottava train ...)"
#define SRUN   "srun --mpi=pmix (srun --mpi=pmix -n %lld ottava train ...)"

/* In a batch script SLURM_NTASKS is the largest number of processes that the job may start. Only in a job
   step (srun) is it the number of processes that were started. */
static const launcher launchers[] = {
    {"WORLD_SIZE", NULL, "torchrun", MPIRUN},
    {"PMI_SIZE", NULL, "mpirun of another MPI", MPIRUN},
    {"MV2_COMM_WORLD_SIZE", NULL, "mpirun of MVAPICH2", MPIRUN},
    {"SLURM_STEP_NUM_TASKS", NULL, "srun", SRUN},
    {"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "Slurm", SRUN},
};

static bool is_set(const char *variable) {
    const char *value = variable ? getenv(variable) : NULL;
    return value && *value;
}

/* Reads a number of processes from an environment variable. Keeps *out if the variable is not set. */
static ott_status read_variable(const char *variable, long long *out) {
    const char *value = getenv(variable);
    char *end;
    if (!is_set(variable)) return OTT_OK;
    errno = 0;
    *out = strtoll(value, &end, 10);
    if (!*end && !errno) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "the environment variable %s = \"%s\" is not a number of processes: unset it",
                       variable, str_show(value).text);
}

static ott_status check_single_process(const launcher *l) {
    long long count = 1;
    char command[128];
    TRY(read_variable(l->variable, &count));
    if (is_set(l->better) || count <= 1) return OTT_OK;
    snprintf(command, sizeof command, l->instead, count);
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s = %lld: %s started this as one of %lld processes without joining them, so each of them would "
        "train alone. Start the processes with %s, or a single process with `env -u %s`",
        l->variable, count, l->name, count, command, l->variable);
}

static ott_status read_joined(launch *out) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"};
    static const char *const ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "LOCAL_RANK"};
    long long size = 0, local = 0, local_rank = 0;
    int i = 0;
    *out = (launch){.uses_mpi = true, .variable = sizes[is_set(sizes[0]) ? 0 : 1]};
    TRY(read_variable(out->variable, &size));
    TRY(read_variable("OMPI_COMM_WORLD_LOCAL_SIZE", &local));
    while (i < 2 && !is_set(ranks[i])) i++; /* the variable of Open MPI, Slurm or torchrun */
    TRY(read_variable(ranks[i], &local_rank));
    out->size = (int)size;
    out->local_size = (int)local;
    out->local_rank = (int)local_rank;
    out->is_bound = is_set("OMPI_MCA_orte_bound_at_launch");
    return OTT_OK;
}

/* A launcher may bind several processes to the same cores. Such processes share these cores. */
int launch_threads(const launch *l, int cores, int online) {
    bool own = l->is_bound && (int64_t)cores * l->local_size <= online;
    if (l->local_size <= 1 || own) return 0;
    int part = (l->is_bound ? online : cores) / l->local_size;
    return part < 1 ? 1 : part < cores ? part : cores;
}

ott_status launch_read(launch *out) {
    *out = (launch){0};
    if (is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK")) return read_joined(out);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        TRY(check_single_process(&launchers[i]));
    return OTT_OK;
}

ott_status launch_check_joined(const launch *l, int size) {
    if (!l->uses_mpi || l->size <= 0 || l->size == size) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s = %d, and MPI joins %d processes: the launcher belongs to another MPI than Ottava's library "
        "(Open MPI's libmpi.so). Start them with Open MPI's mpirun, or a single process with `env -u %s`",
        l->variable, l->size, size, l->variable);
}

void launch_append_word(str *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        str_append(out, word);
        return;
    }
    str_append(out, "'");
    for (; *word; word++) str_append(out, *word == '\'' ? "'\\''" : (const char[]){*word, '\0'});
    str_append(out, "'");
}

enum { COMMAND_BYTES = 1 << 14 };

/* Reads the NUL-terminated arguments of a process. Returns their bytes; 0 if too long or unreadable. */
static size_t read_command_line(const char *process, char words[COMMAND_BYTES]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/cmdline", process);
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t bytes = fread(words, 1, COMMAND_BYTES, file);
    fclose(file);
    return bytes < COMMAND_BYTES && bytes > 0 && words[bytes - 1] == '\0' ? bytes : 0;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Bytes of the launcher's arguments before the program's name; 0 if the launcher is unknown or starts several
   programs. */
static size_t launcher_bytes(const char *words, size_t bytes, const char *program) {
    static const char *const launchers_here[] = {"mpirun", "mpiexec", "orterun", "srun"};
    size_t end = 0;
    bool known = false;
    for (int i = 0; bytes > 0 && i < 4; i++) known |= strcmp(base_name(words), launchers_here[i]) == 0;
    for (size_t at = 0; known && at < bytes; at += strlen(words + at) + 1) {
        if (strcmp(words + at, ":") == 0) return 0; /* mpirun separates several programs by ":" */
        if (end == 0 && strcmp(words + at, program) == 0) end = at;
    }
    return end;
}

static void append_launcher(str *out, const char *program) {
    char words[COMMAND_BYTES], parent[32];
    bool is_mpirun = is_set("OMPI_COMM_WORLD_SIZE");
    if (!is_mpirun && !is_set("PMIX_RANK")) return;
    snprintf(parent, sizeof parent, "%ld", (long)getppid());
    size_t end = launcher_bytes(words, read_command_line(parent, words), program);
    for (size_t at = 0; at < end; at += strlen(words + at) + 1) {
        launch_append_word(out, words + at);
        str_append(out, " ");
    }
    const char *count = getenv(is_mpirun ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS");
    if (end == 0 && count) str_printf(out, is_mpirun ? "mpirun -np %s " : "srun --mpi=pmix -n %s ", count);
}

void launch_append_command(str *out) {
    char words[COMMAND_BYTES];
    const char *program = read_command_line("self", words) > 0 ? words : "ottava";
    append_launcher(out, program);
    launch_append_word(out, strncmp(base_name(program), "ottava", 6) == 0 ? program : "ottava");
}
