/* base/limit: reads /proc/meminfo, the cgroup files and the resource limits. Cached file pages count as
   available, because the kernel frees them before it refuses memory. */
#include "base/limit.h"
#include "base/text/size.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* State while limits are collected. */
typedef struct reading {
    const char *root;
    int64_t promised;      /* allocated bytes of this process that are not resident yet */
    int64_t address, data; /* this process's mapped bytes, and private writable bytes; -1: unknown */
    memory_limit *smallest;
} reading;

static FILE *open_system_file(const reading *r, const char *folder, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s/%s", r->root, folder, name) >= (int)sizeof path) return NULL;
    return fopen(path, "r");
}

/* Stores a limit of `total` bytes, of which `left` are available, if `left` is the smallest so far. */
static void keep_smallest(const reading *r, int64_t left, int64_t total, const char *owner) {
    if (left < 0) left = 0;
    if (left >= r->smallest->left) return;
    r->smallest->left = left;
    r->smallest->total = total;
    snprintf(r->smallest->owner, sizeof r->smallest->owner, "%s", owner);
}

static void read_machine(const reading *r) {
    long long total = -1, available = -1;
    char line[128];
    FILE *f = open_system_file(r, "/proc", "meminfo");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        sscanf(line, "MemTotal: %lld kB", &total);
        sscanf(line, "MemAvailable: %lld kB", &available);
    }
    fclose(f);
    if (total >= 0 && available >= 0)
        keep_smallest(r, available * 1024 - r->promised, total * 1024, "this machine");
}

/* The names that a cgroup version uses for its files and options. */
typedef struct cgroup_version {
    const char *type;       /* file system type of the mount */
    const char *option;     /* option of the mount; "": any */
    const char *controller; /* controller in /proc/self/cgroup */
    const char *limit, *usage;
    const char *file_pages[2]; /* fields of memory.stat with the bytes of cached files */
} cgroup_version;

static const cgroup_version versions[] = {
    {"cgroup2", "", "", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"cgroup",
     "memory",
     "memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

/* Reads a number from a file. Returns -1 if the file is absent or has no number ("max"). */
static int64_t read_limit_file(const reading *r, const char *folder, const char *name) {
    long long value = -1;
    FILE *f = open_system_file(r, folder, name);
    if (!f) return -1;
    if (fscanf(f, "%lld", &value) != 1) value = -1;
    fclose(f);
    return value;
}

static int64_t read_file_pages(const reading *r, const char *folder, const cgroup_version *v) {
    char name[64];
    long long value, sum = 0;
    FILE *f = open_system_file(r, folder, "memory.stat");
    if (!f) return 0;
    while (fscanf(f, "%63s %lld", name, &value) == 2)
        if (strcmp(name, v->file_pages[0]) == 0 || strcmp(name, v->file_pages[1]) == 0) sum += value;
    fclose(f);
    return sum;
}

static void read_cgroup(const reading *r, const char *folder, const cgroup_version *v) {
    char name[sizeof r->smallest->owner];
    int64_t most = read_limit_file(r, folder, v->limit), used = read_limit_file(r, folder, v->usage);
    if (most < 0 || used < 0 || most >= INT64_MAX / 2) return; /* version 1: huge number if no limit */
    snprintf(name, sizeof name, "the cgroup %.150s", folder);
    keep_smallest(r, most - used + read_file_pages(r, folder, v) - r->promised, most, name);
}

/* True if `word` is in a comma-separated list. The list "" contains the word "". */
static int has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == length && memcmp(at, word, length) == 0) return 1;
    return 0;
}

static int find_mount(const reading *r, const cgroup_version *v, char out[PATH_MAX]) {
    char line[PATH_MAX + 512], place[PATH_MAX], type[64], options[256];
    int found = 0;
    FILE *f = open_system_file(r, "/proc/self", "mounts");
    if (!f) return 0;
    while (!found && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%*s %4095s %63s %255s", place, type, options) != 3) continue;
        found = strcmp(type, v->type) == 0 && (!*v->option || has_word(options, v->option));
    }
    fclose(f);
    if (found) snprintf(out, PATH_MAX, "%s", place);
    return found;
}

/* Finds this process's cgroup: "4:memory:/job" in version 1, "0::/job" in version 2. False: none found. */
static int find_cgroup(const reading *r, const cgroup_version *v, char out[PATH_MAX]) {
    char line[PATH_MAX + 256];
    int found = 0;
    FILE *f = open_system_file(r, "/proc/self", "cgroup");
    if (!f) return 0;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        found = has_word(controllers + 1, v->controller);
        if (found) snprintf(out, PATH_MAX, "%s", path);
    }
    fclose(f);
    return found;
}

/* Reads the limits of the process's cgroup and of its parents, which also apply. In a container the path of
   the cgroup may be the host's path. Folders of that path that do not exist here are skipped. */
static void read_cgroups(const reading *r, const cgroup_version *v) {
    char mount[PATH_MAX], path[PATH_MAX], folder[2 * PATH_MAX];
    if (!find_mount(r, v, mount) || !find_cgroup(r, v, path)) return;
    for (;;) {
        char *slash = strrchr(path, '/');
        snprintf(folder, sizeof folder, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path);
        read_cgroup(r, folder, v);
        if (!slash || !*path) return;
        *slash = 0;
    }
}

static void read_address_limit(const reading *r, int resource, int64_t used, const char *owner) {
    struct rlimit most;
    if (used < 0 || getrlimit(resource, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return;
    if (most.rlim_cur > INT64_MAX) return;
    keep_smallest(r, (int64_t)most.rlim_cur - used, (int64_t)most.rlim_cur, owner);
}

/* Sets r->address and r->data (bytes in use), and r->promised (allocated bytes that are not resident yet). */
static void read_process(reading *r, int64_t counted) {
    long long mapped = -1, resident = -1, data = -1;
    int64_t page = sysconf(_SC_PAGESIZE);
    r->address = r->data = -1;
    r->promised = 0;
    FILE *f = open_system_file(r, "/proc/self", "statm");
    if (!f) return;
    if (fscanf(f, "%lld %lld %*s %*s %*s %lld", &mapped, &resident, &data) == 3) {
        r->address = mapped * page;
        r->data = data * page;
        if (counted > resident * page) r->promised = counted - resident * page;
    }
    fclose(f);
}

void limit_read_in(const char *root, int64_t counted, memory_limit *out) {
    reading r = {.root = root, .smallest = out};
    *out = (memory_limit){.left = INT64_MAX, .total = INT64_MAX};
    read_process(&r, counted);
    read_machine(&r);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) read_cgroups(&r, &versions[i]);
    read_address_limit(&r, RLIMIT_AS, r.address, "address space that ulimit -v allows");
    read_address_limit(&r, RLIMIT_DATA, r.data, "data that ulimit -d allows");
}

void limit_read(int64_t counted, memory_limit *out) {
    limit_read_in("", counted, out);
}

const char *limit_text(const memory_limit *l, char out[LIMIT_TEXT]) {
    char left[SIZE_TEXT], total[SIZE_TEXT];
    if (l->left == INT64_MAX)
        snprintf(out, LIMIT_TEXT, "the size of this machine's memory is unknown");
    else
        snprintf(out, LIMIT_TEXT, "%s of the %s of %s are left", size_text(l->left, left),
                 size_text(l->total, total), l->owner);
    return out;
}
