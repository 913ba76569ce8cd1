/* backend/loader: opens libottava_cuda.so. */
#define _GNU_SOURCE /* dladdr */
#include "backend/loader.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- services ---- */

static ott_status fail_with(ott_status code, const char *text) {
    return status_fail(code, "%s", text);
}

static ott_status add_context(ott_status code, const char *text) {
    return status_context(code, "%s", text);
}

const plugin_services *loader_services(void) {
    static const plugin_services services = {.fail = fail_with,
                                             .context = add_context,
                                             .alloc = mem_alloc,
                                             .kind_name = mem_kind_name,
                                             .free = mem_free};
    return &services;
}

int loader_list_missing(const plugin *p, char out[LOADER_TEXT]) {
    size_t length = 0;
    int count = 0;
    out[0] = '\0';
    for (int i = 0; i < OP_COUNT; i++) {
        if (op_is_there(p->ops, (enum op_index)i)) continue;
        if (length < LOADER_TEXT)
            length += (size_t)snprintf(out + length, LOADER_TEXT - length, "%s%s", count ? ", " : "",
                                       op_at(i)->name);
        count++;
    }
    return count;
}

/* ---- search path ---- */

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* Writes the path of the folder with the program or library that contains this code. */
static bool own_folder(char out[PATH_MAX]) {
    static const char here;
    Dl_info info;
    char path[PATH_MAX];
    if (!dladdr(&here, &info) || !info.dli_fname) return false;
    if (!realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", path)) return false;
    *strrchr(path, '/') = '\0';
    strcpy(out, path);
    return true;
}

/* Opens a library. If a file exists but cannot be opened, `reason` keeps the first such error. dlopen gets a
   full path, because it searches the system's folders for a name without a slash. */
static void *try_file(const char *path, char reason[LOADER_TEXT]) {
    char full[PATH_MAX];
    if (!realpath(path, full)) return NULL;
    void *library = dlopen(full, RTLD_NOW | RTLD_LOCAL);
    if (!library && !reason[0]) {
        const char *text = dlerror();
        snprintf(reason, LOADER_TEXT, "%s", text ? text : path);
    }
    return library;
}

static void *try_folder(const char *folder, const char *subfolder, char reason[LOADER_TEXT]) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s%s/" LOADER_FILE, folder, subfolder);
    return try_file(path, reason);
}

static void *open_given(const char *path, char reason[LOADER_TEXT]) {
    void *library = is_folder(path) ? try_folder(path, "", reason) : try_file(path, reason);
    if (!library && !reason[0])
        snprintf(reason, LOADER_TEXT, "%.512s%s is not there", path, is_folder(path) ? "/" LOADER_FILE : "");
    return library;
}

static void *open_plugin(char reason[LOADER_TEXT]) {
    const char *given = getenv(LOADER_VARIABLE);
    char folder[PATH_MAX];
    if (given && *given) return open_given(given, reason);
    if (!own_folder(folder)) return NULL;
    void *library = try_folder(folder, "", reason);
    if (!library) library = try_folder(folder, "/../lib", reason);
    if (!library && !reason[0])
        snprintf(reason, LOADER_TEXT, LOADER_FILE " is neither in %.512s nor in its ../lib", folder);
    return library;
}

/* ---- the plugin ---- */

typedef const plugin *entry(void);

static const plugin *ask_library(void *library, char reason[LOADER_TEXT]) {
    union {
        void *symbol;
        entry *call;
    } found = {.symbol = dlsym(library, PLUGIN_SYMBOL)};
    const plugin *p = found.symbol ? found.call() : NULL;
    if (p && p->abi == plugin_abi()) return p;
    snprintf(reason, LOADER_TEXT, "%s",
             found.symbol ? LOADER_FILE
                 " and this program are different builds: build both from the same sources"
                          : LOADER_FILE " is not an Ottava plugin");
    dlclose(library);
    return NULL;
}

static struct {
    const plugin *plugin; /* NULL: not loaded yet */
    pthread_mutex_t lock;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

ott_status loader_find(const plugin **out) {
    char reason[LOADER_TEXT] = "";
    pthread_mutex_lock(&loaded.lock);
    void *library = loaded.plugin ? NULL : open_plugin(reason);
    if (library) loaded.plugin = ask_library(library, reason);
    *out = loaded.plugin;
    pthread_mutex_unlock(&loaded.lock);
    if (*out) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "cuda: no CUDA backend is here (%s); \"make cuda\" builds it where the CUDA toolkit "
        "is, " LOADER_VARIABLE
        " may give its place; \"ottava doctor\" lists other missing parts; \"cpu\" computes on the CPU",
        reason);
}
