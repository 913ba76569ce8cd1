/* plan/work: counts the work of an operation. */
#include "plan/work.h"

/* True if a scale depends on a full row, column or tensor, so that all elements are read before the cast. */
static bool needs_all(const cast_spec *s) {
    scale_block block = granularity_block(s->grain);
    bool wide = block.mn == INT64_MAX || block.k == INT64_MAX;
    return cast_spec_is_fp8(s) && s->policy == AMAX_CURRENT && wide;
}

static bool needs_second_read(const quant_spec *s) {
    return needs_all(&s->rowwise) || needs_all(&s->columnwise);
}

static bool shares_copies(const quant_spec *s) {
    return cast_spec_is_fp8(&s->rowwise) && cast_spec_is_fp8(&s->columnwise) && quant_spec_shares_scales(s);
}

static double code_bytes(const cast_spec *s) {
    return cast_spec_is_fp8(s) ? dtype_bits(s->format) / 8.0 : 0;
}

/* Bytes of codes that are written per element: rowwise and columnwise, unless both uses share one. */
static double copies_bytes(const backend_capabilities *can, const quant_spec *s) {
    bool one = shares_copies(s) && !can->contiguous_contraction;
    return code_bytes(&s->rowwise) + (one ? 0 : code_bytes(&s->columnwise));
}

double work_cast_bytes(const backend_capabilities *can, const quant_spec *spec, int64_t rows, int64_t columns,
                       int source, bool is_separate) {
    double codes = copies_bytes(can, spec);
    if (codes == 0) return 0;
    int passes = is_separate + needs_second_read(spec);
    return (double)rows * (double)columns * (codes + passes * source);
}

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
        if (!cast_spec_is_fp8(use) || (columnwise && shares_copies(s))) continue;
        scale_block block = granularity_block(use->grain);
        int64_t rows = columnwise ? block.k : block.mn, columns = columnwise ? block.mn : block.k;
        bool waits = use->policy != AMAX_DELAYED && (rows == INT64_MAX || columns == INT64_MAX);
        bool knows = use->policy == AMAX_CURRENT && columns == INT64_MAX && (rows == INT64_MAX || rows == 1);
        bool is_cast = casts && knows && rows == 1 && !columnwise && !shares_copies(s);
        first = first || !knows;
        second = second || (waits && !is_cast);
    }
    return first + second;
}

static double quantized_bytes(const exec *cx, const qtensor *q, int source, producer by) {
    const backend_capabilities *can = cx->device->can;
    if (by == BY_TILES) return work_cast_bytes(can, &q->spec, q->rows, q->columns, source, false);
    int passes = passes_after_rows(&q->spec, by == BY_ROWS_AND_CASTS);
    return (double)q->rows * (double)q->columns * (copies_bytes(can, &q->spec) + passes * source);
}

static double tensor_traffic(const tensor *t) {
    return t ? (double)t->rows * (double)t->columns * (dtype_bits(t->dtype) / 8.0) : 0;
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

static work_format product_format(ott_dtype a, ott_dtype b) {
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
    w->format = product_format(a->a->t.dtype, a->b->t.dtype);
    w->m = operand_mn(a->a);
    w->n = operand_mn(a->b);
    w->k = operand_k(a->a);
    w->flops = 2.0 * (double)w->m * (double)w->n * (double)w->k;
}

/* Counts a grouped GEMM: each row is multiplied by one expert's matrix. */
static void count_grouped(const operand *a, const operand *b, const tensor *c, work *w) {
    w->format = product_format(a->t.dtype, b->t.dtype);
    w->flops = 2.0 * (double)a->t.rows * (double)a->t.columns * (double)c->columns;
}

/* Number of query-key pairs under the causal mask and window, for documents of equal length. */
static double visible_query_key_pairs(int64_t tokens, int64_t documents, int64_t window) {
    double length = (double)tokens / (double)(documents > 0 ? documents : 1), w = (double)window;
    if (window <= 0 || w >= length) return (double)tokens * (length + 1) / 2;
    return (double)tokens * w - (double)(documents > 0 ? documents : 1) * w * (w - 1) / 2;
}

/* True if no version of cuDNN computes the attention (cuda/attention/attention_plans.c). */
static bool needs_own_kernel(const tensor *q, int64_t head_dim, float softcap) {
    return q->dtype == OTT_F32 || softcap > 0 || head_dim % 8 != 0 || head_dim > 256;
}

/* products: 2 GEMMs forward, 5 backward. Each has head_dim multiply-adds per query-key pair and head. */
static void count_attention(const tensor *q, const tensor *cu_seqlens, int64_t window, int products,
                            work *w) {
    w->flops = 2.0 * products * (double)q->columns *
               visible_query_key_pairs(q->rows, cu_seqlens->columns - 1, window);
    w->format = q->dtype == OTT_F32 ? WORK_FP32 : WORK_BF16;
}

/* ---- an operation ---- */

/* Bytes of an embedding op: only the tokens' rows of the table are read or written. */
static double embedding_bytes(const tensor *token, const tensor *rows, const tensor *table,
                              double table_passes) {
    double elements = (double)rows->rows * (double)rows->columns;
    return tensor_traffic(token) + tensor_traffic(rows) +
           (double)dtype_bytes(table->dtype) * table_passes * elements;
}

/* Bytes that the CUDA kernels read again. The rows of logits in work do not fit in the cache together. The
   gradient of a norm's weight is a second pass over dy and h. */
static double reread_bytes(const exec *cx, enum op_index op, const void *args) {
    const cross_entropy_args *loss = args;
    const cross_entropy_part_args *part = args;
    const rmsnorm_backward_args *rms = args;
    const layernorm_backward_args *layer = args;
    if (!cx->device->can->contiguous_contraction) return 0; /* a CPU */
    switch (op) {
    case OP_INDEX_cross_entropy: return 2 * tensor_traffic(loss->logits);
    case OP_INDEX_cross_entropy_part: return tensor_traffic(part->logits);
    case OP_INDEX_rmsnorm_backward:
        return rms->dweight ? tensor_traffic(rms->dy) + tensor_traffic(rms->h) : 0;
    case OP_INDEX_layernorm_backward:
        return layer->dweight ? tensor_traffic(layer->dy) + tensor_traffic(layer->h) : 0;
    default: return 0;
    }
}

/* Instructions per element of AdamW's kernels, by tools/count_sass.py. On Hopper, the other kernels' memory
   takes longer than their instructions. */
enum { ADAMW_FP32 = 64, ADAMW_BF16 = 74, ADAMW_MIXED = 108, ADAMW_FP8 = 296 };

/* An FP8 copy of the new parameters is mostly the work of a second kernel. */
static void count_adamw(const exec *cx, const tensor *param, const tensor *moment1, const qtensor *q,
                        work *w) {
    bool wide = param->dtype == OTT_F32 && moment1->dtype == OTT_F32,
         narrow = param->dtype == OTT_BF16 && moment1->dtype == OTT_BF16;
    double each = dtype_is_fp8(moment1->dtype) ? ADAMW_FP8
                  : wide                       ? ADAMW_FP32
                  : narrow                     ? ADAMW_BF16
                                               : ADAMW_MIXED;
    w->instructions = each * (double)param->rows * (double)param->columns;
    w->updated = w->bytes - w->from_host - w->to_host;
    if (q && qtensor_has_codes(q)) w->updated -= quantized_bytes(cx, q, dtype_bytes(param->dtype), BY_TILES);
}

/* Bytes of all fields, and the part of them in mapped host memory. */
static void count_fields(const exec *cx, const op_info *op, const void *args, work *w) {
    int source = source_bytes(op, args);
    for (int i = 0; i < op->field_count; i++) {
        const op_field *f = &op->fields[i];
        w->bytes += field_bytes(cx, f, args, source, producer_of(w->op));
        if (f->kind != OP_IN && f->kind != OP_OUT && f->kind != OP_INOUT) continue;
        const tensor *t = *(const tensor *const *)((const char *)args + f->offset);
        if (!t || !dry_run_is_mapped(t->data)) continue;
        if (f->kind != OP_OUT) w->from_host += tensor_traffic(t);
        if (f->kind != OP_IN) w->to_host += tensor_traffic(t);
    }
}

work work_of(const exec *cx, enum op_index op, const void *args) {
    const union {
        const void *any;
        const amax_args *amax;
        const cast_args *cast;
        const quantize_args *quantize;
        const adamw_args *adamw;
        const adamw_fp8_args *adamw_fp8;
        const gemm_args *gemm;
        const grouped_gemm_args *grouped;
        const grouped_gemm_weight_args *weight;
        const attention_forward_args *forward;
        const attention_backward_args *backward;
        const embedding_forward_args *lookup;
        const embedding_backward_args *scatter;
    } a = {args};
    work w = {.op = op, .format = WORK_BF16};
    count_fields(cx, op_at((int)op), args, &w);
    w.bytes += reread_bytes(cx, op, args);
    switch (op) {
    case OP_INDEX_amax: w.bytes = tensor_traffic(a.amax->x); break; /* amax only reads x */
    case OP_INDEX_cast: /* the scales are known already, so the source is read once */
        w.bytes = tensor_traffic(a.cast->x) + (double)a.cast->q->rows * (double)a.cast->q->columns *
                                                  copies_bytes(cx->device->can, &a.cast->q->spec);
        break;
    case OP_INDEX_quantize:
        if (needs_second_read(&a.quantize->q->spec)) w.from_host *= 2;
        break;
    case OP_INDEX_adamw: /* quantizing reads the updated masters again */
        count_adamw(cx, a.adamw->param, a.adamw->moment1, a.adamw->q, &w);
        if (a.adamw->q && qtensor_has_codes(a.adamw->q) && dry_run_is_mapped(a.adamw->param->data) &&
            needs_second_read(&a.adamw->q->spec))
            w.from_host += tensor_traffic(a.adamw->param);
        break;
    case OP_INDEX_adamw_fp8: count_adamw(cx, a.adamw_fp8->param, a.adamw_fp8->moment1, NULL, &w); break;
    case OP_INDEX_scale:
    case OP_INDEX_amax_record: w.bytes = sizeof(float); break; /* one scale */
    case OP_INDEX_gemm: count_product(a.gemm, &w); break;
    case OP_INDEX_grouped_gemm: count_grouped(a.grouped->a, a.grouped->b, a.grouped->c, &w); break;
    case OP_INDEX_grouped_gemm_weight: count_grouped(a.weight->a, a.weight->b, a.weight->c, &w); break;
    case OP_INDEX_attention_forward:
        count_attention(a.forward->q, a.forward->cu_seqlens, a.forward->window, 2, &w);
        w.by_own_kernel = needs_own_kernel(a.forward->q, a.forward->head_dim, a.forward->softcap);
        break;
    case OP_INDEX_attention_backward:
        count_attention(a.backward->q, a.backward->cu_seqlens, a.backward->window, 5, &w);
        w.by_own_kernel = needs_own_kernel(a.backward->q, a.backward->head_dim, a.backward->softcap);
        break;
    case OP_INDEX_embedding_forward: {
        const tensor *y = a.lookup->y, *table = a.lookup->table;
        w.bytes = embedding_bytes(a.lookup->token, y, table, 1);
        if (w.from_host > 0)
            w.from_host = tensor_traffic(y) * dtype_bytes(table->dtype) / dtype_bytes(y->dtype);
        break;
    }
    case OP_INDEX_embedding_backward:
        w.bytes = embedding_bytes(a.scatter->token, a.scatter->dy, a.scatter->dtable, 2);
        break;
    default: break;
    }
    return w;
}
