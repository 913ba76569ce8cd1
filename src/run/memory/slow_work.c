/* run/memory/slow_work: adds up FLOP at the device's peak, times the backend's estimate of its slowness. */
#include "run/memory/slow_work.h"

static double length_of(int64_t longest, int64_t rows) {
    return (double)(longest > 0 && longest < rows ? longest : rows);
}

/* FLOP of a call: products of matrices, and causal attention over full sequences. 0: another op. */
static double flops_of(enum op_index op, const void *args, ott_dtype *format, slow_kind *kind) {
    const gemm_args *g = args;
    const attention_forward_args *f = args;
    const attention_backward_args *b = args;
    *kind = op == OP_INDEX_gemm ? SLOW_PRODUCTS : SLOW_ATTENTION;
    switch (op) {
    case OP_INDEX_gemm:
        *format = g->a->t.dtype;
        return 2.0 * (double)g->c->rows * (double)g->c->columns * (double)operand_k(g->a);
    case OP_INDEX_attention_forward:
        *format = f->q->dtype;
        return 2.0 * (double)f->q->rows * length_of(f->longest, f->q->rows) * (double)f->q->columns;
    case OP_INDEX_attention_backward:
        *format = b->q->dtype;
        return 5.0 * (double)b->q->rows * length_of(b->longest, b->q->rows) * (double)b->q->columns;
    default: return 0;
    }
}

/* A GPU without FP8 units multiplies FP8 at the rate of bf16. If no peak is known, all formats have one. */
static double peak_of(device *d, ott_dtype format) {
    double peak = device_peak(d, format);
    if (peak == 0) peak = device_peak(d, OTT_BF16);
    return peak > 0 ? peak : 1;
}

static void count_op(void *user, const exec *cx, enum op_index op, const void *args) {
    slow_work *w = user;
    ott_dtype format;
    slow_kind kind;
    double flops = flops_of(op, args, &format, &kind);
    if (flops == 0 || cx->phase == PHASE_EVALUATE || !w->device->ops->slowness) return;
    op_slowness slow = w->device->ops->slowness(w->device, op, args);
    double seconds = flops / peak_of(w->device, format) * (slow.what ? slow.times : 1);
    w->all += seconds;
    if (!slow.what) return;
    w->seconds[kind] += seconds;
    w->what[kind] = slow.what;
}

dry_run_listener slow_work_listener(slow_work *w) {
    return (dry_run_listener){.op = count_op, .user = w};
}

ott_status slow_work_check(const slow_work *w, const config *cfg, const logger *log) {
    static const struct {
        const char *name, *remedy;
        double most; /* share of a step */
    } kinds[SLOW_KINDS] = {
        {"products", "float8.allow_slow_products = true trains all the same; so does another recipe, faster",
         0.1},
        {"attention", "OTTAVA_CUDA_ATTENTION=own trains all the same", 0.5}};
    for (int k = 0; k < SLOW_KINDS; k++) {
        double share = w->all > 0 ? w->seconds[k] / w->all : 0;
        if (!w->what[k]) continue;
        bool allowed = share <= kinds[k].most || (k == SLOW_PRODUCTS && cfg->float8.allow_slow_products);
        if (!allowed)
            return status_fail(
                OTT_ERR_UNSUPPORTED,
                "on %s, %s would take %.0f%% of a step: %s; `ottava doctor` shows the libraries; %s",
                w->device->name, kinds[k].name, 100 * share, w->what[k], kinds[k].remedy);
        log_warning(log, "%s: %s; about %.0f%% of a step", kinds[k].name, w->what[k], 100 * share);
    }
    return OTT_OK;
}
