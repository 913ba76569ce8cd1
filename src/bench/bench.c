/* bench/bench: the table of benchmarks, and checks of their options. */
#include "bench/bench.h"
#include "api/handle.h"
#include "base/pool.h"
#include "bench/harness.h"
#include <stdio.h>

static const bench_entry *const entries[] = {
    &bench_gemm,      &bench_gemv,     &bench_quantize, &bench_attention, &bench_norm,
    &bench_optimizer, &bench_products, &bench_step,     &bench_generate,  &bench_load};
enum { ENTRIES = sizeof entries / sizeof *entries };

static ott_status find_benchmark(const char *what, const bench_entry **out) {
    char names[128] = "";
    for (int i = 0; i < ENTRIES; i++) {
        if (what && strcmp(entries[i]->name, what) == 0) return *out = entries[i], OTT_OK;
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", entries[i]->name);
    }
    return status_fail(OTT_ERR_ARGUMENT, "there is no benchmark \"%s\"; there are: %s", what ? what : "",
                       names);
}

/* Fails if an option is set that the benchmark does not use. */
static ott_status check_taken(const bench_entry *entry, const bench_options *o) {
    const struct {
        const char *name;
        bool given;
        unsigned accepts;
    } given[] = {{"shapes", o->shapes != NULL, BENCH_ACCEPTS_SHAPES},
                 {"preset", o->preset != NULL, BENCH_ACCEPTS_MODEL},
                 {"precision", o->precision != NULL, BENCH_ACCEPTS_MODEL},
                 {"recipe", o->recipe != NULL, BENCH_ACCEPTS_MODEL},
                 {"batch_size", o->batch_size != 0, BENCH_ACCEPTS_BATCH},
                 {"seq_len", o->seq_len != 0, BENCH_ACCEPTS_BATCH},
                 {"path", o->path != NULL, BENCH_ACCEPTS_PATH | BENCH_NEEDS_PATH}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].given && !(entry->accepts & given[i].accepts))
            return status_fail(OTT_ERR_ARGUMENT, "%s: does not take the option %s: leave it out", entry->name,
                               given[i].name);
    if ((entry->accepts & BENCH_NEEDS_PATH) && !o->path)
        return status_fail(OTT_ERR_ARGUMENT, "%s: path is missing: give a %s", entry->name,
                           entry == &bench_load ? "Hugging Face folder" : "configuration file");
    return OTT_OK;
}

static ott_status check_repeats(const bench_options *o) {
    if (o->threads < 0) return pool_check_threads(o->threads);
    if (o->repeats < 1 || o->repeats > BENCH_REPEATS_MAX)
        return status_fail(OTT_ERR_ARGUMENT, "repeats = %d is not in [1, %d]", o->repeats, BENCH_REPEATS_MAX);
    if (o->batch_size < 0)
        return status_fail(OTT_ERR_ARGUMENT, "batch_size = %lld: give 1 or more", (long long)o->batch_size);
    if (o->seq_len < 0)
        return status_fail(OTT_ERR_ARGUMENT, "seq_len = %lld: give 1 or more", (long long)o->seq_len);
    return OTT_OK;
}

ott_status bench_measure(mem *account, const logger *log, const bench_options *o, ott_text_fn write,
                         void *user) {
    const bench_entry *entry = NULL;
    TRY(find_benchmark(o->what, &entry));
    TRY(check_taken(entry, o));
    TRY(check_repeats(o));
    str text = {.account = account};
    ott_status status =
        entry->run ? entry->run(account, log, o, &text) : bench_cases(account, log, entry, o, &text);
    if (status == OTT_OK) status = str_finish(&text);
    if (status == OTT_OK) write(user, text.text);
    str_free(&text);
    return status;
}

void bench_options_init(bench_options *options) {
    *options = (bench_options){.what = "gemm", .repeats = 5};
}

ott_status bench_run(ott_context *context, const bench_options *options, ott_text_fn write, void *user) {
    return API_INSIDE(context, bench_measure(context->account, &context->log, options, write, user));
}
