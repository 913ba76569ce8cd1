/* plan/doctor: findings about this machine, a line each. */
#include "plan/doctor.h"
#include "api/context.h"
#include "backend/backend.h"
#include "backend/loader.h"
#include "base/str.h"

typedef struct doctor {
    str text;
    int missing;
} doctor;

static void tell(void *user, bool good, const char *what, const char *found, const char *way_out) {
    doctor *d = user;
    str_printf(&d->text, "%-9s %-13s %s\n", good ? "ok" : "missing", what, found);
    if (good) return;
    d->missing++;
    str_printf(&d->text, "%24s-> %s\n", "", way_out);
}

static ott_status tell_cpu(doctor *d, ott_context *context) {
    device *cpu;
    TRY(backend_open("cpu", context->threads, context->account, NULL, &cpu));
    tell(d, true, "cpu", cpu->name, NULL);
    device_close(cpu);
    return OTT_OK;
}

static void tell_gpu(doctor *d) {
    const plugin *p;
    char missing[LOADER_TEXT];
    if (loader_find(&p) != OTT_OK) {
        tell(d, false, "CUDA backend", status_text(), "make cuda");
        return;
    }
    if (loader_list_missing(p, missing))
        tell(d, false, "CUDA backend", "it is not whole yet", "train on the CPU");
    else
        tell(d, true, "CUDA backend", LOADER_FILE, NULL);
    p->inspect(tell, d);
}

ott_status doctor_run(ott_context *context, ott_text_fn write, void *user, int *missing) {
    doctor d = {.text = {.account = context->account}};
    ott_status status = tell_cpu(&d, context);
    if (status == OTT_OK) tell_gpu(&d);
    if (status == OTT_OK) status = str_finish(&d.text);
    if (status == OTT_OK) write(user, d.text.text);
    *missing = d.missing;
    str_free(&d.text);
    return status;
}
