/* plan/layers: times the GEMMs of linear layers. */
#include "plan/layers.h"
#include <stdio.h>
#include <string.h>

/* The products of one kind of layer. */
typedef struct layer_products {
    const machine *on;
    bool grouped; /* products of experts */
    work_format high;
} layer_products;

static double layer_product_seconds(const layer_products *p, bool fp8, int64_t rows, int64_t columns,
                                    int64_t depth, int c_bytes) {
    work w = work_of_product(fp8 ? WORK_FP8 : p->high, rows, columns, depth, c_bytes);
    if (p->grouped) w.op = OP_INDEX_grouped_gemm;
    return machine_seconds(p->on, &w);
}

static bool both_fp8(const cast_spec *a, const cast_spec *b) {
    return cast_spec_is_fp8(a) && cast_spec_is_fp8(b);
}

/* Seconds of a layer's forward, dgrad and wgrad GEMMs for m tokens. s NULL: all in high precision. */
static double products_seconds(const layer_products *p, const linear *l, int64_t m, const linear_spec *s) {
    int bytes = p->high == WORK_FP32 ? 4 : 2;
    bool output = s && both_fp8(&s->input.rowwise, &s->weight.rowwise);
    bool input = s && both_fp8(&s->grad_output.rowwise, &s->weight.columnwise);
    bool weight = s && both_fp8(&s->grad_output.columnwise, &s->input.columnwise);
    return layer_product_seconds(p, output, m, l->out, l->in, bytes) +
           layer_product_seconds(p, input, m, l->in, l->out, bytes) +
           (l->weight->frozen ? 0 : layer_product_seconds(p, weight, l->out, l->in, m, 4));
}

static double moving_seconds(const machine *m, enum op_index op, double bytes) {
    work w = {.op = op, .format = WORK_BF16, .bytes = bytes};
    return bytes > 0 ? machine_seconds(m, &w) : 0;
}

/* Number of layers that share the quantized copy of their common input. */
static int layers_sharing_input(module_role role) {
    switch (role) {
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V: return 3;
    case ROLE_Q_A:
    case ROLE_KV_A:
    case ROLE_GATE:
    case ROLE_UP: return 2;
    default: return 1;
    }
}

static int64_t master_bytes(const linear *l) {
    return dtype_bytes(l->weight->shard.value.dtype);
}

static double casts_seconds(const machine *on, const model_module *e, int64_t m, int source,
                            double micro_batches, const linear_spec *s) {
    const linear *l = e->linear;
    const backend_capabilities *can = on->like->can;
    /* Norms, SwiGLU and the loss quantize the tensors that they write; attention does not. */
    bool q_or_k_or_v = e->role == ROLE_QKV || e->role == ROLE_Q || e->role == ROLE_K || e->role == ROLE_V;
    double input = work_cast_bytes(can, &s->input, m, l->in, source, e->role == ROLE_O);
    double grad = work_cast_bytes(can, &s->grad_output, m, l->out, source, q_or_k_or_v);
    bool by_optimizer = qtensor_has_codes(&l->weight->shard.quantized);
    double weight = work_cast_bytes(can, &s->weight, l->out, l->in, (int)master_bytes(l), !by_optimizer);
    return moving_seconds(on, OP_INDEX_quantize, input) / layers_sharing_input(e->role) +
           moving_seconds(on, OP_INDEX_quantize, grad) +
           moving_seconds(on, OP_INDEX_quantize, weight) / micro_batches;
}

/* Seconds of converting the master weight to bf16, once per step, if the master is wider. */
static double copy_seconds(const machine *on, const linear *l, work_format high, double micro_batches) {
    const int64_t narrow = 2, master = master_bytes(l);
    if (high == WORK_FP32 || master == narrow) return 0;
    double elements = (double)l->in * (double)l->out;
    return moving_seconds(on, OP_INDEX_convert, (double)(master + narrow) * elements) / micro_batches;
}

static void name_row(const model_module *e, layer_row *row) {
    char number[32], *at;
    snprintf(row->name, sizeof row->name, "%s", e->name);
    if (e->layer == MODULES_OUTSIDE) return;
    int length = snprintf(number, sizeof number, ".%d.", e->layer);
    if (!(at = strstr(row->name, number))) return;
    memcpy(at + 1, "*", 1);
    memmove(at + 2, at + length - 1, strlen(at + length - 1) + 1);
}

/* Rows of a GEMM. For expert weights: rows of one expert, if tokens are distributed evenly. */
static int64_t gemm_rows(const trainer *t, const model_module *e) {
    const moe_options *o = &t->m->options.moe;
    const group *context = t->m->options.context_ranks;
    int64_t tokens = t->options.batch_size * t->options.seq_len;
    if (context) tokens /= context->size;
    return e->of_experts ? (tokens * o->choices + o->experts - 1) / o->experts : tokens;
}

static ott_status add_layer_row(layer_rows *rows, const trainer *t, const model_module *e) {
    const linear *l = e->linear;
    layer_row row = {.count = 1, .m = gemm_rows(t, e), .n = l->out, .k = l->in, .converted = l->spec.fp8};
    snprintf(row.kept, sizeof row.kept, "%s", l->skip_reason ? l->skip_reason : "");
    name_row(e, &row);
    for (int i = 0; i < rows->count; i++) {
        layer_row *r = &rows->rows[i];
        if (strcmp(r->name, row.name) != 0 || r->converted != row.converted) continue;
        r->count++;
        return OTT_OK;
    }
    STATUS_REQUIRE(rows->count < LAYER_ROWS_MOST);
    linear_spec s = e->linear->spec;
    if (!s.fp8) recipe_compile(rows->recipe, t->m->activation, &s);
    work_format high = t->m->activation == OTT_F32 ? WORK_FP32 : WORK_BF16;
    double micro_batches = (double)t->options.grad_accum;
    const layer_products products = {rows->machine, e->of_experts, high};
    row.high = products_seconds(&products, e->linear, row.m, NULL) +
               copy_seconds(rows->machine, e->linear, high, micro_batches);
    row.casts = casts_seconds(rows->machine, e, row.m, high == WORK_FP32 ? 4 : 2, micro_batches, &s);
    row.fp8 = products_seconds(&products, e->linear, row.m, &s) + row.casts;
    rows->rows[rows->count++] = row;
    return OTT_OK;
}

ott_status layers_estimate(void *user, trainer *t) {
    layer_rows *rows = user;
    rows->count = 0;
    for (int i = 0; i < t->m->modules.count; i++)
        if (t->m->modules.items[i].kind == MODULE_LINEAR)
            TRY(add_layer_row(rows, t, &t->m->modules.items[i]));
    return OTT_OK;
}
