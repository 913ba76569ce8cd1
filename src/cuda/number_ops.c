/* cuda/number_ops: the ops on plain numbers as launches: convert, add, sums and counts, the optimizer, delayed scaling. */
#include "cuda/cuda.h"
#include "cuda/kernels.h"
#include "cuda/ops.h"

ott_status cuda_convert(exec *cx, const convert_args *a) {
    return cuda_check(convert_launch(a->x, a->y, cuda_stream(cx)), "convert");
}

ott_status cuda_add(exec *cx, const add_args *a) {
    return cuda_check(add_launch(a->x, a->delta, a->y, cuda_stream(cx)), "add");
}

/* ---- reductions ---- */

ott_status cuda_column_sum(exec *cx, const column_sum_args *a) {
    return cuda_check(column_sum_launch(a->x, a->sum, cuda_stream(cx)), "column_sum");
}

ott_status cuda_sum(exec *cx, const sum_args *a) {
    return cuda_check(sum_launch(a->x, a->sum, cx->workspace, cuda_stream(cx)), "sum");
}

ott_status cuda_block_squares(exec *cx, const block_squares_args *a) {
    return cuda_check(block_squares_launch(a->x, a->sums, cuda_stream(cx)), "block_squares");
}

ott_status cuda_sum_blocks(exec *cx, const sum_blocks_args *a) {
    return cuda_check(sum_blocks_launch(a->sums, a->sum, cuda_stream(cx)), "sum_blocks");
}

ott_status cuda_count_nonfinite(exec *cx, const count_nonfinite_args *a) {
    return cuda_check(count_nonfinite_launch(a->x, a->count, cuda_stream(cx)), "count_nonfinite");
}

/* ---- optimizer ---- */

ott_status cuda_grad_norm(exec *cx, const grad_norm_args *a) {
    if (a->state->columns < STEP_STATE_COUNT)
        return status_fail(OTT_ERR_SHAPE, "grad_norm: state has %lld values; a step's state has %d",
                           (long long)a->state->columns, STEP_STATE_COUNT);
    return cuda_check(grad_norm_launch(a->sum_squares, a->state, a->max_norm, cuda_stream(cx)), "grad_norm");
}

ott_status cuda_adamw(exec *cx, const adamw_args *a) {
    adamw_rates rates = {a->beta1, a->beta2, a->epsilon, a->weight_decay};
    adamw_draws draws = {a->seed, a->first, a->row_step};
    return cuda_check(
        adamw_launch(a->param, a->grad, a->moment1, a->moment2, a->state, &rates, &draws, cuda_stream(cx)),
        "adamw");
}

/* ---- delayed scaling ---- */

ott_status cuda_amax_record(exec *cx, const amax_record_args *a) {
    const qdata *use = cast_spec_is_fp8(&a->q->spec.rowwise) ? &a->q->rowwise : &a->q->columnwise;
    return cuda_check(amax_record_launch(use->amax, a->seen, cuda_stream(cx)), "amax_record");
}

ott_status cuda_amax_update(exec *cx, const amax_update_args *a) {
    STATUS_REQUIRE(a->spec.history == a->amax_history->columns);
    if (a->spec.callbacks)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "amax_update: functions of the user for delayed scaling run on the host, not on a GPU; "
            "train with them on --device=cpu");
    return cuda_check(amax_update_launch(a->seen, a->amax_history, a->scale, a->spec.algorithm,
                                         dtype_max(a->spec.format), a->spec.scale.margin, cuda_stream(cx)),
                      "amax_update");
}
