/* bench/harness: measures cases and writes the results. */
#include "bench/harness.h"
#include "backend/backend.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/text/number.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- cases ---- */

ott_status bench_add(bench *b, const bench_case *c) {
    TRY(mem_reserve(b->account, MEM_OTHER, b->count + 1, "cases of a benchmark", &b->capacity, &b->cases));
    b->cases[b->count++] = *c;
    return OTT_OK;
}

ott_status(bench_alloc)(bench *b, int64_t bytes, void **out) {
    return arena_alloc(b->arena, bytes, out);
}

enum { STRETCH = 65521 };

/* Fills the tensor with repetitions of the same STRETCH values. STRETCH is odd, so that its rows differ. E8M0
   has no negative numbers. */
static ott_status fill_operand(device *d, const tensor *t) {
    float values[STRETCH];
    int64_t count = tensor_count(*t), size = dtype_bytes(t->dtype), first = count < STRETCH ? count : STRETCH;
    for (int64_t i = 0; i < first; i++) {
        float value = 2.0f * rng_uniform(1, rng_stream("bench"), (uint64_t)i) - 1.0f;
        cast_store(values, t->dtype, i, t->dtype == OTT_E8M0 ? fabsf(value) : value);
    }
    TRY(device_copy_in(d, t->data, values, first * size));
    for (int64_t at = first, n; at < count; at += n) {
        n = count - at < at ? count - at : at;
        TRY(device_copy(d, (char *)t->data + at * size, t->data, n * size));
    }
    return OTT_OK;
}

ott_status bench_tensor(bench *b, ott_dtype d, int64_t rows, int64_t columns, tensor *out) {
    plan_buffer buffer; /* not closed: the tensor is needed until the plan ends */
    TRY(exec_open(&b->cx, "operand of a benchmark", d, rows, columns, out, &buffer));
    return fill_operand(b->cx.device, out);
}

const bench_case *bench_find(const bench *b, const char *what, const char *shape, const char *variant) {
    for (int i = 0; i < b->count; i++) {
        const bench_case *c = &b->cases[i];
        if (strcmp(c->what, what) == 0 && strcmp(c->shape, shape) == 0 && strcmp(c->variant, variant) == 0)
            return c;
    }
    return NULL;
}

/* ---- measuring ---- */

/* The current time; with one thread the thread's CPU time, because this thread does all the work. */
static double case_clock(const bench *b) {
    return b->cx.device->threads == 1 ? clock_thread() : clock_seconds();
}

static int64_t copied_bytes(const bench_case *c) {
    return (int64_t)c->bytes / 2; /* each byte is read and written */
}

static ott_status open_copies(bench *b) {
    for (int i = 0; i < b->count; i++) {
        const bench_case *c = &b->cases[i];
        int64_t bytes = c->flops > 0 ? 0 : c->region / 2 > copied_bytes(c) ? c->region / 2 : copied_bytes(c);
        if (bytes > b->copy_bytes) b->copy_bytes = bytes;
    }
    TRY(plan_open(b->cx.plan, "memcpy's source", b->copy_bytes, &b->copy_from));
    TRY(plan_open(b->cx.plan, "memcpy's target", b->copy_bytes, &b->copy_to));
    /* Writes both buffers once, so that the operating system has mapped their pages before they are timed. */
    TRY(device_copy(b->cx.device, b->copy_from.data, b->copy_to.data, b->copy_bytes));
    return device_copy(b->cx.device, b->copy_to.data, b->copy_from.data, b->copy_bytes);
}

static ott_status run_case(bench *b, const bench_case *c, double *seconds, double *processor) {
    double began = case_clock(b), processor_began = clock_process();
    for (int64_t i = 0; i < c->runs; i++) TRY(c->run(b, c->state));
    TRY(device_synchronize(b->cx.device));
    *seconds = (case_clock(b) - began) / (double)c->runs;
    *processor = (clock_process() - processor_began) / (double)c->runs;
    return OTT_OK;
}

static ott_status run_copy(bench *b, const bench_case *c, double *seconds) {
    int64_t bytes = copied_bytes(c), half = c->region ? c->region / 2 : bytes, at = 0;
    double began = case_clock(b);
    for (int64_t i = 0; i < c->runs; i++, at += bytes) {
        if (at + bytes > half) at = 0;
        TRY(device_copy(b->cx.device, (char *)b->copy_to.data + at, (char *)b->copy_from.data + at, bytes));
    }
    TRY(device_synchronize(b->cx.device));
    *seconds = (case_clock(b) - began) / (double)c->runs;
    return OTT_OK;
}

/* Runs the case once or twice, and from its time chooses c->runs, the number of runs per measurement. A
   measurement must be long compared with the jitter of the clock and of the threads. */
static ott_status choose_runs(bench *b, bench_case *c) {
    const double least = 4e-3;
    const int64_t most = 4096;
    double seconds, processor;
    c->runs = 1;
    TRY(run_case(b, c, &seconds, &processor)); /* the first run touches its memory for the first time */
    if (c->once || seconds >= least) return OTT_OK;
    TRY(run_case(b, c, &seconds, &processor));
    if (seconds * (double)most < least)
        c->runs = most;
    else if (seconds < least)
        c->runs = (int64_t)ceil(least / seconds);
    return OTT_OK;
}

static bool is_on_gpu(const bench *b) {
    return b->cx.device->threads == 0;
}

static const char *compute_unit_of(const bench *b, const bench_case *c) {
    const char *unit = backend_peak_unit(b->cx.device, c->format);
    return unit ? unit : dtype_name(c->format);
}

/* Returns the index in b->peak of the case's compute unit; b->peaks if it was not measured yet. */
static int find_peak(const bench *b, const bench_case *c) {
    int at = 0;
    while (at < b->peaks && strcmp(b->peak[at].unit, compute_unit_of(b, c)) != 0) at++;
    return at;
}

/* Measures the peak of the case's compute unit if its last measurement is at least 0.2 s old. */
static void burst_before(bench *b, const bench_case *c) {
    const double apart = 0.2;
    int at = find_peak(b, c);
    bench_peak *p = &b->peak[at];
    if (at < b->peaks && clock_seconds() - p->measured < apart) return;
    if (at == b->peaks) b->peak[b->peaks++] = (bench_peak){.unit = compute_unit_of(b, c)};
    double flops = device_peak(b->cx.device, c->format);
    if (flops > p->flops) p->flops = flops;
    p->measured = clock_seconds();
}

/* If this run was faster than the peak of its compute unit, raises the peak to this run's speed. */
static void bound_peak(bench *b, const bench_case *c, double seconds) {
    bench_peak *p = &b->peak[find_peak(b, c)];
    if (!is_on_gpu(b) && c->flops > seconds * p->flops) p->flops = c->flops / seconds;
}

static ott_status measure_cases(bench *b) {
    for (int i = 0; i < b->count; i++) TRY(choose_runs(b, &b->cases[i]));
    for (int r = 0; r < b->options->repeats; r++)
        for (int i = 0; i < b->count; i++) {
            bench_case *c = &b->cases[i];
            if (c->flops > 0) burst_before(b, c);
            TRY(run_case(b, c, &c->seconds[r], &c->processor[r]));
            if (c->flops == 0) TRY(run_copy(b, c, &c->copy_seconds[r]));
            if (c->flops > 0) bound_peak(b, c, c->seconds[r]);
        }
    return OTT_OK;
}

/* ---- results ---- */

double bench_median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, number_compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double bench_seconds(const bench *b, const bench_case *c) {
    return bench_median(c->seconds, b->options->repeats);
}

double bench_processor_seconds(const bench *b, const bench_case *c) {
    return bench_median(c->processor, b->options->repeats);
}

/* GFLOP/s, or GB/s if the case moves bytes */
static double rate(const bench *b, const bench_case *c) {
    return (c->flops > 0 ? c->flops : c->bytes) / bench_seconds(b, c) / 1e9;
}

/* Returns the speed relative to the peak of the compute unit, or to memcpy; 0 if the peak is unknown. */
static double share_of_peak(const bench *b, const bench_case *c) {
    double peak = c->flops > 0 ? b->peak[find_peak(b, c)].flops : 0;
    if (c->flops > 0) return peak > 0 ? c->flops / bench_seconds(b, c) / peak : 0;
    return bench_median(c->copy_seconds, b->options->repeats) / bench_seconds(b, c);
}

/* Returns the speed relative to the bf16 case of the same operation and size; NaN if there is none. */
static double compares_bf16(const bench *b, const bench_case *c) {
    const bench_case *bf16 = bench_find(b, c->what, c->shape, "bf16");
    return bf16 ? rate(b, c) / rate(b, bf16) : (double)NAN;
}

/* Returns the geometric mean of of(b, case) over all cases of this variant. of: a speed or a ratio. */
static double geometric_mean(const bench *b, const char *variant,
                             double (*of)(const bench *, const bench_case *)) {
    double sum = 0;
    int count = 0;
    for (int i = 0; i < b->count; i++) {
        if (strcmp(b->cases[i].variant, variant) != 0) continue;
        sum += log(of(b, &b->cases[i]));
        count++;
    }
    return exp(sum / count);
}

void bench_processor(char out[96]) {
    char line[256];
    snprintf(out, 96, "unknown processor");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(out, 96, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f) fclose(f);
}

/* ---- the table ---- */

enum { VARIANTS_MOST = 8 };

static int variants(const bench *b, const char *out[VARIANTS_MOST]) {
    int count = 0;
    for (int i = 0; i < b->count; i++) {
        int at = 0;
        while (at < count && strcmp(out[at], b->cases[i].variant) != 0) at++;
        if (at == count && count < VARIANTS_MOST) out[count++] = b->cases[i].variant;
    }
    return count;
}

static bool starts_line(const bench *b, int i) {
    for (int j = 0; j < i; j++)
        if (strcmp(b->cases[j].what, b->cases[i].what) == 0 &&
            strcmp(b->cases[j].shape, b->cases[i].shape) == 0)
            return false;
    return true;
}

static void write_case_line(const bench *b, const bench_case *c, const char *const *columns, int count,
                            str *out) {
    str_printf(out, "%-26s %-20s", c->what, c->shape);
    for (int v = 0; v < count; v++) {
        const bench_case *found = bench_find(b, c->what, c->shape, columns[v]);
        if (found)
            str_printf(out, " %8.1f (%5.1f%%)", rate(b, found), 100 * share_of_peak(b, found));
        else
            str_printf(out, " %17s", "-");
    }
    if (b->entry->compares_bf16) str_printf(out, " %14.2f", compares_bf16(b, c));
    str_append(out, "\n");
}

/* Writes each compute unit's peak and formats: "bf16 dot product 233.1 GFLOP/s: e4m3, bf16". */
static void write_peaks(const bench *b, str *out) {
    str_printf(out, "GFLOP/s (share of the peak %s)\n",
               is_on_gpu(b) ? "in the data sheet" : "of its compute unit, measured between cases");
    for (int p = 0; p < b->peaks; p++) {
        bool listed[OTT_DTYPE_COUNT] = {false};
        str_printf(out, "  %s %.1f GFLOP/s:", b->peak[p].unit, b->peak[p].flops / 1e9);
        const char *between = " ";
        for (int i = 0; i < b->count; i++) {
            const bench_case *c = &b->cases[i];
            if (listed[c->format] || find_peak(b, c) != p) continue;
            listed[c->format] = true;
            str_printf(out, "%s%s", between, dtype_name(c->format));
            between = ", ";
        }
        str_append(out, "\n");
    }
}

static void write_case_table(bench *b, str *out) {
    const char *columns[VARIANTS_MOST];
    int count = variants(b, columns);
    char processor[96];
    bench_processor(processor);
    str_printf(out, "%s; %s; medians of %d interleaved repeats\n", processor, b->cx.device->name,
               b->options->repeats);
    if (b->cases[0].flops > 0)
        write_peaks(b, out);
    else
        str_append(out, "GB/s read and written (share of memcpy's speed on as many bytes)\n");
    if (b->entry->compares_bf16) str_printf(out, "times bf16: %s relative to bf16\n", columns[0]);
    str_printf(out, "\n%-26s %-20s", "", b->cases[0].flops > 0 ? "M x N x K" : "");
    for (int v = 0; v < count; v++) str_printf(out, " %17s", columns[v]);
    str_append(out, b->entry->compares_bf16 ? "     times bf16\n" : "\n");
    for (int i = 0; i < b->count; i++)
        if (starts_line(b, i)) write_case_line(b, &b->cases[i], columns, count, out);
    if (b->count > count) {
        str_printf(out, "%-47s", "geometric mean");
        for (int v = 0; v < count; v++)
            str_printf(out, " %8.1f (%5.1f%%)", geometric_mean(b, columns[v], rate),
                       100 * geometric_mean(b, columns[v], share_of_peak));
        if (b->entry->compares_bf16) str_printf(out, " %14.2f", geometric_mean(b, columns[0], compares_bf16));
        str_append(out, "\n");
    }
    if (b->entry->text) b->entry->text(b, out);
}

/* ---- JSON ---- */

static void append_json_member(str *out, const char *name, const char *text) {
    str_printf(out, ",\"%s\":", name);
    str_append_json(out, text, (int64_t)strlen(text));
}

static void write_result(const bench *b, const bench_case *c, str *out) {
    bool flops = c->flops > 0;
    str_printf(out, "{\"what\":\"%s\",\"shape\":\"%s\",\"variant\":\"%s\",\"seconds\":%.9g", c->what,
               c->shape, c->variant, bench_seconds(b, c));
    str_printf(out, ",\"%s\":%.2f,\"of_peak\":%.4f", flops ? "gflops" : "gbytes_per_second", rate(b, c),
               share_of_peak(b, c));
    str_printf(out, ",\"processor_seconds\":%.9g", bench_processor_seconds(b, c));
    if (flops) str_printf(out, ",\"unit\":\"%s\"", compute_unit_of(b, c));
    if (b->entry->compares_bf16) str_printf(out, ",\"times_bf16\":%.4f", compares_bf16(b, c));
    str_append(out, "}");
}

static void write_table_json(bench *b, str *out) {
    const char *columns[VARIANTS_MOST];
    int count = variants(b, columns);
    char processor[96];
    bench_processor(processor);
    str_printf(out, "{\"bench\":\"%s\"", b->entry->name);
    append_json_member(out, "processor", processor);
    append_json_member(out, "device", b->cx.device->name);
    str_printf(out, ",\"threads\":%d,\"repeats\":%d,\"peak_gflops\":{", b->cx.device->threads,
               b->options->repeats);
    for (int p = 0; p < b->peaks; p++)
        str_printf(out, "%s\"%s\":%.1f", p ? "," : "", b->peak[p].unit, b->peak[p].flops / 1e9);
    str_append(out, "},\"results\":[");
    for (int i = 0; i < b->count; i++) {
        if (i > 0) str_append(out, ",");
        write_result(b, &b->cases[i], out);
    }
    str_append(out, "],\"geometric_mean\":{");
    for (int v = 0; v < count; v++)
        str_printf(out, "%s\"%s\":%.2f", v ? "," : "", columns[v], geometric_mean(b, columns[v], rate));
    str_append(out, "}");
    if (b->entry->json) b->entry->json(b, out);
    str_append(out, "}\n");
}

/* ---- running a benchmark ---- */

static ott_status run_cases(bench *b, str *out) {
    const backend_choice choice = {.name = b->options->device, .threads = b->options->threads, .log = b->log};
    TRY(backend_open(&choice, b->account, &b->cx.device));
    TRY(arena_open(b->account, MEM_OTHER, &b->arena));
    TRY(plan_create(b->cx.device, &b->cx.plan));
    plan_immediate(b->cx.plan);
    TRY(b->entry->add(b));
    TRY(open_copies(b));
    int repeats = b->options->repeats;
    TRY(mem_alloc_array(b->account, MEM_OTHER, 3 * b->count * (int64_t)repeats, sizeof(double),
                        "times of a benchmark", &b->times));
    for (int i = 0; i < b->count; i++) {
        b->cases[i].seconds = b->times + 3 * i * (int64_t)repeats;
        b->cases[i].copy_seconds = b->cases[i].seconds + repeats;
        b->cases[i].processor = b->cases[i].copy_seconds + repeats;
    }
    TRY(measure_cases(b));
    if (b->options->json)
        write_table_json(b, out);
    else
        write_case_table(b, out);
    return OTT_OK;
}

ott_status bench_cases(mem *account, const logger *log, const bench_entry *entry, const bench_options *o,
                       str *out) {
    bench b = {.account = account, .log = log, .options = o, .entry = entry, .cx = {.log = log}};
    ott_status status = run_cases(&b, out);
    if (entry->close) entry->close(&b);
    mem_free(account, b.cases);
    mem_free(account, b.times);
    plan_destroy(b.cx.plan);
    arena_close(b.arena);
    device_close(b.cx.device);
    return status;
}
