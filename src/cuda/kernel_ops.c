/* cuda/kernel_ops: the ops that are one launch of a kernel (cuda/kernels/kernels.def), and ops that choose
   the kernel's arguments. */
#include "cuda/cuda.h"
#include "cuda/kernels/kernels.h"
#include "cuda/ops.h"
#include "tensor/rules/heads_check.h"
#include "tensor/rules/moment_check.h"
#include "tensor/rules/route_check.h"

#define NO_CHECK(a) OTT_OK

static ott_status check_grad_norm(const grad_norm_args *a) {
    if (a->state->columns >= STEP_STATE_COUNT) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "grad_norm: state has %lld values; at least %d are needed",
                       (long long)a->state->columns, STEP_STATE_COUNT);
}

static ott_status check_update(const amax_update_args *a) {
    STATUS_REQUIRE(a->spec.history == a->amax_history->columns);
    if (!a->spec.callbacks) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "amax_update: user functions for delayed scaling run on the host, not on a GPU; "
                       "use them with --device=cpu");
}

#define KERNEL(op, check)                                                                                    \
    ott_status cuda_##op(exec *cx, const op##_args *a) {                                                     \
        TRY(check(a));                                                                                       \
        return cuda_check(op##_launch(a, cuda_stream(cx)), #op);                                             \
    }
#define KERNEL_MANY(op, check)                                                                               \
    ott_status cuda_##op##_many(exec *cx, const op##_args *items, int64_t count) {                           \
        for (int64_t i = 0; i < count; i++) TRY(check(&items[i]));                                           \
        return cuda_check(op##_launch(items, count, cuda_stream(cx)), #op);                                  \
    }
#include "cuda/kernels/kernels.def"

/* A single call is a list of one. */
#define OP(name, fields)
#define MANY(name)                                                                                           \
    ott_status cuda_##name(exec *cx, const name##_args *a) {                                                 \
        return cuda_##name##_many(cx, a, 1);                                                                 \
    }
#include "tensor/ops.def"
#undef OP

ott_status cuda_sum(exec *cx, const sum_args *a) {
    return cuda_check(sum_launch(a->x, a->sum, cx->workspace, cuda_stream(cx)), "sum");
}

ott_status cuda_amax_record(exec *cx, const amax_record_args *a) {
    const qdata *use = cast_spec_is_fp8(&a->q->spec.rowwise) ? &a->q->rowwise : &a->q->columnwise;
    return cuda_check(amax_record_launch(use->amax, a->seen, cuda_stream(cx)), "amax_record");
}
