/* cpu/backend_tiles: tests whether the tile unit (AMX) can be used, gives the right bits, and is faster. */
#include "cpu/tiles.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cpu/cpu.h"
#include <string.h>

/* ---- permission ---- */

#if defined(__x86_64__) && defined(__linux__) && CPU_HAS_amx
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool has_unit(void) {
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE);
}
/* Linux allows AMX only to processes that ask for it (Documentation/x86/xstate.rst). */
static bool is_permitted(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#else
static bool has_unit(void) {
    return false;
}
static bool is_permitted(void) {
    return false;
}
#endif

bool cpu_tiles_amx_is_usable(void) {
    return has_unit() && is_permitted();
}

const char *cpu_tiles_refusal(void) {
    if (!has_unit() || is_permitted()) return NULL;
    return "the processor has AMX, but the kernel does not let this process use it";
}

/* ---- comparison of products with and without the tile unit ---- */

/* A product for tests. Its operands and two results are in one block of memory. */
typedef struct sample {
    ott_dtype format;
    int64_t m, n, k;
    bool transposed; /* both operands are transposed */
    gemm_args args;
    operand a, b;
    tensor c;
} sample;

/* Returns a finite number of the format. In bf16 its magnitude is near 1, so no sum is subnormal. */
static uint32_t some_number(ott_dtype d, uint32_t draw) {
    if (d == OTT_BF16) return (draw & 0x80ff) + 0x3f00;
    uint32_t most = d == OTT_E4M3 ? 0x7e : 0x7b, code = draw & 0x7f;
    return (draw & 0x80) | (code < most ? code : most);
}

static void *fill(void *at, ott_dtype d, int64_t count, uint64_t stream) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t number = some_number(d, rng_u32(1, stream, (uint64_t)i));
        if (d == OTT_BF16)
            ((uint16_t *)at)[i] = (uint16_t)number;
        else
            ((uint8_t *)at)[i] = (uint8_t)number;
    }
    return (char *)at + (count * dtype_bytes(d) + 63) / 64 * 64;
}

static operand operand_of(void *data, ott_dtype d, int64_t rows, int64_t k, bool transposed) {
    return (operand){.t = transposed ? tensor_matrix(data, d, k, rows) : tensor_matrix(data, d, rows, k),
                     .transposed = transposed};
}

static int64_t sample_bytes(const sample *s) {
    return (s->m + s->n) * s->k * dtype_bytes(s->format) + 2 * s->m * s->n * (int64_t)sizeof(float) + 256;
}

static void sample_fill(sample *s, void *memory) {
    void *b = fill(memory, s->format, s->m * s->k, 1), *c = fill(b, s->format, s->n * s->k, 2);
    s->a = operand_of(memory, s->format, s->m, s->k, s->transposed);
    s->b = operand_of(b, s->format, s->n, s->k, s->transposed);
    s->c = tensor_matrix(c, OTT_F32, s->m, s->n);
    s->args = (gemm_args){.a = &s->a, .b = &s->b, .c = &s->c};
}

static ott_status sample_run(cpu_device *c, sample *s, const op_table *ops, accumulate_mode order) {
    exec cx = {.device = &c->base};
    s->args.spec.accumulate = order;
    return ops->gemm(&cx, &s->args);
}

static ott_status compare(cpu_device *c, sample *s, void *memory, bool *same) {
    sample_fill(s, memory);
    const float *expected = s->c.data;
    TRY(sample_run(c, s, c->isa->ops, ACCUMULATE_TILE32));
    s->c.data = (float *)s->c.data + s->m * s->n;
    TRY(sample_run(c, s, &c->ops, ACCUMULATE_TILE32));
    *same = *same && memcmp(expected, s->c.data, (size_t)(s->m * s->n) * sizeof(float)) == 0;
    return OTT_OK;
}

ott_status cpu_tiles_compare(cpu_device *c, bool *same) {
    sample samples[] = {{OTT_E4M3, 37, 70, 333, .transposed = false},
                        {OTT_E5M2, 32, 64, 128, .transposed = true},
                        {OTT_BF16, 49, 45, 290, .transposed = true},
                        {OTT_BF16, 96, 32, 2100, .transposed = false}};
    enum { COUNT = sizeof samples / sizeof samples[0] };
    ott_status status = OTT_OK;
    *same = true;
    for (int i = 0; i < COUNT && status == OTT_OK; i++) {
        void *memory;
        TRY(mem_alloc(c->base.account, MEM_OTHER, sample_bytes(&samples[i]), "a product of tiles", &memory));
        status = compare(c, &samples[i], memory, same);
        mem_free(c->base.account, memory);
    }
    return status;
}

/* ---- speed ---- */

static ott_status measure(cpu_device *c, sample *s, double *out) {
    enum { TRIES = 3 };
    static const accumulate_mode orders[] = {ACCUMULATE_FP32, ACCUMULATE_TILE32};
    double best[2] = {INFINITY, INFINITY};
    for (int i = 0; i < 2 * TRIES; i++) {
        double start = clock_seconds();
        TRY(sample_run(c, s, &c->ops, orders[i % 2]));
        double seconds = clock_seconds() - start;
        if (seconds < best[i % 2]) best[i % 2] = seconds;
    }
    return *out = best[0] / best[1], OTT_OK;
}

ott_status cpu_tiles_measure(cpu_device *c, double *out) {
    sample s = {OTT_E4M3, 256, 512, 1024, .transposed = false};
    void *memory;
    TRY(mem_alloc(c->base.account, MEM_OTHER, sample_bytes(&s), "a product of tiles", &memory));
    sample_fill(&s, memory);
    ott_status status = measure(c, &s, out);
    mem_free(c->base.account, memory);
    return status;
}
