/* backend/loader: opens plugins and keeps them open. */
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

/* ---- plugins ---- */

static const plugin *ask_library(const char *file, void *library, char reason[LIBRARY_TEXT]) {
    library_entry *entry = library_find(library, PLUGIN_SYMBOL);
    const plugin *p = entry ? entry() : NULL;
    if (p && p->abi == plugin_abi()) return p;
    snprintf(reason, LIBRARY_TEXT, "%s %s", file,
             entry ? "and this program are different builds: build both from the same sources"
                   : "is not an Ottava plugin");
    library_close(library);
    return NULL;
}

/* Guards the `loaded` of all rows. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

ott_status loader_find(const backend_row *row, const plugin **out) {
    char reason[LIBRARY_TEXT];
    pthread_mutex_lock(&lock);
    void *library = *row->loaded ? NULL : library_open(&row->plugin, reason);
    if (library) *row->loaded = ask_library(row->plugin.file, library, reason);
    *out = *row->loaded;
    pthread_mutex_unlock(&lock);
    if (*out) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s: no %s backend was found (%s); \"%s\" builds it if the %s toolkit is installed; "
        "\"ottava doctor\" lists other missing parts; \"cpu\" computes on the CPU; %s may name its file or "
        "folder",
        row->name, row->title, reason, row->build, row->title, row->plugin.variable);
}
