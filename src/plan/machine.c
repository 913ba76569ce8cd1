/* plan/machine: the table of devices, and the time of operations on them. */
#include "plan/machine.h"
#include "base/text/str.h"
#include "tensor/gpus.h"
#include "tensor/rules/attention.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct machine_row {
    const char *name, *about;
    machine_rates rate;
    const gpu *gpu;
} machine_row;

/* Seconds to start a kernel that is queued after another one. */
#define LAUNCH 3e-6
/* FLOP per instruction that a GPU can issue, for Ottava's kernels without tensor cores, by their machine code
   (docs/explanation/estimates.md). No GPU has measured them. */
#define OWN_ATTENTION 0.09
/* Grouped GEMMs: FLOP per instruction on tensor cores, at most a share of the bf16 peak; in fp32, without. */
#define GROUPED       8.0
#define GROUPED_MOST  0.5
#define GROUPED_EXACT (1.0 / 64)
/* Share of the bf16 peak that Ottava's attention on tensor cores is assumed to reach, and how much faster
   cuDNN's backward is if its sums have no fixed order (tensor/gpus.def). */
#define FLASH_ATTENTION 0.25
#define UNORDERED       (470.0 / 340)

static const machine_row rows[] = {
#define MACHINE(row, text, id, memory, gemm16, gemm8, forward, backward, gbs, share, host, near, far,        \
                devices, sms, delay)                                                                         \
    {row,                                                                                                    \
     text,                                                                                                   \
     {.gib = memory,                                                                                         \
      .gemm = {[WORK_BF16] = (gemm16)*1e12, [WORK_FP8] = (gemm8)*1e12},                                      \
      .attention_forward = (forward)*1e12,                                                                   \
      .attention_backward = (backward)*1e12,                                                                 \
      .bandwidth = (gbs)*1e9 * (share),                                                                      \
      .bus = (host)*1e9,                                                                                     \
      .link = (near)*1e9,                                                                                    \
      .network = (far)*1e9,                                                                                  \
      .node = devices,                                                                                       \
      .cores = sms,                                                                                          \
      .latency = delay,                                                                                      \
      .launch = LAUNCH},                                                                                     \
     &gpu_table[GPU_##id]},
#include "tensor/gpus.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- devices for dry runs ---- */

#define GIB 1073741824.0

static mem_stats take_nothing(const device *d) {
    (void)d;
    return (mem_stats){0};
}

static void read_machine_memory(const device *d, device_memory *out) {
    const machine *m = (const machine *)((const char *)d - offsetof(machine, device));
    *out = (device_memory){.total = (int64_t)(m->rate.gib * GIB)};
    out->limit.total = out->total;
    out->limit.left = out->total - DEVICE_RESERVED;
    snprintf(out->limit.owner, sizeof out->limit.owner, "%s", m->about);
}

static const device_table table = {.taken = take_nothing, .read_memory = read_machine_memory};

/* Workspace of GPU libraries. A cuBLASLt GEMM takes 32 MiB. Attention backward stores the gradients of
   scores, if the documents have equal lengths and ATTENTION_SQUARES_MOST allows it. Otherwise it stores the
   query's gradient in fp32, and the gradients of keys and values separately for each query head. */
static int64_t gpu_workspace(const device *d, enum op_index op, const void *args) {
    (void)d;
    if (op == OP_INDEX_gemm) return (int64_t)32 << 20;
    if (op != OP_INDEX_attention_backward) return 0;
    const attention_backward_args *a = args;
    int64_t linear = 8 * a->q->rows * a->q->columns, documents = a->cu_seqlens->columns - 1;
    int64_t length = a->longest > 0 && a->longest < a->q->rows ? a->longest : a->q->rows;
    int64_t heads = a->lse->rows, kv_heads = a->k->columns / a->head_dim;
    if (documents > 1 && documents * length != a->q->rows) return linear;
    if (documents <= 1) documents = 1, length = a->q->rows;
    int64_t count = attention_square_heads(documents, heads, kv_heads, length, ATTENTION_SQUARES_MOST);
    int64_t keys = 4 * a->q->rows * a->head_dim * (heads / kv_heads); /* gradients of its query heads */
    return count > 0 ? count * (attention_square_bytes(documents, heads, kv_heads, length) + keys) : linear;
}

/* Sets the peaks, the capabilities and the device of a GPU. */
static void lay_out_as_gpu(machine *m, const gpu *g, device *cpu) {
    m->ops = *cpu->ops;
    m->ops.workspace = gpu_workspace;
    m->ops.packed_count = NULL;
    m->rate.peak[WORK_FP32] = g->fp32;
    m->rate.peak[WORK_BF16] = g->bf16;
    m->rate.peak[WORK_FP8] = g->fp8;
    m->rate.gemm[WORK_FP32] = 0.8 * g->fp32;
    m->rate.issue = g->fp32 / gpu_flops_per_instruction(g->capability);
    m->rate.own_attention = OWN_ATTENTION * m->rate.issue;
    m->rate.grouped = fmin(GROUPED * m->rate.issue, GROUPED_MOST * g->bf16);
    m->rate.flash_attention = FLASH_ATTENTION * g->bf16;
    m->rate.orders_packed = gpu_orders_packed_attention(g->capability);
    m->rate.adds_row_pass = !gpu_multiplies_row_scales(g->capability);
    gpu_fill_capabilities(g->capability, m->name, false, &m->can);
    if (!machine_has_fp8(m)) {
        static const char reason[] = "its tensor cores do not support FP8";
        m->can.no_format[OTT_E4M3] = m->can.no_format[OTT_E5M2] = reason;
    }
    m->device =
        (device){.table = &table, .ops = &m->ops, .can = &m->can, .account = cpu->account, .name = m->name};
    m->like = &m->device;
}

static ott_status fail_machine_name(const char *name) {
    const char *names[ROWS + 1] = {"cpu"};
    char list[160] = "cpu";
    for (int i = 0; i < ROWS; i++) {
        size_t length = strlen(list);
        names[i + 1] = rows[i].name;
        snprintf(list + length, sizeof list - length, ", %s", rows[i].name);
    }
    const char *nearest = str_nearest(name, names, ROWS + 1);
    return status_fail(OTT_ERR_ARGUMENT,
                       "--device \"%s\" is unknown%s%s%s; use one of %s, and --rates to change its rates",
                       str_show(name).text, nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                       nearest ? "\"?" : "", list);
}

ott_status machine_open(const char *name, device *cpu, machine *out) {
    for (int i = 0; i < ROWS; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *out = (machine){.name = rows[i].name, .rate = rows[i].rate};
        snprintf(out->about, sizeof out->about, "%s", rows[i].about);
        lay_out_as_gpu(out, rows[i].gpu, cpu);
        return OTT_OK;
    }
    return fail_machine_name(name);
}

void machine_allow_unordered(machine *m) {
    m->rate.attention_backward *= UNORDERED;
}

bool machine_has_fp8(const machine *m) {
    return m->rate.peak[WORK_FP8] > 0;
}

/* ---- rates given by the user ---- */

typedef struct rate_key {
    const char *name;
    size_t offset;
    double unit, least, most; /* limits / unit; they keep bytes within 64 bits and times finite */
} rate_key;

static const rate_key keys[] = {
#define KEY(name, field, unit, least, most)                                                                  \
    { name, offsetof(machine_rates, field), unit, least, most }
#define TFLOPS(name, field) KEY(name, field, 1e12, 1e-6, 1e9)
#define GBS(name, field)    KEY(name, field, 1e9, 1e-6, 1e9)
    KEY("gib", gib, 1, 1e-3, 1e6),
    TFLOPS("fp32_tflops", gemm[WORK_FP32]),
    TFLOPS("bf16_tflops", gemm[WORK_BF16]),
    TFLOPS("fp8_tflops", gemm[WORK_FP8]),
    TFLOPS("attention_tflops", attention_forward),
    TFLOPS("attention_backward_tflops", attention_backward),
    TFLOPS("flash_attention_tflops", flash_attention),
    TFLOPS("own_attention_tflops", own_attention),
    TFLOPS("grouped_tflops", grouped),
    GBS("memory_gbs", bandwidth),
    GBS("host_gbs", bus),
    GBS("link_gbs", link),
    GBS("network_gbs", network),
    KEY("node", node, 1, 1, 1e6),
    KEY("latency_us", latency, 1e-6, 1e-6, 1e9),
    KEY("launch_us", launch, 1e-6, 1e-6, 1e9),
#undef GBS
#undef TFLOPS
#undef KEY
};
enum { KEYS = sizeof keys / sizeof *keys, SHOWN = 60 /* characters of a word in a message */ };

static ott_status set_rate(machine *m, const char *word, size_t length) {
    char list[256] = "";
    for (int i = 0; i < KEYS; i++) {
        size_t name = strlen(keys[i].name), used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", keys[i].name);
        if (strncmp(word, keys[i].name, name) != 0 || word[name] != '=') continue;
        char *end;
        double value = strtod(word + name + 1, &end);
        if (end != word + length || !(value >= keys[i].least && value <= keys[i].most))
            return status_fail(OTT_ERR_ARGUMENT, "--rates: \"%.*s\": give a number from %.7g to %.7g",
                               (int)(length < SHOWN ? length : SHOWN), word, keys[i].least, keys[i].most);
        *(double *)((char *)&m->rate + keys[i].offset) = value * keys[i].unit;
        return OTT_OK;
    }
    return status_fail(OTT_ERR_ARGUMENT, "--rates: \"%.*s\" is not KEY=NUMBER; the keys are %s",
                       (int)(length < SHOWN ? length : SHOWN), word, list);
}

ott_status machine_set_rates(machine *m, const char *text) {
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        TRY(set_rate(m, at, length));
        if (!at[length]) break;
        at += length + 1;
    }
    memset(m->seconds, 0, sizeof m->seconds); /* given rates override measurements */
    return OTT_OK;
}

enum {
    TILE = 128,      /* rows and columns of the output tile that a core computes */
    TILE_START = 256 /* overhead of a tile, in elements of the contraction */
};

static double tiles(int64_t length) {
    return ceil((double)length / TILE);
}

/* Cores compute tiles in waves. An incomplete last wave takes as long as a full one. */
static double product_seconds(const machine *m, const work *w) {
    const machine_rates *r = &m->rate;
    double rate = r->gemm[w->format] > 0 ? r->gemm[w->format] : r->gemm[WORK_BF16], flops = w->flops;
    if (r->cores > 0) {
        double waves = ceil(tiles(w->m) * tiles(w->n) / r->cores);
        flops = waves * r->cores * 2.0 * TILE * TILE * (double)(w->k + TILE_START);
    }
    double second = r->adds_row_pass ? w->row_sums / r->bandwidth : 0;
    return fmax(flops / rate, w->bytes / r->bandwidth) + second;
}

/* FLOP/s of an operation other than a GEMM. */
static double work_rate(const machine_rates *r, const work *w) {
    bool grouped = w->op == OP_INDEX_grouped_gemm || w->op == OP_INDEX_grouped_gemm_weight;
    if (grouped && r->issue > 0 && w->format == WORK_FP32) return GROUPED_EXACT * r->issue;
    if (grouped) return r->grouped > 0 ? r->grouped : r->gemm[w->format];
    if (w->attention == ATTENTION_EXACT && r->own_attention > 0) return r->own_attention;
    bool is_backward = w->op == OP_INDEX_attention_backward;
    bool unsupported = w->attention == ATTENTION_CAPPED ||
                       (w->attention == ATTENTION_PACKED && is_backward && !r->orders_packed);
    if (unsupported && r->flash_attention > 0) return r->flash_attention;
    return is_backward ? r->attention_backward : r->attention_forward;
}

double machine_seconds(const machine *m, const work *w) {
    const machine_rates *r = &m->rate;
    double measured = m->seconds[w->op][w->format];
    if (measured > 0) return measured * work_units(w) + r->launch;
    if (w->op == OP_INDEX_gemm) return product_seconds(m, w) + r->launch;
    double near = (w->bytes - w->from_host - w->to_host) / r->bandwidth, far = fmax(w->from_host, w->to_host);
    if (r->issue > 0) near += fmax(0, w->instructions / r->issue - w->updated / r->bandwidth);
    return fmax(fmax(w->flops / work_rate(r, w), near), far > 0 ? far / r->bus : 0) + r->launch;
}

/* ---- collectives ---- */

machine_group machine_group_along(const mesh *m, mesh_dimension d) {
    machine_group g = {.ranks = m->size[d], .stride = 1};
    for (int inner = d + 1; inner < MESH_DIMENSIONS; inner++) g.stride *= m->size[inner];
    return g;
}

/* Devices of the group in one node. */
static double node_members(const machine *m, machine_group g) {
    return fmin((double)g.ranks, fmax(1, floor(m->rate.node / (double)g.stride)));
}

static double node_count(const machine *m, machine_group g) {
    return ceil((double)g.ranks / node_members(m, g));
}

double machine_ring_seconds(const machine *m, machine_group g, double bytes) {
    const machine_rates *r = &m->rate;
    if (g.ranks <= 1) return 0;
    return bytes / (node_count(m, g) > 1 ? fmin(r->link, r->network * node_members(m, g)) : r->link);
}

/* A hop within a node takes about a quarter of a hop between nodes. */
double machine_ring_delay(const machine *m, machine_group g) {
    return m->rate.latency * ((node_count(m, g) - 1) + (node_members(m, g) - 1) / 4);
}

double machine_tree_delay(const machine *m, machine_group g) {
    double up = ceil(log2(node_count(m, g))) + (node_members(m, g) - 1) / 4;
    return fmin(2 * m->rate.latency * up, machine_ring_delay(m, g));
}

double machine_exchange_seconds(const machine *m, machine_group g, double bytes) {
    const machine_rates *r = &m->rate;
    double others = (double)g.ranks - 1, near = node_members(m, g) - 1;
    if (g.ranks <= 1) return 0;
    return fmax(bytes * near / others / r->link, bytes * (1 - near / others) / r->network) + r->latency;
}

double machine_send_seconds(const machine *m, machine_group g, double bytes) {
    const machine_rates *r = &m->rate;
    return bytes / (node_members(m, g) > 1 ? r->link : r->network) + r->latency;
}
