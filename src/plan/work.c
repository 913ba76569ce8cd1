/* plan/work: counting what an operation does. */
#include "plan/work.h"

/* ---- casts ---- */

/* Does a scale of this use follow from numbers of the whole tensor, all of which come first? */
static bool needs_all(const cast_spec *s) {
    scale_block block = granularity_block(s->grain);
    bool wide = block.mn == INT64_MAX || block.k == INT64_MAX;
    return cast_spec_is_fp8(s) && s->policy == AMAX_CURRENT && wide;
}

double work_cast_bytes(const backend_capabilities *can, const quant_spec *spec, int64_t rows, int64_t columns,
                       int source, bool alone) {
    bool rowwise = cast_spec_is_fp8(&spec->rowwise), columnwise = cast_spec_is_fp8(&spec->columnwise);
    bool one = rowwise && columnwise && quant_spec_shares_scales(spec) && !can->contiguous_contraction;
    int codes = rowwise + columnwise - one;
    if (codes == 0) return 0;
    int passes = alone + (needs_all(&spec->rowwise) || needs_all(&spec->columnwise));
    return (double)rows * (double)columns * (codes + passes * source);
}

static double quantized_bytes(const exec *cx, const qtensor *q, int source, bool alone) {
    return work_cast_bytes(cx->device->can, &q->spec, q->rows, q->columns, source, alone);
}

/* ---- fields ---- */

static double tensor_traffic(const tensor *t) {
    return t ? (double)t->rows * (double)t->columns * dtype_bytes(t->dtype) : 0;
}

/* The first tensor among the arguments: what a form is made of, or has the same format as. */
static int source_bytes(const op_info *op, const void *args) {
    for (int i = 0; i < op->field_count; i++) {
        op_field_kind kind = op->fields[i].kind;
        const tensor *t = *(const tensor *const *)((const char *)args + op->fields[i].offset);
        if ((kind == OP_IN || kind == OP_OUT || kind == OP_INOUT) && t && dtype_is_high_precision(t->dtype))
            return dtype_bytes(t->dtype);
    }
    return 4;
}

static double field_bytes(const exec *cx, const op_field *f, const void *args, int source) {
    if (f->kind == OP_SCALAR) return 0;
    const void *value = *(const void *const *)((const char *)args + f->offset);
    double sum = 0;
    if (!value) return 0;
    switch (f->kind) {
    case OP_INOUT: return 2 * tensor_traffic(value);
    case OP_QTENSOR: return quantized_bytes(cx, value, source, false); /* the source is an IN of its own */
    case OP_OPERAND: return tensor_traffic(&((const operand *)value)->t);
    case OP_QOUT: {
        const qlist *list = value;
        for (int i = 0; i < list->count; i++) sum += quantized_bytes(cx, &list->item[i], source, false);
        return sum;
    }
    default: return tensor_traffic(value);
    }
}

static double all_bytes(const exec *cx, const op_info *op, const void *args) {
    int source = source_bytes(op, args);
    double sum = 0;
    for (int i = 0; i < op->field_count; i++) sum += field_bytes(cx, &op->fields[i], args, source);
    return sum;
}

/* ---- products ---- */

static work_format format_of(ott_dtype a, ott_dtype b) {
    if (dtype_is_fp8(a) && dtype_is_fp8(b)) return WORK_FP8;
    return a == OTT_F32 || b == OTT_F32 ? WORK_FP32 : WORK_BF16;
}

work work_of_product(work_format format, int64_t m, int64_t n, int64_t k, int c_bytes) {
    static const double bytes[WORK_FORMATS] = {4, 2, 1};
    return (work){.op = OP_INDEX_gemm,
                  .format = format,
                  .flops = 2.0 * (double)m * (double)n * (double)k,
                  .bytes =
                      bytes[format] * ((double)m + (double)n) * (double)k + c_bytes * (double)m * (double)n,
                  .m = m,
                  .n = n,
                  .k = k};
}

static void count_product(const gemm_args *a, work *w) {
    w->format = format_of(a->a->t.dtype, a->b->t.dtype);
    w->m = operand_mn(a->a);
    w->n = operand_mn(a->b);
    w->k = operand_k(a->a);
    w->flops = 2.0 * (double)w->m * (double)w->n * (double)w->k;
}

/* ---- attention ---- */

/* Pairs of a query and a key it sees, in documents of one length. */
static double seen_pairs(int64_t tokens, int64_t documents, int64_t window) {
    double length = (double)tokens / (double)(documents > 0 ? documents : 1), w = (double)window;
    if (window <= 0 || w >= length) return (double)tokens * (length + 1) / 2;
    return (double)tokens * w - (double)(documents > 0 ? documents : 1) * w * (w - 1) / 2;
}

/* Two products forward, five backward, of head_dim multiply-adds a pair. */
static void count_attention(const tensor *q, const tensor *cu_seqlens, int64_t window, int products,
                            work *w) {
    w->flops = 2.0 * products * (double)q->columns * seen_pairs(q->rows, cu_seqlens->columns - 1, window);
    w->format = q->dtype == OTT_F32 ? WORK_FP32 : WORK_BF16;
}

/* ---- an operation ---- */

/* Of a table only the rows that tokens name. */
static double embedding_bytes(const tensor *token, const tensor *rows, const tensor *table,
                              double table_passes) {
    double elements = (double)rows->rows * (double)rows->columns;
    return tensor_traffic(token) + tensor_traffic(rows) +
           (double)dtype_bytes(table->dtype) * table_passes * elements;
}

work work_of(const exec *cx, enum op_index op, const void *args) {
    work w = {.op = op, .format = WORK_BF16};
    w.bytes = all_bytes(cx, op_at((int)op), args);
    if (op == OP_INDEX_amax)
        w.bytes = tensor_traffic(((const amax_args *)args)->x); /* no codes are written */
    if (op == OP_INDEX_scale || op == OP_INDEX_amax_record) w.bytes = sizeof(float); /* only scales */
    if (op == OP_INDEX_gemm) count_product(args, &w);
    if (op == OP_INDEX_attention_forward) {
        const attention_forward_args *a = args;
        count_attention(a->q, a->cu_seqlens, a->window, 2, &w);
    }
    if (op == OP_INDEX_attention_backward) {
        const attention_backward_args *a = args;
        count_attention(a->q, a->cu_seqlens, a->window, 5, &w);
    }
    if (op == OP_INDEX_embedding_forward) {
        const embedding_forward_args *a = args;
        w.bytes = embedding_bytes(a->token, a->y, a->table, 1);
    }
    if (op == OP_INDEX_embedding_backward) {
        const embedding_backward_args *a = args;
        w.bytes = embedding_bytes(a->token, a->dy, a->dtable, 2);
    }
    return w;
}
