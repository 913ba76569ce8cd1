/* nn/tensor_ranks: gathers rows and columns over the ranks, and sums terms. */
#include "nn/tensor_ranks.h"

static bool is_sequence_parallel(const tensor_ranks *r) {
    return r && r->group && r->sequence;
}

/* Number of all ranks' rows if this rank has `own` rows. */
static int64_t rows_of_all(const tensor_ranks *r, int64_t own) {
    return is_sequence_parallel(r) ? own * r->group->size : own;
}

/* ---- gathering rows ---- */

/* True if ranks can gather the codes of all quantized copies instead of the tensor. */
static bool can_gather_codes(const tensor_ranks *r, const activation_specs *all) {
    if (!r->codes_alike || !all || all->count == 0 || all->high_precision) return false;
    for (int i = 0; i < all->count; i++)
        if (!quant_spec_shares_scales(&all->spec[i]) || all->spec[i].rowwise.grain != GRANULARITY_TENSOR)
            return false;
    return true;
}

activation_specs tensor_ranks_own_specs(const tensor_ranks *r, const activation_specs *all) {
    if (!is_sequence_parallel(r)) return *all;
    if (!can_gather_codes(r, all)) return (activation_specs){.columnwise_high_precision = true};
    activation_specs own = *all;
    own.shard.sequence_ranks = r->group;
    return own;
}

static ott_status gather_columns(exec *cx, group *g, tensor own, tensor all) {
    return group_run(g, cx, &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = own, .output = all});
}

/* All ranks have the same scale, so the gathered copy has the scales of `own`. */
static ott_status gather_codes(exec *cx, group *g, const qtensor *own, qtensor *all) {
    ott_dtype format = own->spec.rowwise.format;
    qdata *rowwise = &all->rowwise;
    TRY(gather_columns(cx, g, tensor_matrix(own->rowwise.data, format, own->rows, own->columns),
                       tensor_matrix(rowwise->data, format, all->rows, all->columns)));
    rowwise->amax = own->rowwise.amax;
    rowwise->scale = own->rowwise.scale;
    rowwise->scale_inv = own->rowwise.scale_inv;
    if (cast_spec_is_fp8(&all->spec.columnwise)) all->columnwise = qtensor_shared_use(*rowwise);
    return OTT_OK;
}

static ott_status gather_copies(exec *cx, const tensor_ranks *r, const char *what,
                                const activation_specs *all, const activation *own, activation *out) {
    plan_buffer none = PLAN_NONE;
    tensor t = {.dtype = own->t.dtype,
                .rows = rows_of_all(r, own->t.rows),
                .columns = own->t.columns,
                .ld = own->t.columns};
    TRY(activation_adopt(cx, what, t, &none, all, out));
    for (int i = 0; i < out->q.count; i++) TRY(gather_codes(cx, r->group, &own->q.item[i], &out->q.item[i]));
    return OTT_OK;
}

ott_status tensor_ranks_gather(exec *cx, const tensor_ranks *r, const char *what, const activation_specs *all,
                               const activation *own, activation *out) {
    if (!is_sequence_parallel(r)) {
        *out = *own;
        out->buffer = PLAN_NONE;
        for (int i = 0; i < QLIST_MAX; i++) out->rowwise[i] = out->columnwise[i] = PLAN_NONE;
        return OTT_OK;
    }
    if (can_gather_codes(r, all)) return gather_copies(cx, r, what, all, own, out);
    TRY(activation_open(cx, what, own->t.dtype, rows_of_all(r, own->t.rows), own->t.columns, all, out));
    TRY(gather_columns(cx, r->group, own->t, out->t));
    return activation_quantize(cx, out);
}

ott_status tensor_ranks_gather_columns(exec *cx, const tensor_ranks *r, const char *what, const tensor *own,
                                       tensor *all, plan_buffer *buffer) {
    int ranks = r->group->size;
    tensor blocks; /* all ranks' columns, in one block per rank */
    plan_buffer blocks_buffer;
    TRY(exec_open(cx, what, own->dtype, own->rows, own->columns * ranks, all, buffer));
    TRY(exec_open(cx, "gathered columns", own->dtype, own->rows * ranks, own->columns, &blocks,
                  &blocks_buffer));
    TRY(gather_columns(cx, r->group, *own, blocks));
    for (int k = 0; k < ranks; k++) {
        tensor from = tensor_rows(blocks, k * own->rows, own->rows),
               to = tensor_columns(*all, k * own->columns, own->columns);
        TRY(op_convert(cx, &(convert_args){.x = &from, .y = &to}));
    }
    return plan_close(cx->plan, &blocks_buffer);
}

/* ---- sums over ranks ---- */

ott_status tensor_partial_open(exec *cx, const tensor_ranks *r, ott_dtype d, const tensor *y,
                               partial_sum *out) {
    *out = (partial_sum){.t = *y, .buffer = PLAN_NONE};
    if (!r || !r->group || (!r->sequence && y->dtype == d)) return OTT_OK;
    return exec_open(cx, "term of a sum over ranks", d, rows_of_all(r, y->rows), y->columns, &out->t,
                     &out->buffer);
}

/* Sums the ranks' tensors `parts` in place, in their format. *sum: this rank's rows of the sum. */
static ott_status sum_terms(exec *cx, const tensor_ranks *r, const tensor *parts, tensor *sum) {
    *sum = *parts;
    if (!r->sequence) return group_all_reduce(r->group, cx, sum, REDUCE_SUM);
    int64_t rows = parts->rows / r->group->size;
    *sum = tensor_rows(*parts, r->group->rank * rows, rows);
    return group_run(
        r->group, cx,
        &(collective){
            .kind = COLLECTIVE_REDUCE_SCATTER, .reduce = REDUCE_SUM, .input = *parts, .output = *sum});
}

ott_status tensor_partial_close(exec *cx, const tensor_ranks *r, const tensor *y, partial_sum *p) {
    tensor sum;
    if (!r || !r->group) return OTT_OK;
    TRY(sum_terms(cx, r, &p->t, &sum));
    if (p->buffer.id) TRY(op_convert(cx, &(convert_args){.x = &sum, .y = y}));
    return plan_close(cx->plan, &p->buffer);
}

/* ---- tensors that every rank computes completely ---- */

ott_status tensor_full_open(exec *cx, const tensor_ranks *r, const tensor *y, full_rows *out) {
    *out = (full_rows){.t = *y, .buffer = PLAN_NONE};
    if (!is_sequence_parallel(r)) return OTT_OK;
    return exec_open(cx, "all rows", y->dtype, rows_of_all(r, y->rows), y->columns, &out->t, &out->buffer);
}

ott_status tensor_full_close(exec *cx, const tensor_ranks *r, const tensor *y, full_rows *w) {
    if (is_sequence_parallel(r)) {
        tensor own = tensor_rows(w->t, r->group->rank * y->rows, y->rows);
        TRY(op_convert(cx, &(convert_args){.x = &own, .y = y}));
    }
    return plan_close(cx->plan, &w->buffer);
}
