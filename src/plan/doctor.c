/* plan/doctor: checks this machine and writes one line per finding. */
#include "plan/doctor.h"
#include "api/context.h"
#include "backend/backend.h"
#include "backend/loader.h"
#include "base/text/str.h"
#include "comm/mpi.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct doctor {
    str text;
    int missing;
} doctor;

static void print_finding(void *user, bool good, const char *what, const char *found, const char *way_out) {
    doctor *d = user;
    str_printf(&d->text, "%-9s %-13s %s\n", good ? "ok" : "missing", what, found);
    if (good) return;
    d->missing++;
    str_printf(&d->text, "%24s-> %s\n", "", way_out);
}

static ott_status report_cpu(doctor *d, ott_context *context) {
    device *cpu;
    TRY(backend_open(&(backend_choice){.name = "cpu", .threads = context->threads}, context->account, &cpu));
    print_finding(d, true, "cpu", cpu->name, NULL);
    const char *refusal = backend_tiles_refusal(cpu);
    if (refusal)
        print_finding(
            d, false, "AMX", refusal,
            "results are the same without AMX; permission to use it needs Linux 5.16 or newer, and a sandbox "
            "must allow arch_prctl");
    device_close(cpu);
    return OTT_OK;
}

static bool has_compiler(const backend_part *compiler, char path[PATH_MAX]) {
    const char *home = getenv(compiler->variable), *places = getenv("PATH");
    snprintf(path, PATH_MAX, "%s/bin/%s", home && *home ? home : compiler->folder, compiler->file);
    if (access(path, X_OK) == 0) return true;
    for (const char *at = places; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(path, PATH_MAX, "%.*s/%s", (int)strcspn(at, ":"), at, compiler->file);
        if (access(path, X_OK) == 0) return true;
    }
    return false;
}

static void report_toolkit(doctor *d, const backend_row *row) {
    const backend_part *compiler = &row->compiler;
    char path[PATH_MAX], what[32], missing[128];
    bool there = has_compiler(compiler, path);
    snprintf(what, sizeof what, "%s toolkit", row->title);
    snprintf(missing, sizeof missing, "no %s in %s, %s or PATH", compiler->file, compiler->variable,
             compiler->folder);
    print_finding(d, there, what, there ? path : missing, compiler->remedy);
}

static void report_driver(doctor *d, const backend_row *row) {
    char missing[64];
    void *driver = dlopen(row->driver.file, RTLD_LAZY | RTLD_LOCAL);
    snprintf(missing, sizeof missing, "no %s driver", row->vendor);
    print_finding(d, driver != NULL, "driver", driver ? row->driver.file : missing, row->driver.remedy);
    if (driver) dlclose(driver);
}

static void report_plugin(doctor *d, const backend_row *row) {
    const plugin *p;
    char what[32], missing[LIBRARY_TEXT];
    snprintf(what, sizeof what, "%s backend", row->title);
    if (loader_find(row, &p) != OTT_OK) {
        /* Loading fails if the backend was not built, or if the library that it is linked with is missing. */
        const char *why = status_text();
        bool lacks_library = row->linked.file && strstr(why, row->linked.file);
        print_finding(d, false, what, why, lacks_library ? row->linked.remedy : row->build);
        if (row->compiler.file) report_toolkit(d, row);
        if (row->driver.file) report_driver(d, row);
        return;
    }
    if (loader_list_missing(p, missing))
        print_finding(d, false, what, "it is incomplete", "train on the CPU");
    else
        print_finding(d, true, what, row->plugin.file, NULL);
    p->inspect(print_finding, d);
}

/* Reports the plugins that can be loaded. If there is none, reports what each plugin lacks. */
static void report_plugins(doctor *d) {
    int count;
    bool is_any_loaded = false;
    const plugin *p;
    const backend_row *rows = backend_table(&count);
    for (int i = 0; i < count; i++)
        if (rows[i].plugin.file) is_any_loaded |= loader_find(&rows[i], &p) == OTT_OK;
    for (int i = 0; i < count; i++)
        if (rows[i].plugin.file && (*rows[i].loaded || !is_any_loaded)) report_plugin(d, &rows[i]);
}

ott_status doctor_run(ott_context *context, ott_text_fn write, void *user, int *missing) {
    doctor d = {.text = {.account = context->account}};
    ott_status status = report_cpu(&d, context);
    const char *version;
    bool there = mpi_version(&version) == OTT_OK;
    print_finding(&d, there, "MPI", there ? version : "libottava_mpi.so cannot be opened",
                  "only runs with several ranks need it: install Open MPI and build again");
    if (status == OTT_OK) report_plugins(&d);
    if (status == OTT_OK) status = str_finish(&d.text);
    if (status == OTT_OK) write(user, d.text.text);
    *missing = d.missing;
    str_free(&d.text);
    return status;
}
