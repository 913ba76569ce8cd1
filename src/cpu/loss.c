/* cpu/loss: softmax cross-entropy and z-loss of each token; the gradient replaces the logits. */
#include "cpu/rows.h"

/* Returns the largest element. Ignores NaNs, because a NaN makes the sum of exponentials NaN. */
SIMD float row_max(ott_dtype d, const void *x, int64_t columns) {
    v16 lowest = v16_set1(-INFINITY), most = lowest;
    BY_16(c, lanes, columns, {
        v16 value = v16_get(x, d, c, lanes);
        if (lanes < 16) value = v16_select(v16m_first(lanes), value, lowest);
        most = v16_max(value, most);
    });
    return v16_fold_max(most);
}

/* Returns SUM16 of exp(x - m). */
SIMD float exp_sum(ott_dtype d, const void *x, float m, int64_t columns) {
    v16 shift = v16_set1(m), sum = v16_zero();
    BY_16(c, lanes, columns, {
        v16 e = v16_exp(v16_sub(v16_get(x, d, c, lanes), shift));
        if (lanes < 16) e = v16_keep_n(e, lanes);
        sum = v16_add(sum, e);
    });
    return v16_fold_sum(sum);
}

/* Replaces x by p * grad, p = exp(x - m) * inverse. Column `target`, if it exists, becomes (p - 1) * grad. */
SIMD void gradient_row(ott_dtype d, void *x, float m, float inverse, int64_t target, float grad,
                       int64_t columns) {
    bool is_here = target >= 0 && target < columns;
    float at_target = is_here ? cast_load(x, d, target) : 0.0f;
    v16 shift = v16_set1(m), factor = v16_set1(inverse), scale = v16_set1(grad);
    BY_16(c, lanes, columns, {
        v16 p = v16_mul(v16_exp(v16_sub(v16_get(x, d, c, lanes), shift)), factor);
        v16_put(x, d, c, v16_mul(p, scale), lanes);
    });
    if (is_here) cast_store(x, d, target, (fmath_exp(at_target - m) * inverse - 1.0f) * grad);
}

/* Addresses of a row's outputs, and factors of its gradient. */
typedef struct loss_places {
    float *loss, *z;   /* NULL z: the z-loss is not written */
    const float *grad; /* scale of the gradient; NULL: compute no gradient */
    float z_weight;
} loss_places;

static loss_places places_of(const tensor *loss, const tensor *z, const tensor *grad_scale, float z_weight,
                             int64_t t) {
    return (loss_places){.loss = (float *)loss->data + t,
                         .z = z ? (float *)z->data + t : NULL,
                         .grad = grad_scale ? grad_scale->data : NULL,
                         .z_weight = z_weight};
}

/* Sets loss, z and gradient of a row without target to 0. */
SIMD void ignore_row(ott_dtype d, void *x, const loss_places *p, int64_t columns) {
    *p->loss = 0.0f;
    if (p->z) *p->z = 0.0f;
    if (p->grad) BY_16(c, lanes, columns, v16_put(x, d, c, v16_zero(), lanes););
}

/* Computes a row's loss and gradient from its largest element m, its sum of exponentials and the target's
   logit. target: column of the target in x. It is out of range if another rank has this column. */
SIMD void finish_row(ott_dtype d, void *x, float m, float sum, float at_target, int64_t target,
                     const loss_places *p, int64_t columns) {
    float lse = m + fmath_log(sum), inverse = 1.0f / sum;
    *p->loss = lse - at_target;
    if (p->z) *p->z = lse * lse;
    if (p->z_weight != 0) inverse = inverse * fmaf(2.0f * p->z_weight, lse, 1.0f);
    if (p->grad) gradient_row(d, x, m, inverse, target, *p->grad, columns);
}

SIMD void loss_row(ott_dtype d, const cross_entropy_args *a, int64_t t) {
    int64_t target = ((const int32_t *)a->target->data)[t], columns = a->logits->columns;
    const loss_places p = places_of(a->loss, a->z, a->grad_scale, a->z_weight, t);
    void *x = row_of(a->logits, t);
    if (target < 0) {
        ignore_row(d, x, &p, columns);
        return;
    }
    float m = row_max(d, x, columns);
    float sum = exp_sum(d, x, m, columns);
    finish_row(d, x, m, sum, cast_load(x, d, target), target, &p, columns);
}

static void loss_task(void *argument, int thread, int threads) {
    const cross_entropy_args *a = argument;
    int64_t t, end;
    pool_share(a->logits->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->logits->dtype, D, loss_row(D, a, t));
}

ott_status ISA(cross_entropy)(exec *cx, const cross_entropy_args *a) {
    TRY(row_check_indices("cross_entropy", "target", a->target, a->logits->columns, true));
    cpu_run_sized(cx, tensor_count(*a->logits), loss_task, (void *)a);
    return ISA(quantize_list)(cx, a->logits, a->q);
}

/* ---- logits with columns that are split over ranks ---- */

enum { PART_MAX, PART_SUM, PART_TARGET, PART_ROWS };

static float *of_part(const tensor *parts, int64_t row, int64_t t) {
    return (float *)row_of(parts, row) + t;
}

SIMD void part_row(ott_dtype d, const cross_entropy_part_args *a, int64_t t) {
    int64_t target = ((const int32_t *)a->target->data)[t] - a->before, columns = a->logits->columns;
    const void *x = row_of(a->logits, t);
    float m = row_max(d, x, columns);
    *of_part(a->part, PART_MAX, t) = m + 0.0f; /* 0 if the maximum is -0 */
    *of_part(a->part, PART_SUM, t) = exp_sum(d, x, m, columns);
    *of_part(a->part, PART_TARGET, t) = target >= 0 && target < columns ? cast_load(x, d, target) : 0.0f;
}

static void part_task(void *argument, int thread, int threads) {
    const cross_entropy_part_args *a = argument;
    int64_t t, end;
    pool_share(a->logits->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->logits->dtype, D, part_row(D, a, t));
}

ott_status ISA(cross_entropy_part)(exec *cx, const cross_entropy_part_args *a) {
    TRY(row_check_indices("cross_entropy_part", "target", a->target,
                          a->before + a->logits->columns + a->after, true));
    cpu_run_sized(cx, tensor_count(*a->logits), part_task, (void *)a);
    return OTT_OK;
}

/* Combines the results of ranks that have parts of a row: maximum, sum of exponentials, target logit. */
static void join_parts(const tensor *parts, int64_t t, float *m, float *sum, float *at_target) {
    *m = -INFINITY;
    *sum = *at_target = 0.0f;
    for (int64_t r = 0; r < parts->rows; r += PART_ROWS) {
        float most = *of_part(parts, r + PART_MAX, t);
        if (most > *m) *m = most;
    }
    for (int64_t r = 0; r < parts->rows; r += PART_ROWS) {
        float most = *of_part(parts, r + PART_MAX, t);
        *sum = fmaf(*of_part(parts, r + PART_SUM, t), fmath_exp(most - *m), *sum);
        *at_target = *at_target + *of_part(parts, r + PART_TARGET, t);
    }
}

SIMD void finish_full_row(ott_dtype d, const cross_entropy_finish_args *a, int64_t t) {
    int64_t target = ((const int32_t *)a->target->data)[t], columns = a->logits->columns;
    const loss_places p = places_of(a->loss, a->z, a->grad_scale, a->z_weight, t);
    float m, sum, at_target;
    void *x = row_of(a->logits, t);
    if (target < 0) {
        ignore_row(d, x, &p, columns);
        return;
    }
    join_parts(a->parts, t, &m, &sum, &at_target);
    finish_row(d, x, m, sum, at_target, target - a->before, &p, columns);
}

static void finish_task(void *argument, int thread, int threads) {
    const cross_entropy_finish_args *a = argument;
    int64_t t, end;
    pool_share(a->logits->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->logits->dtype, D, finish_full_row(D, a, t));
}

ott_status ISA(cross_entropy_finish)(exec *cx, const cross_entropy_finish_args *a) {
    TRY(row_check_indices("cross_entropy_finish", "target", a->target,
                          a->before + a->logits->columns + a->after, true));
    STATUS_REQUIRE(a->parts->rows > 0 && a->parts->rows % PART_ROWS == 0);
    cpu_run_sized(cx, tensor_count(*a->logits), finish_task, (void *)a);
    return ISA(quantize_list)(cx, a->logits, a->q);
}
