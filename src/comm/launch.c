/* comm/launch: the variables in which launchers tell a process how many they started. */
#include "comm/launch.h"
#include "base/str.h"
#include <errno.h>
#include <stdlib.h>

typedef struct launcher {
    const char *variable;
    const char *better; /* a variable that says the same of this very process, and counts when it is set */
    const char *name;
} launcher;

/* Inside a batch script SLURM_NTASKS is what the job may start, and only inside a step (srun) what was. */
static const launcher launchers[] = {
    {"WORLD_SIZE", NULL, "torchrun"},
    {"OMPI_COMM_WORLD_SIZE", NULL, "mpirun"},
    {"PMI_SIZE", NULL, "mpirun"},
    {"PMIX_SIZE", NULL, "prterun"},
    {"MV2_COMM_WORLD_SIZE", NULL, "mpirun"},
    {"SLURM_STEP_NUM_TASKS", NULL, "srun"},
    {"SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "Slurm"},
};

static bool is_set(const char *variable) {
    const char *value = variable ? getenv(variable) : NULL;
    return value && *value;
}

static ott_status check(const launcher *l) {
    const char *value = getenv(l->variable);
    char *end;
    if (!is_set(l->variable) || is_set(l->better)) return OTT_OK;
    errno = 0;
    long long count = strtoll(value, &end, 10);
    if (*end || errno)
        return status_fail(OTT_ERR_CONFIG,
                           "the environment variable %s = \"%s\" is no number of processes: unset it",
                           l->variable, str_show(value).text);
    if (count <= 1) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s = %lld: %s says that this is one of %lld processes, and training over several "
                       "ranks is not built yet: each of them would train alone. Start one process, without a "
                       "launcher; where this is the only one, run it with `env -u %s`",
                       l->variable, count, l->name, count, l->variable);
}

ott_status launch_check_alone(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) TRY(check(&launchers[i]));
    return OTT_OK;
}
