/* backend/loader: opens libottava_cuda.so. */
#include "backend/loader.h"
#include <pthread.h>
#include <stdio.h>

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

int loader_list_missing(const plugin *p, char out[LIBRARY_TEXT]) {
    size_t length = 0;
    int count = 0;
    out[0] = '\0';
    for (int i = 0; i < OP_COUNT; i++) {
        if (op_is_there(p->ops, (enum op_index)i)) continue;
        if (length < LIBRARY_TEXT)
            length += (size_t)snprintf(out + length, LIBRARY_TEXT - length, "%s%s", count ? ", " : "",
                                       op_at(i)->name);
        count++;
    }
    return count;
}

/* ---- the plugin ---- */

static const plugin *ask_library(void *library, char reason[LIBRARY_TEXT]) {
    library_entry *entry = library_find(library, PLUGIN_SYMBOL);
    const plugin *p = entry ? entry() : NULL;
    if (p && p->abi == plugin_abi()) return p;
    snprintf(reason, LIBRARY_TEXT, "%s",
             entry ? LOADER_FILE " and this program are different builds: build both from the same sources"
                   : LOADER_FILE " is not an Ottava plugin");
    library_close(library);
    return NULL;
}

static struct {
    const plugin *plugin; /* NULL before the plugin is loaded */
    pthread_mutex_t lock;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

ott_status loader_find(const plugin **out) {
    static const library_name name = {.file = LOADER_FILE, .variable = LOADER_VARIABLE};
    char reason[LIBRARY_TEXT];
    pthread_mutex_lock(&loaded.lock);
    void *library = loaded.plugin ? NULL : library_open(&name, reason);
    if (library) loaded.plugin = ask_library(library, reason);
    *out = loaded.plugin;
    pthread_mutex_unlock(&loaded.lock);
    if (*out) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "cuda: no CUDA backend was found (%s); \"make cuda\" builds it if the CUDA toolkit is installed; "
        "\"ottava doctor\" lists other missing parts; \"cpu\" computes on the CPU; " LOADER_VARIABLE
        " may name its file or folder",
        reason);
}
