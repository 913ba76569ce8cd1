/* cuda/number_ops: launches of ops on unquantized values: convert, add, multiply, dropout, sums, counts,
   optimizer updates, delayed scaling. */
#include "cuda/cuda.h"
#include "cuda/kernels.h"
#include "cuda/ops.h"
#include "tensor/moment_check.h"

ott_status cuda_convert(exec *cx, const convert_args *a) {
    return cuda_check(convert_launch(a->x, a->y, cuda_stream(cx)), "convert");
}

ott_status cuda_add(exec *cx, const add_args *a) {
    return cuda_check(add_launch(a->x, a->delta, a->y, cuda_stream(cx)), "add");
}

ott_status cuda_multiply(exec *cx, const multiply_args *a) {
    return cuda_check(multiply_launch(a->x, a->y, a->factor, cuda_stream(cx)), "multiply");
}

ott_status cuda_multiply_columns(exec *cx, const multiply_columns_args *a) {
    return cuda_check(multiply_columns_launch(a, cuda_stream(cx)), "multiply_columns");
}

ott_status cuda_channel_scales(exec *cx, const channel_scales_args *a) {
    return cuda_check(channel_scales_launch(a, cuda_stream(cx)), "channel_scales");
}

ott_status cuda_dropout(exec *cx, const dropout_args *a) {
    return cuda_check(dropout_launch(a, cuda_stream(cx)), "dropout");
}

/* ---- reductions ---- */

ott_status cuda_column_sum(exec *cx, const column_sum_args *a) {
    return cuda_check(column_sum_launch(a->x, a->sum, cuda_stream(cx)), "column_sum");
}

ott_status cuda_sum(exec *cx, const sum_args *a) {
    return cuda_check(sum_launch(a->x, a->sum, cx->workspace, cuda_stream(cx)), "sum");
}

ott_status cuda_block_squares_many(exec *cx, const block_squares_args *items, int64_t count) {
    return cuda_check(block_squares_launch(items, count, cuda_stream(cx)), "block_squares");
}

ott_status cuda_sum_blocks_many(exec *cx, const sum_blocks_args *items, int64_t count) {
    return cuda_check(sum_blocks_launch(items, count, cuda_stream(cx)), "sum_blocks");
}

ott_status cuda_count_nonfinite(exec *cx, const count_nonfinite_args *a) {
    return cuda_check(count_nonfinite_launch(a->x, a->count, cuda_stream(cx)), "count_nonfinite");
}

/* ---- optimizer ---- */

ott_status cuda_grad_norm(exec *cx, const grad_norm_args *a) {
    if (a->state->columns < STEP_STATE_COUNT)
        return status_fail(OTT_ERR_SHAPE, "grad_norm: state has %lld values; at least %d are needed",
                           (long long)a->state->columns, STEP_STATE_COUNT);
    return cuda_check(grad_norm_launch(a->sum_squares, a->state, a->max_norm, cuda_stream(cx)), "grad_norm");
}

ott_status cuda_adamw_many(exec *cx, const adamw_args *items, int64_t count) {
    return cuda_check(adamw_launch(items, count, cuda_stream(cx)), "adamw");
}

ott_status cuda_adamw_fp8_many(exec *cx, const adamw_fp8_args *items, int64_t count) {
    for (int64_t i = 0; i < count; i++) TRY(moment_check(&items[i]));
    return cuda_check(adamw_fp8_launch(items, count, cuda_stream(cx)), "adamw_fp8");
}

ott_status cuda_lion_many(exec *cx, const lion_args *items, int64_t count) {
    return cuda_check(lion_launch(items, count, cuda_stream(cx)), "lion");
}

ott_status cuda_sgd_many(exec *cx, const sgd_args *items, int64_t count) {
    return cuda_check(sgd_launch(items, count, cuda_stream(cx)), "sgd");
}

ott_status cuda_adam_many(exec *cx, const adam_args *items, int64_t count) {
    return cuda_check(adam_launch(items, count, cuda_stream(cx)), "adam");
}

ott_status cuda_schedule_free_many(exec *cx, const schedule_free_args *items, int64_t count) {
    return cuda_check(schedule_free_launch(items, count, cuda_stream(cx)), "schedule_free");
}

ott_status cuda_lerp(exec *cx, const lerp_args *a) {
    return cuda_check(lerp_launch(a, cuda_stream(cx)), "lerp");
}

ott_status cuda_muon_momentum(exec *cx, const muon_momentum_args *a) {
    return cuda_check(muon_momentum_launch(a, cuda_stream(cx)), "muon_momentum");
}

ott_status cuda_muon_direction(exec *cx, const muon_direction_args *a) {
    return cuda_check(muon_direction_launch(a, cuda_stream(cx)), "muon_direction");
}

ott_status cuda_muon_normalize(exec *cx, const muon_normalize_args *a) {
    return cuda_check(muon_normalize_launch(a, cuda_stream(cx)), "muon_normalize");
}

ott_status cuda_muon(exec *cx, const muon_args *a) {
    return cuda_check(muon_launch(a, cuda_stream(cx)), "muon");
}

/* ---- delayed scaling ---- */

ott_status cuda_amax_record(exec *cx, const amax_record_args *a) {
    const qdata *use = cast_spec_is_fp8(&a->q->spec.rowwise) ? &a->q->rowwise : &a->q->columnwise;
    return cuda_check(amax_record_launch(use->amax, a->seen, cuda_stream(cx)), "amax_record");
}

static ott_status check_update(const amax_update_args *a) {
    STATUS_REQUIRE(a->spec.history == a->amax_history->columns);
    if (!a->spec.callbacks) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "amax_update: user functions for delayed scaling run on the host, not on a GPU; "
                       "use them with --device=cpu");
}

ott_status cuda_amax_update_many(exec *cx, const amax_update_args *items, int64_t count) {
    for (int64_t i = 0; i < count; i++) TRY(check_update(&items[i]));
    return cuda_check(amax_update_launch(items, count, cuda_stream(cx)), "amax_update");
}

/* ---- a single call is a list of one ---- */

#define OP(name, fields)
#define MANY(name)                                                                                           \
    ott_status cuda_##name(exec *cx, const name##_args *a) {                                                 \
        return cuda_##name##_many(cx, a, 1);                                                                 \
    }
#include "tensor/ops.def"
#undef OP
