/* plan/work: counts the work of an operation. */
#include "plan/work.h"

/* ---- casts ---- */

/* True if a scale depends on a full row, column or tensor, so that all elements are read before the cast. */
static bool needs_all(const cast_spec *s) {
    scale_block block = granularity_block(s->grain);
    bool wide = block.mn == INT64_MAX || block.k == INT64_MAX;
    return cast_spec_is_fp8(s) && s->policy == AMAX_CURRENT && wide;
}

static bool shares_codes(const quant_spec *s) {
    return cast_spec_is_fp8(&s->rowwise) && cast_spec_is_fp8(&s->columnwise) && quant_spec_shares_scales(s);
}

/* Number of FP8 codes that are written per element: rowwise and columnwise, unless both uses share one. */
static int code_copies(const backend_capabilities *can, const quant_spec *s) {
    bool one = shares_codes(s) && !can->contiguous_contraction;
    return cast_spec_is_fp8(&s->rowwise) + cast_spec_is_fp8(&s->columnwise) - one;
}

double work_cast_bytes(const backend_capabilities *can, const quant_spec *spec, int64_t rows, int64_t columns,
                       int source, bool is_separate) {
    int codes = code_copies(can, spec);
    if (codes == 0) return 0;
    int passes = is_separate + (needs_all(&spec->rowwise) || needs_all(&spec->columnwise));
    return (double)rows * (double)columns * (codes + passes * source);
}

/* ---- casts fused into the op that writes the tensor ---- */

/* How an op writes an output that it also quantizes. BY_TILES: a scale of a full row, column or tensor needs
   another pass. BY_ROWS: the op knows the amax of each row and, at its end, of the tensor. BY_ROWS_AND_CASTS
   (norms): as BY_ROWS, and the op also writes rowwise codes with a scale per row. */
typedef enum producer { BY_TILES, BY_ROWS, BY_ROWS_AND_CASTS } producer;

static producer producer_of(enum op_index op) {
    if (op == OP_INDEX_rmsnorm_forward || op == OP_INDEX_rmsnorm_backward) return BY_ROWS_AND_CASTS;
    return op == OP_INDEX_cross_entropy || op == OP_INDEX_cross_entropy_finish ? BY_ROWS : BY_TILES;
}

/* Number of extra passes after an op that writes by rows. One pass computes the amaxes that the op does not
   know, and casts with those of small blocks. Another casts with amaxes of full rows, columns or tensors. */
static int passes_after_rows(const quant_spec *s, bool casts) {
    bool first = false, second = false;
    for (int columnwise = 0; columnwise < 2; columnwise++) {
        const cast_spec *use = columnwise ? &s->columnwise : &s->rowwise;
        if (!cast_spec_is_fp8(use) || (columnwise && shares_codes(s))) continue;
        scale_block block = granularity_block(use->grain);
        int64_t rows = columnwise ? block.k : block.mn, columns = columnwise ? block.mn : block.k;
        bool waits = use->policy != AMAX_DELAYED && (rows == INT64_MAX || columns == INT64_MAX);
        bool knows = use->policy == AMAX_CURRENT && columns == INT64_MAX && (rows == INT64_MAX || rows == 1);
        bool is_cast = casts && knows && rows == 1 && !columnwise && !shares_codes(s);
        first = first || !knows;
        second = second || (waits && !is_cast);
    }
    return first + second;
}

static double quantized_bytes(const exec *cx, const qtensor *q, int source, producer by) {
    const backend_capabilities *can = cx->device->can;
    if (by == BY_TILES) return work_cast_bytes(can, &q->spec, q->rows, q->columns, source, false);
    int passes = passes_after_rows(&q->spec, by == BY_ROWS_AND_CASTS);
    return (double)q->rows * (double)q->columns * (code_copies(can, &q->spec) + passes * source);
}

/* ---- fields ---- */

static double tensor_traffic(const tensor *t) {
    return t ? (double)t->rows * (double)t->columns * dtype_bytes(t->dtype) : 0;
}

/* Bytes per element of the op's first high-precision tensor. The tensor to quantize has the same format. */
static int source_bytes(const op_info *op, const void *args) {
    for (int i = 0; i < op->field_count; i++) {
        op_field_kind kind = op->fields[i].kind;
        const tensor *t = *(const tensor *const *)((const char *)args + op->fields[i].offset);
        if ((kind == OP_IN || kind == OP_OUT || kind == OP_INOUT) && t && dtype_is_high_precision(t->dtype))
            return dtype_bytes(t->dtype);
    }
    return 4;
}

static double field_bytes(const exec *cx, const op_field *f, const void *args, int source, producer by) {
    if (f->kind == OP_SCALAR) return 0;
    const void *value = *(const void *const *)((const char *)args + f->offset);
    double sum = 0;
    if (!value) return 0;
    switch (f->kind) {
    case OP_INOUT: return 2 * tensor_traffic(value);
    case OP_QTENSOR: /* another argument is the source; without codes, q gets only amaxes: 0 bytes */
        return qtensor_has_codes(value) ? quantized_bytes(cx, value, source, BY_TILES) : 0;
    case OP_OPERAND: return tensor_traffic(&((const operand *)value)->t);
    case OP_QOUT: {
        const qlist *list = value;
        for (int i = 0; i < list->count; i++) sum += quantized_bytes(cx, &list->item[i], source, by);
        return sum;
    }
    default: return tensor_traffic(value);
    }
}

static double all_bytes(const exec *cx, enum op_index index, const void *args) {
    const op_info *op = op_at((int)index);
    int source = source_bytes(op, args);
    double sum = 0;
    for (int i = 0; i < op->field_count; i++)
        sum += field_bytes(cx, &op->fields[i], args, source, producer_of(index));
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

/* Counts a grouped GEMM: each row is multiplied by one expert's matrix. */
static void count_grouped(const operand *a, const operand *b, const tensor *c, work *w) {
    w->format = format_of(a->t.dtype, b->t.dtype);
    w->flops = 2.0 * (double)a->t.rows * (double)a->t.columns * (double)c->columns;
}

/* ---- attention ---- */

/* Number of query-key pairs under the causal mask and window, for documents of equal length. */
static double seen_pairs(int64_t tokens, int64_t documents, int64_t window) {
    double length = (double)tokens / (double)(documents > 0 ? documents : 1), w = (double)window;
    if (window <= 0 || w >= length) return (double)tokens * (length + 1) / 2;
    return (double)tokens * w - (double)(documents > 0 ? documents : 1) * w * (w - 1) / 2;
}

/* products: 2 GEMMs forward, 5 backward. Each has head_dim multiply-adds per query-key pair and head. */
static void count_attention(const tensor *q, const tensor *cu_seqlens, int64_t window, int products,
                            work *w) {
    w->flops = 2.0 * products * (double)q->columns * seen_pairs(q->rows, cu_seqlens->columns - 1, window);
    w->format = q->dtype == OTT_F32 ? WORK_FP32 : WORK_BF16;
}

/* ---- mapped host memory ---- */

static void count_field_on_bus(const op_field *f, const void *args, work *w) {
    if (f->kind != OP_IN && f->kind != OP_OUT && f->kind != OP_INOUT) return;
    const tensor *t = *(const tensor *const *)((const char *)args + f->offset);
    if (!t || !dry_run_is_mapped(t->data)) return;
    if (f->kind != OP_OUT) w->from_host += tensor_traffic(t);
    if (f->kind != OP_IN) w->to_host += tensor_traffic(t);
}

static void count_bus(const op_info *op, const void *args, work *w) {
    for (int i = 0; i < op->field_count; i++) count_field_on_bus(&op->fields[i], args, w);
}

/* ---- an operation ---- */

/* Bytes of an embedding op: only the tokens' rows of the table are read or written. */
static double embedding_bytes(const tensor *token, const tensor *rows, const tensor *table,
                              double table_passes) {
    double elements = (double)rows->rows * (double)rows->columns;
    return tensor_traffic(token) + tensor_traffic(rows) +
           (double)dtype_bytes(table->dtype) * table_passes * elements;
}

/* Bytes that a cast reads and writes. The scales are known already, so the source is read once. */
static double cast_bytes(const exec *cx, const cast_args *a) {
    return tensor_traffic(a->x) +
           (double)a->q->rows * (double)a->q->columns * code_copies(cx->device->can, &a->q->spec);
}

/* If a scale depends on a full row, column or tensor, the op reads its source twice: doubles from_host. */
static void count_second_read(const quantize_args *a, work *w) {
    if (needs_all(&a->q->spec.rowwise) || needs_all(&a->q->spec.columnwise)) w->from_host *= 2;
}

static void count_master_read(const adamw_args *a, work *w) {
    if (!a->q || !qtensor_has_codes(a->q) || !dry_run_is_mapped(a->param->data)) return;
    if (needs_all(&a->q->spec.rowwise) || needs_all(&a->q->spec.columnwise))
        w->from_host += tensor_traffic(a->param);
}

work work_of(const exec *cx, enum op_index op, const void *args) {
    work w = {.op = op, .format = WORK_BF16};
    w.bytes = all_bytes(cx, op, args);
    count_bus(op_at((int)op), args, &w);
    if (op == OP_INDEX_amax) w.bytes = tensor_traffic(((const amax_args *)args)->x); /* amax only reads x */
    if (op == OP_INDEX_cast) w.bytes = cast_bytes(cx, args);
    if (op == OP_INDEX_quantize) count_second_read(args, &w);
    if (op == OP_INDEX_adamw) count_master_read(args, &w);
    if (op == OP_INDEX_scale || op == OP_INDEX_amax_record) w.bytes = sizeof(float); /* one scale */
    if (op == OP_INDEX_gemm) count_product(args, &w);
    if (op == OP_INDEX_grouped_gemm) {
        const grouped_gemm_args *a = args;
        count_grouped(a->a, a->b, a->c, &w);
    }
    if (op == OP_INDEX_grouped_gemm_weight) {
        const grouped_gemm_weight_args *a = args;
        count_grouped(a->a, a->b, a->c, &w);
    }
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
        if (w.from_host > 0)
            w.from_host = tensor_traffic(a->y) * dtype_bytes(a->table->dtype) / dtype_bytes(a->y->dtype);
    }
    if (op == OP_INDEX_embedding_backward) {
        const embedding_backward_args *a = args;
        w.bytes = embedding_bytes(a->token, a->dy, a->dtable, 2);
    }
    return w;
}
