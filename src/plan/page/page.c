/* plan/page/page: writes the text page. */
#include "plan/page/page.h"
#include "backend/backend.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void write_plan_head(const planner *p, str *out) {
    const model_options *o = &p->shape;
    const estimate *e = &p->estimate;
    char count[32], share[32];
    str_printf(out, "Plan for %lld x %s (%s), %s\n\n", (long long)e->ranks, p->machine.name, p->machine.about,
               p->names[0]);
    str_printf(out,
               "Model: %s, %s parameters, dim %lld, %lld layers, %lld heads, %lld key heads, ffn %lld, "
               "vocabulary %lld%s\n",
               o->family->name, str_commas(e->rank.parameters, count), (long long)o->dim,
               (long long)o->layers, (long long)o->heads, (long long)o->kv_heads, (long long)o->hidden,
               (long long)o->vocab, o->tied ? ", tied head" : "");
    char shown[128];
    mesh_describe(&p->mesh, shown);
    if (e->ranks > 1) str_printf(out, "Mesh: %s\n", shown);
    if (e->rank.on_rank < e->rank.parameters)
        str_printf(out, "On a rank: %s of the parameters\n", str_commas(e->rank.on_rank, share));
    if (p->mesh.size[MESH_PP] > 1)
        str_printf(out, "Times are of stage %lld, the slowest; memory is of stage %lld, which needs most\n",
                   (long long)e->slowest, (long long)e->fullest);
    str_printf(out,
               "Step: %lld x %lld tokens per micro-batch, %lld micro-batch%s, %s tokens on all ranks\n\n",
               (long long)p->cfg->train.batch_size, (long long)p->cfg->train.seq_len,
               (long long)e->micro_batches, e->micro_batches == 1 ? "" : "es", str_commas(e->tokens, count));
}

#define MIB 1048576.0

static void write_kinds(const int64_t by_kind[MEM_KIND_COUNT], str *out) {
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        if (by_kind[kind] >= (int64_t)MIB / 20)
            str_printf(out, "  %-38s %12.1f\n", mem_kind_name((mem_kind)kind), (double)by_kind[kind] / MIB);
}

static void write_memory(const planner *p, str *out) {
    const memory_need *n = &p->estimate.need;
    device_memory memory;
    char left[LIMIT_TEXT];
    device_read_memory(p->machine.like, &memory);
    str_append(out, "Peak memory of a rank, by the dry run              MiB\n");
    write_kinds(n->by_kind, out);
    str_printf(out, "  %-38s %12.1f  %s: %s\n", "all", (double)n->total / MIB,
               p->estimate.shortfall <= 0 ? "fits" : "does not fit", limit_text(&memory.limit, left));
    if (n->host >= (int64_t)MIB / 20) { /* of a run on a GPU; the machine's host memory is unknown */
        str_append(out, "Host memory of a rank\n");
        write_kinds(n->host_by_kind, out);
    }
    if (p->largest_batch > 0)
        str_printf(out, "Largest micro-batch that fits: train.batch_size = %lld\n",
                   (long long)p->largest_batch);
    else
        str_append(out, "Not even train.batch_size = 1 fits\n");
    const advice *a = &p->advice;
    char text[MEMORY_CHECK_FP8_TEXT];
    if (a->fp8.excess > 0) {
        memory_check_show_fp8(&a->fp8, p->estimate.need.total, text);
        str_printf(out, "%s\n", text);
    }
    if (a->suggestions.length > 0)
        str_printf(out, "%c%s\n", toupper((unsigned char)a->suggestions.text[0]), a->suggestions.text + 1);
    str_append(out, "\n");
}

static void write_work(const planner *p, str *out) {
    const estimate *e = &p->estimate;
    str_append(out, "Work of a rank in a step                  ms   share      TFLOP        GB\n");
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const count_part *k = &e->rank.kinds[kind];
        if (k->calls == 0) continue;
        str_printf(out, "  %-32s %9.2f  %5.1f%%  %9.3f %9.2f\n", op_kind_text((op_kind)kind),
                   1e3 * k->seconds, 100 * k->seconds / e->step_seconds, k->flops / 1e12, k->bytes / 1e9);
    }
    if (e->ranks > 1)
        str_printf(out, "  %-32s %9.2f  %5.1f%%\n", "waiting for other ranks", 1e3 * e->waiting_seconds,
                   100 * e->waiting_seconds / e->step_seconds);
    if (p->mesh.size[MESH_PP] > 1)
        str_printf(out, "  %-32s %9.2f  %5.1f%%\n", "waiting for other stages", 1e3 * e->bubble_seconds,
                   100 * e->bubble_seconds / e->step_seconds);
    str_printf(out, "  %-32s %9.2f\n\n", "step", 1e3 * e->step_seconds);
}

static void write_speed(const planner *p, str *out) {
    const estimate *e = &p->estimate;
    char rate[32];
    bool is_fp32 = p->cfg->train.mixed_precision == PRECISION_FP32;
    const char *unit =
        p->machine.is_local ? backend_peak_unit(p->machine.like, is_fp32 ? OTT_F32 : OTT_BF16) : NULL;
    str_printf(out, "Expected: %s tokens/s", str_commas((int64_t)(e->tokens_per_second + 0.5), rate));
    if (e->ranks > 1)
        str_printf(out, ", %s per device",
                   str_commas((int64_t)(e->tokens_per_second / (double)e->ranks + 0.5), rate));
    str_printf(out, ", MFU %.1f%% of %.4g TFLOP/s (%s%s)\n", 100 * e->mfu,
               estimate_peak(&p->machine, p->cfg) / 1e12, unit ? unit : "dense bf16",
               unit ? "s, measured" : "");
    if (p->has_other)
        str_printf(out, "In %s: %s tokens/s, so %s is %.2f times as fast; memory %+.1f MiB\n", p->names[1],
                   str_commas((int64_t)(p->other.tokens_per_second + 0.5), rate), p->names[0],
                   e->tokens_per_second / p->other.tokens_per_second,
                   (double)(e->need.total - p->other.need.total) / MIB);
    str_append(out, "\n");
}

/* ---- FP8 by layer, and other settings ---- */

static const char *verdict(const layer_row *r) {
    bool pays = layers_speedup(r) >= LAYERS_PAYS;
    if (r->converted) return pays ? "in FP8" : "in FP8, not faster";
    return pays ? "not in FP8, would be faster" : "not in FP8";
}

static void write_layers(const planner *p, str *out) {
    bool any = false;
    char title[64];
    snprintf(title, sizeof title, "Is FP8 faster (%s)?", p->layers.recipe->name);
    str_printf(out, "%-40s layers      M       N       K  high ms   FP8 ms  casts  times\n", title);
    for (int i = 0; i < p->layers.count; i++) {
        const layer_row *r = &p->layers.rows[i];
        str_printf(out, "  %-38s %6d %6lld %7lld %7lld %8.3f %8.3f %5.0f%%  %5.2f  %s%s%s\n", r->name,
                   r->count, (long long)r->m, (long long)r->n, (long long)r->k, 1e3 * r->high, 1e3 * r->fp8,
                   100 * r->casts / r->fp8, layers_speedup(r), verdict(r), *r->kept ? ": " : "", r->kept);
    }
    const char *before = "  to exclude layers where FP8 is not faster: --float8.filter_fqns=";
    for (int i = 0; i < p->layers.count; i++) {
        const layer_row *r = &p->layers.rows[i];
        const char *dot = strrchr(r->name, '.');
        if (!r->converted || layers_speedup(r) >= LAYERS_PAYS) continue;
        str_printf(out, "%s%s", any ? "," : before, dot ? dot + 1 : r->name);
        any = true;
    }
    str_append(out, any ? "\n\n" : "\n");
}

static void write_sweep(const planner *p, str *out) {
    const sweep *s = &p->sweep;
    char text[SWEEP_TEXT];
    if (!p->options->sweep) return;
    str_printf(out, "Other settings for the same training: %d tried, %d fit; the fastest:\n", s->tried,
               s->fitting);
    str_append(out, "    tokens/s    MFU   step ms       MiB\n");
    for (int i = 0; i < s->count; i++) {
        const sweep_row *r = &s->best[i];
        sweep_show(r, text);
        str_printf(out, "  %10.0f %5.1f%% %9.1f %9.1f  %s\n", r->tokens_per_second, 100 * r->mfu,
                   1e3 * r->step_seconds, (double)r->bytes / MIB, text);
    }
    if (s->count == 0) str_append(out, "  none: use more ranks, shorter sequences or a smaller model\n");
    str_append(out, "\n");
}

/* ---- assumptions ---- */

static void write_assumed_rates(const planner *p, str *out) {
    const machine_rates *r = &p->machine.rate;
    str_printf(out,
               "- Rates of %s: %.1f GiB; TFLOP/s of large products fp32 %.4g, bf16 %.4g, FP8 %.4g; attention "
               "forward %.4g, backward %.4g; memory %.4g GB/s.\n",
               p->machine.is_local ? "this machine, measured with a small model" : p->machine.about, r->gib,
               r->gemm[WORK_FP32] / 1e12, r->gemm[WORK_BF16] / 1e12, r->gemm[WORK_FP8] / 1e12,
               r->attention_forward / 1e12, r->attention_backward / 1e12, r->bandwidth / 1e9);
    if (!p->machine.is_local)
        str_printf(
            out,
            "- These rates are published or estimated. No GPU has measured them with Ottava.\n"
            "- cuDNN 9.25 or later computes attention%s. Ottava's own kernels compute\n  other attention "
            "at %.3g TFLOP/s (fp32: %.3g), and the grouped products of experts at %.3g TFLOP/s.\n",
            r->orders_packed ? "" : ", its backward only for sequences of equal length",
            r->flash_attention / 1e12, r->own_attention / 1e12, r->grouped / 1e12);
    if (p->cfg->train.offload != OFFLOAD_NONE && !p->machine.is_local)
        str_printf(out, "- Host memory, as kernels access it: %.4g GB/s each way.\n", r->bus / 1e9);
    if (p->estimate.ranks > 1)
        str_printf(
            out,
            "- Links one way: %.4g GB/s in a node of %.0f devices, %.4g GB/s per device to other nodes; "
            "collectives use rings, and trees for small all-reduces. These rates are not measured.\n",
            r->link / 1e9, r->node, r->network / 1e9);
}

static void write_assumptions(const planner *p, str *out) {
    str_append(out, "Assumed\n");
    write_assumed_rates(p, out);
    str_append(out, "- Memory is from the same dry run that `ottava train` makes before it starts, without "
                    "the data set.\n");
    if (!p->machine.is_local)
        str_append(out, "- 2 GiB of a device are reserved for its driver and libraries. The host queues "
                        "kernels before the device needs them.\n");
    str_append(out, "- Every sequence is one document as long as train.seq_len; evaluation and checkpoints "
                    "take no time.\n");
    if (p->estimate.ranks > 1)
        str_append(
            out, "- A block's parameters are gathered while the block before is computed. Its gradients are "
                 "reduced while the next block\n"
                 "  is computed. Neither slows the computation. Communication inside of layers (tp, cp) is "
                 "not overlapped.\n"
                 "- One kernel unpacks the parameters that were gathered for a block.\n");
}

ott_status page_write(const planner *p, str *out) {
    write_plan_head(p, out);
    write_memory(p, out);
    write_work(p, out);
    const estimate *e = &p->estimate;
    if (e->ranks > 1) {
        str_append(out, "Communication of a rank in a step         ms         MB     calls\n");
        for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
            const count_traffic *t = &e->rank.traffic[kind];
            if (t->calls > 0)
                str_printf(out, "  %-34s %7.2f  %9.2f  %8lld\n", count_traffic_text((traffic_kind)kind),
                           1e3 * t->seconds, t->bytes / 1e6, (long long)t->calls);
        }
        str_append(out, "\n");
    }
    write_speed(p, out);
    write_layers(p, out);
    write_sweep(p, out);
    write_assumptions(p, out);
    return str_finish(out);
}
