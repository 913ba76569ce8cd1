/* bench/model: opens a model from the options of a benchmark, through a configuration. */
#include "bench/model.h"
#include "backend/backend.h"
#include <stdio.h>

static const char *const known[] = {"fp8", "bf16", "fp32"};
enum { KNOWN = sizeof known / sizeof *known };

static ott_status fail_unknown_precision(const char *word, int length) {
    return status_fail(OTT_ERR_ARGUMENT,
                       "precision \"%.*s\": give one or more of fp8, bf16 and fp32, each once, with commas",
                       length, word);
}

static ott_status add_precision(const char *word, int length, const char **out, int *count) {
    for (int i = 0; i < KNOWN; i++) {
        if ((int)strlen(known[i]) != length || strncmp(known[i], word, (size_t)length) != 0) continue;
        for (int j = 0; j < *count; j++)
            if (out[j] == known[i]) return fail_unknown_precision(word, length);
        out[(*count)++] = known[i];
        return OTT_OK;
    }
    return fail_unknown_precision(word, length);
}

ott_status bench_precisions(const bench_options *o, const char *out[BENCH_PRECISIONS_MOST], int *count) {
    const char *at = o->precision ? o->precision : "fp8,bf16";
    bool has_fp8 = false;
    *count = 0;
    for (;;) {
        int length = (int)strcspn(at, ",");
        TRY(add_precision(at, length, out, count));
        has_fp8 |= out[*count - 1] == known[0];
        if (!at[length]) break;
        at += length + 1;
    }
    if (o->recipe && !has_fp8)
        return status_fail(OTT_ERR_ARGUMENT,
                           "recipe = \"%s\" needs fp8, and precision = \"%s\" does not contain it", o->recipe,
                           o->precision);
    return OTT_OK;
}

enum { MORE_MOST = 5 };

ott_status bench_config(mem *account, const logger *log, const bench_options *o, const char *const *more,
                        int count, config **out) {
    const char *arguments[MORE_MOST + 4] = {"--data.format=synthetic"};
    int n = 1;
    STATUS_REQUIRE(count <= MORE_MOST);
    if (o->path) {
        arguments[n++] = "--data.dataset_path="; /* the data set of the configuration file need not exist */
        arguments[n++] = "--eval.enabled=false";
        arguments[n++] = o->path;
    }
    for (int i = 0; i < count; i++) arguments[n++] = more[i];
    return config_parse(account, log, n, arguments, out);
}

/* Makes arguments of `ottava train` from the benchmark's options, and reads the configuration. */
static ott_status read_bench_config(const bench_options *o, const char *preset, const char *const *sizes,
                                    int count, bench_model *m) {
    char text[3][128];
    const char *arguments[MORE_MOST];
    int n = 0;
    STATUS_REQUIRE(count <= MORE_MOST - 3);
    for (int i = 0; i < count; i++) arguments[n++] = sizes[i];
    if (preset) {
        snprintf(text[0], sizeof text[0], "--model.preset=%s", preset);
        arguments[n++] = text[0];
    }
    snprintf(text[1], sizeof text[1], "--train.mixed_precision=%s", m->name);
    arguments[n++] = text[1];
    if (strcmp(m->name, "fp8") == 0) {
        snprintf(text[2], sizeof text[2], "--float8.recipe_name=%s", o->recipe ? o->recipe : "tensorwise");
        arguments[n++] = text[2];
    }
    TRY(bench_config(m->account, NULL, o, arguments, n, &m->cfg));
    if (preset && m->cfg->model.preset == PRESET_NONE)
        return status_fail(OTT_ERR_ARGUMENT, "preset \"%s\" is not a model", preset);
    TRY(model_options_resolve(m->cfg, &m->shape));
    return precision_plan_read(m->cfg, &m->precision);
}

ott_status bench_model_open(const bench_options *o, const char *precision, const char *preset,
                            const char *const *sizes, int count, bench_model *m) {
    m->name = precision;
    TRY(mem_open(&m->account));
    TRY(read_bench_config(o, preset, sizes, count, m));
    return backend_open(&(backend_choice){.name = o->device, .threads = o->threads}, m->account, &m->device);
}

void bench_model_close(bench_model *m) {
    device_close(m->device);
    config_close(m->cfg);
    mem_close(m->account);
}

void bench_text_line(str *out, const char *what, const double *values, int count, int digits,
                     const char *unit) {
    str_printf(out, "%-47s", what);
    for (int i = 0; i < count; i++)
        str_printf(out, " %*.*f%s", 17 - (int)strlen(unit), digits, values[i], unit);
    str_append(out, "\n");
}
