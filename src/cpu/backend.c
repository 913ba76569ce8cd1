/*
 * cpu/backend: opens and closes the CPU device. Chooses the ISA level, starts the threads and owns their
 * scratch. Compiled once, not per ISA level.
 */
#include "cpu/cpu.h"
#include "cpu/tiles.h"
#include "base/clock.h"
#include "base/text/str.h"
#include "tensor/host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ISA levels ---- */

static bool always(void) {
    return true;
}
#if CPU_HAS_avx2
/* F16C is not tested: clang 14 has no test for it, and every processor with AVX2 has it. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif
#if CPU_HAS_avx512
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd");
}
#endif
#if CPU_HAS_avx512bf16
static bool has_avx512bf16(void) {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
}
#endif

#if CPU_HAS_amx
static bool has_amx(void) {
    return has_avx512bf16() && cpu_tiles_amx_is_usable();
}
#endif

typedef struct isa_entry {
    const cpu_isa *isa; /* NULL for a level with a tile unit: it uses the fastest level without one */
    bool (*available)(void);
    const cpu_tiles *tiles;
    bool is_for_tests; /* true: cpu_isas does not list this level; it is used only if its name is given */
} isa_entry;

/* The ISA levels of this build, slowest first. */
static const isa_entry isas[] = {
    {.isa = &cpu_isa_scalar, .available = always},
#if CPU_HAS_avx2
    {.isa = &cpu_isa_avx2, .available = has_avx2},
#endif
#if CPU_HAS_avx512
    {.isa = &cpu_isa_avx512, .available = has_avx512},
#endif
#if CPU_HAS_avx512bf16
    {.isa = &cpu_isa_avx512bf16, .available = has_avx512bf16},
#endif
#if CPU_HAS_amx
    {.available = has_amx, .tiles = &cpu_tiles_amx},
    {.available = has_avx512bf16, .tiles = &cpu_tiles_amx_emulated, .is_for_tests = true},
#endif
#if CPU_HAS_neon
    {.isa = &cpu_isa_neon, .available = always},
#endif
};
enum { ISA_COUNT = sizeof isas / sizeof isas[0] };

/* The names of all levels, also of levels that this build or machine does not have. */
static const char *const known[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx", "amx_emulated", "neon"};
enum { KNOWN_COUNT = sizeof known / sizeof known[0] };

static const char *name_of(const isa_entry *e) {
    return e->tiles ? e->tiles->name : e->isa->name;
}

int cpu_isas(const char **names) {
    int count = 0;
    for (int i = 0; i < ISA_COUNT; i++)
        if (!isas[i].is_for_tests && isas[i].available()) names[count++] = name_of(&isas[i]);
    return count;
}

static bool is_isa_known(const char *name) {
    for (int i = 0; i < KNOWN_COUNT; i++)
        if (strcmp(known[i], name) == 0) return true;
    return false;
}

static ott_status refuse_isa(const char *name, bool from_environment) {
    const char *names[CPU_ISAS_MAX];
    char list[64] = "";
    int count = cpu_isas(names), length = 0;
    for (int i = 0; i < count; i++)
        length += snprintf(list + length, sizeof list - (size_t)length, "%s%s", i ? ", " : "", names[i]);
    const char *origin = from_environment ? " (environment variable " CPU_ISA_VARIABLE ")" : "";
    const char *why = strcmp(name, "amx") == 0 ? cpu_tiles_refusal() : NULL;
    if (is_isa_known(name))
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "instruction set '%s'%s is not available on this machine%s%s; available: %s; "
                           "leave " CPU_ISA_VARIABLE " unset for the fastest",
                           name, origin, why ? ": " : "", why ? why : "", list);
    const char *nearest = str_nearest(name, known, KNOWN_COUNT);
    return status_fail(OTT_ERR_ARGUMENT,
                       "unknown instruction set '%s'%s%s%s%s; available: %s; leave " CPU_ISA_VARIABLE
                       " unset for the fastest",
                       name, origin, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                       nearest ? "'?" : "", list);
}

/* True if the level's bf16 dot products do more operations a second than its fp32 multiply-adds. On some
   processors bf16 dot products do half as many. The first call measures for a millisecond. */
static bool pairs_are_faster(const cpu_isa *isa) {
    enum { TRIES = 4, ROUNDS = 4000 };
    static _Atomic int answer; /* 0: not measured, 1: not faster, 2: faster */
    double best[2] = {0, 0};
    for (int i = 0; i < 2 * TRIES && !answer; i++) {
        double start = clock_seconds(), work = isa->burst(i % 2 ? OTT_BF16 : OTT_F32, ROUNDS);
        double rate = work / (clock_seconds() - start);
        if (rate > best[i % 2]) best[i % 2] = rate;
    }
    if (!answer) answer = best[1] > 1.1 * best[0] ? 2 : 1;
    return answer == 2;
}

/* Returns the fastest available level without tile unit. */
static const cpu_isa *best_isa(void) {
    int i = ISA_COUNT - 1;
    while (isas[i].tiles || !isas[i].available() ||
           (isas[i].isa->has_pairs && !pairs_are_faster(isas[i].isa)))
        i--;
    return isas[i].isa;
}

/* Chooses the ISA level for cpu_open. *tiles is NULL if the level has no tile unit. */
static ott_status choose_isa(const char *name, const cpu_isa **isa, const cpu_tiles **tiles) {
    const char *wanted = name ? name : getenv(CPU_ISA_VARIABLE);
    bool any = !wanted || (!name && !*wanted);
    for (int i = ISA_COUNT - 1; i >= 0; i--) {
        const isa_entry *e = &isas[i];
        if (any ? !e->tiles || e->is_for_tests : strcmp(name_of(e), wanted) != 0) continue;
        if (!e->available()) continue;
        *tiles = e->tiles;
        *isa = e->tiles ? best_isa() : e->isa;
        return OTT_OK;
    }
    if (!any) return refuse_isa(wanted, !name);
    *tiles = NULL;
    return *isa = best_isa(), OTT_OK;
}

/* ---- peak ---- */

enum { PEAK_BURSTS = 8, PEAK_ROUNDS = 20000 }; /* one burst takes less than a millisecond */
#define PEAK_SETTLING 0.02                     /* seconds to wait until each thread runs on its own core */

typedef struct burst_job {
    const cpu_isa *isa;
    ott_dtype format;
} burst_job;

static void burst(void *argument, int thread, int threads) {
    const burst_job *job = argument;
    (void)thread, (void)threads;
    job->isa->burst(job->format, PEAK_ROUNDS);
}

/* Returns the best FLOP/s of a few bursts of multiply-adds on all threads. */
static double measure_peak(device *d, ott_dtype format) {
    cpu_device *c = (cpu_device *)d;
    burst_job job = {c->isa, format};
    double work = c->isa->burst(format, 1) * PEAK_ROUNDS * c->base.threads, best = 0, began = clock_seconds();
    while (clock_seconds() - began < PEAK_SETTLING) pool_run(c->pool, burst, &job);
    for (int i = 0; i < PEAK_BURSTS; i++) {
        double start = clock_seconds();
        pool_run(c->pool, burst, &job);
        double rate = work / (clock_seconds() - start);
        if (rate > best) best = rate;
    }
    return best;
}

/* ---- the device table (tensor/host.h) ---- */

typedef struct copy_job {
    char *to;
    const char *from;
    int64_t bytes;
} copy_job;

static void copy_share(void *argument, int thread, int threads) {
    const copy_job *job = argument;
    int64_t begin, end;
    pool_share(job->bytes, MEM_ALIGNMENT, thread, threads, &begin, &end);
    if (end > begin) memcpy(job->to + begin, job->from + begin, (size_t)(end - begin));
}

/* Copies within the device with all threads. */
static ott_status copy_within(device *d, void *to, const void *from, int64_t bytes) {
    copy_job job = {to, from, bytes};
    pool_run(((cpu_device *)d)->pool, copy_share, &job);
    return OTT_OK;
}

static void close_device(device *d) {
    cpu_device *c = (cpu_device *)d;
    mem *account = d->account;
    pool_close(c->pool);
    mem_free(account, c->scratch);
    mem_free(account, c);
}

static const device_table table = {
    HOST_TABLE_MEMORY, .copy = copy_within, HOST_TABLE_EVENTS, .peak = measure_peak, .close = close_device,
};

bool cpu_has_tiles(const device *d) {
    return d->table == &table && ((const cpu_device *)d)->tiles;
}

ott_status cpu_tiles_speed(device *d, double *out) {
    *out = 0;
    return cpu_has_tiles(d) ? cpu_tiles_measure((cpu_device *)d, out) : OTT_OK;
}

const char *cpu_warning(const device *d) {
    return d->table == &table ? ((const cpu_device *)d)->warning : NULL;
}

const char *cpu_peak_unit(const device *d, ott_dtype format) {
    if (d->table != &table) return NULL;
    bool pairs = ((const cpu_device *)d)->isa->has_pairs && cpu_is_pair_format(format);
    return pairs ? "bf16 dot product" : "fp32 multiply-add";
}

/* The CPU supports every recipe: it decodes operands of any format to fp32, or to pairs of bf16 numbers. */
const backend_capabilities cpu_capabilities = {.name = "cpu", .alignment = MEM_ALIGNMENT};

/* Lets the tile unit compute products, unless a test shows wrong bits. */
static ott_status take_tiles(cpu_device *c, const cpu_tiles *tiles) {
    bool same;
    c->tiles = tiles;
    tiles->replace_ops(&c->ops);
    TRY(cpu_tiles_compare(c, &same));
    if (same) return OTT_OK;
    c->tiles = NULL;
    c->ops = *c->isa->ops;
    c->warning = "the tile unit (AMX) of this processor gives other results than its vector units, so Ottava "
                 "does not use it";
    return OTT_OK;
}

static ott_status fill_device(cpu_device *c, mem *account, int threads, const cpu_tiles *tiles) {
    TRY(pool_open(account, threads, &c->pool));
    c->base.threads = pool_threads(c->pool);
    void *scratch;
    TRY(mem_alloc_array(account, MEM_SCRATCH, c->base.threads, CPU_SCRATCH_BYTES, "thread scratch",
                        &scratch));
    c->scratch = scratch;
    if (tiles) TRY(take_tiles(c, tiles));
    snprintf(c->name, sizeof c->name, "cpu %s, %d thread%s", c->tiles ? c->tiles->name : c->isa->name,
             c->base.threads, c->base.threads == 1 ? "" : "s");
    return OTT_OK;
}

ott_status cpu_open(mem *account, int threads, const char *isa, device **out) {
    *out = NULL;
    const cpu_isa *chosen = NULL;
    const cpu_tiles *tiles = NULL;
    TRY(choose_isa(isa, &chosen, &tiles));
    cpu_device *c;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(cpu_device), "the CPU device", &c));
    c->isa = chosen;
    c->ops = *chosen->ops;
    c->base = (device){
        .table = &table, .ops = &c->ops, .can = &cpu_capabilities, .account = account, .name = c->name};
    ott_status status = fill_device(c, account, threads, tiles);
    if (status != OTT_OK) return close_device(&c->base), status;
    return *out = &c->base, OTT_OK;
}
