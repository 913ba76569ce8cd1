/* reference_layers: embedding, norm, rotary positions, SwiGLU, loss, as plain loops. */
#include "base/rng.h"
#include "reference/reference_parts.h"

/* ---- embedding ---- */

ott_status reference_op_embedding_forward(exec *cx, const embedding_forward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            int64_t row = integer_at(a->token, t) - a->before;
            put(a->y, t, j, row >= 0 && row < a->table->rows ? at(a->table, row, j) : 0.0f);
        }
    return OTT_OK;
}

ott_status reference_op_embedding_backward(exec *cx, const embedding_backward_args *a) {
    (void)cx;
    for (int64_t row = 0; row < a->dtable->rows; row++)
        for (int64_t j = 0; j < a->dy->columns; j++) {
            float sum = at(a->dtable, row, j);
            if (a->has_padding && row + a->before == a->padding) continue;
            for (int64_t t = 0; t < a->dy->rows; t++)
                if (integer_at(a->token, t) - a->before == row) sum += at(a->dy, t, j);
            put(a->dtable, row, j, sum);
        }
    return OTT_OK;
}

/* ---- norm ---- */

static float weight_at(const tensor *weight, int64_t j, bool one_plus) {
    return one_plus ? 1.0f + at(weight, 0, j) : at(weight, 0, j);
}

static void rmsnorm_forward_row(const rmsnorm_forward_args *a, int64_t t) {
    int64_t columns = a->x->columns;
    const tensor *h = a->h ? a->h : a->x; /* without delta, h = x */
    float lane[16] = {0};
    for (int64_t j = 0; j < columns; j++) {
        float x = at(a->x, t, j);
        if (a->h) put(a->h, t, j, a->delta ? x + at(a->delta, t, j) : x);
        lane[j % 16] = fmaf(at(h, t, j), at(h, t, j), lane[j % 16]);
    }
    float rstd = 1.0f / sqrtf(fold16(lane) / (float)columns + a->eps);
    put(a->rstd, 0, t, rstd);
    for (int64_t j = 0; j < columns; j++)
        put(a->y, t, j, (at(h, t, j) * rstd) * weight_at(a->weight, j, a->one_plus));
}

ott_status reference_op_rmsnorm_forward(exec *cx, const rmsnorm_forward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->x->rows; t++) rmsnorm_forward_row(a, t);
    reference_quantize_list(a->y, a->q);
    return OTT_OK;
}

static void rmsnorm_backward_row(const rmsnorm_backward_args *a, int64_t t) {
    int64_t columns = a->dy->columns;
    float rstd = at(a->rstd, 0, t), lane[16] = {0};
    for (int64_t j = 0; j < columns; j++) {
        float wdy = at(a->dy, t, j) * weight_at(a->weight, j, a->one_plus), xhat = at(a->h, t, j) * rstd;
        lane[j % 16] = fmaf(wdy, xhat, lane[j % 16]);
    }
    float c = fold16(lane) / (float)columns;
    for (int64_t j = 0; j < columns; j++) {
        float wdy = at(a->dy, t, j) * weight_at(a->weight, j, a->one_plus), xhat = at(a->h, t, j) * rstd;
        float d = (wdy - xhat * c) * rstd;
        put(a->dx, t, j, a->dresidual ? at(a->dresidual, t, j) + d : d);
    }
}

ott_status reference_op_rmsnorm_backward(exec *cx, const rmsnorm_backward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->dy->rows; t++) rmsnorm_backward_row(a, t);
    for (int64_t j = 0; a->dweight && j < a->dy->columns; j++) {
        float s = at(a->dweight, 0, j);
        for (int64_t t = 0; t < a->dy->rows; t++)
            s = fmaf(at(a->dy, t, j), at(a->h, t, j) * at(a->rstd, 0, t), s);
        put(a->dweight, 0, j, s);
    }
    reference_quantize_list(a->dx, a->q);
    return OTT_OK;
}

/* ---- dropout ---- */

ott_status reference_op_dropout(exec *cx, const dropout_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->x->rows; t++)
        for (int64_t d = 0; d < a->x->columns; d++) {
            uint64_t low = (uint32_t)integer_at(a->token, 0), high = (uint32_t)integer_at(a->token, 1);
            uint64_t n =
                (low + (high << 32) + (uint64_t)t) * (uint64_t)a->row_step + (uint64_t)a->first + (uint64_t)d;
            float factor = rng_uniform(a->seed, a->stream, n) < a->rate ? 0.0f : a->scale;
            put(a->y, t, d, at(a->x, t, d) * factor);
        }
    return OTT_OK;
}

/* ---- layer normalization ---- */

static void layernorm_forward_row(const layernorm_forward_args *a, int64_t t) {
    int64_t columns = a->x->columns;
    const tensor *h = a->h ? a->h : a->x;
    float sum[16] = {0}, squares[16] = {0};
    for (int64_t j = 0; j < columns; j++) {
        float x = at(a->x, t, j);
        if (a->h) put(a->h, t, j, a->delta ? x + at(a->delta, t, j) : x);
        sum[j % 16] += at(h, t, j);
    }
    float mean = fold16(sum) / (float)columns;
    for (int64_t j = 0; j < columns; j++) {
        float d = at(h, t, j) - mean;
        squares[j % 16] = fmaf(d, d, squares[j % 16]);
    }
    float rstd = 1.0f / sqrtf(fold16(squares) / (float)columns + a->eps);
    put(a->statistics, 0, t, mean);
    put(a->statistics, 1, t, rstd);
    for (int64_t j = 0; j < columns; j++) {
        float xhat = (at(h, t, j) - mean) * rstd, w = at(a->weight, 0, j);
        put(a->y, t, j, a->bias ? fmaf(xhat, w, at(a->bias, 0, j)) : xhat * w);
    }
}

ott_status reference_op_layernorm_forward(exec *cx, const layernorm_forward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->x->rows; t++) layernorm_forward_row(a, t);
    reference_quantize_list(a->y, a->q);
    return OTT_OK;
}

static float xhat_at(const layernorm_backward_args *a, int64_t t, int64_t j) {
    return (at(a->h, t, j) - at(a->statistics, 0, t)) * at(a->statistics, 1, t);
}

static void layernorm_backward_row(const layernorm_backward_args *a, int64_t t) {
    int64_t columns = a->dy->columns;
    float sum[16] = {0}, lane[16] = {0};
    for (int64_t j = 0; j < columns; j++) {
        float wdy = at(a->dy, t, j) * at(a->weight, 0, j);
        sum[j % 16] += wdy;
        lane[j % 16] = fmaf(wdy, xhat_at(a, t, j), lane[j % 16]);
    }
    float m = fold16(sum) / (float)columns, c = fold16(lane) / (float)columns;
    for (int64_t j = 0; j < columns; j++) {
        float wdy = at(a->dy, t, j) * at(a->weight, 0, j);
        float d = ((wdy - m) - xhat_at(a, t, j) * c) * at(a->statistics, 1, t);
        put(a->dx, t, j, a->dresidual ? at(a->dresidual, t, j) + d : d);
    }
}

ott_status reference_op_layernorm_backward(exec *cx, const layernorm_backward_args *a) {
    (void)cx;
    for (int64_t j = 0; a->dweight && j < a->dy->columns; j++) {
        float s = at(a->dweight, 0, j);
        for (int64_t t = 0; t < a->dy->rows; t++) s = fmaf(at(a->dy, t, j), xhat_at(a, t, j), s);
        put(a->dweight, 0, j, s);
    }
    for (int64_t t = 0; t < a->dy->rows; t++) layernorm_backward_row(a, t);
    reference_quantize_list(a->dx, a->q);
    return OTT_OK;
}

/* ---- rotary positions ---- */

/* Rotates the head that begins at column `first`, in row t. */
static void rope_head(const rope_args *a, int64_t t, int64_t first) {
    int64_t pairs = a->cosine->columns, p = integer_at(a->position, t);
    for (int64_t j = 0; j < pairs; j++) {
        int64_t low = first + (a->interleaved ? 2 * j : j), high = low + (a->interleaved ? 1 : pairs);
        float x0 = at(a->x, t, low), x1 = at(a->x, t, high);
        float c = at(a->cosine, p, j), s = a->inverse ? -at(a->sine, p, j) : at(a->sine, p, j);
        put(a->x, t, low, fmaf(x0, c, -(x1 * s)));
        put(a->x, t, high, fmaf(x1, c, x0 * s));
    }
}

ott_status reference_op_rope(exec *cx, const rope_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->x->rows; t++)
        for (int64_t first = 0; first < a->x->columns; first += a->head_dim)
            rope_head(a, t, first + a->first);
    return OTT_OK;
}

/* ---- the ops join_heads and sum_heads ---- */

/* Returns column j of head h in row t of the output of join_heads. */
static float joined_at(const join_heads_args *a, int64_t t, int64_t h, int64_t j) {
    int64_t behind = j - a->count, tail = a->tail ? a->tail->columns / a->tail_heads : 0;
    if (behind < 0) return at(a->x, t, h * (a->x->columns / a->heads) + a->first + j);
    if (behind >= tail) return 0.0f;
    return at(a->tail, t, (a->tail_heads == 1 ? 0 : h * tail) + behind);
}

ott_status reference_op_join_heads(exec *cx, const join_heads_args *a) {
    int64_t width = a->y->columns / a->heads;
    (void)cx;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t c = 0; c < a->y->columns; c++) put(a->y, t, c, joined_at(a, t, c / width, c % width));
    return OTT_OK;
}

ott_status reference_op_sum_heads(exec *cx, const sum_heads_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            float s = 0;
            for (int64_t h = 0; h < a->heads; h++)
                s = s + at(a->x, t, h * (a->x->columns / a->heads) + a->first + j);
            put(a->y, t, j, s);
        }
    return OTT_OK;
}

/* ---- MLP ---- */

static float sigmoid(float x) {
    return 1.0f / (1.0f + fmath_exp(-x));
}

ott_status reference_op_swiglu_forward(exec *cx, const swiglu_forward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            float gate = at(a->gate, t, j), up = at(a->up, t, j);
            put(a->y, t, j, (gate * sigmoid(gate)) * up);
        }
    reference_quantize_list(a->y, a->q);
    return OTT_OK;
}

ott_status reference_op_swiglu_backward(exec *cx, const swiglu_backward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->dy->rows; t++)
        for (int64_t j = 0; j < a->dy->columns; j++) {
            float dy = at(a->dy, t, j), gate = at(a->gate, t, j), up = at(a->up, t, j), sig = sigmoid(gate);
            float silu = gate * sig;
            put(a->dup, t, j, dy * silu);
            put(a->dgate, t, j, (dy * up) * (sig * fmaf(gate, 1.0f - sig, 1.0f)));
        }
    reference_quantize_list(a->dgate, a->q_gate);
    reference_quantize_list(a->dup, a->q_up);
    return OTT_OK;
}

/* Returns f(x) and stores the derivative. */
static float activated_at(activate_kind kind, float x, float *slope) {
    if (kind == ACTIVATE_RELU) {
        *slope = x <= 0 ? 0 : 1;
        return x <= 0 ? 0 : x;
    }
    if (kind == ACTIVATE_GELU_TANH) {
        float sig = sigmoid(x * fmaf(0.07135481627f, x * x, 1.5957691216f)), g = x * sig;
        *slope = fmaf(g * (1.0f - sig), fmaf(0.21406444881f, x * x, 1.5957691216f), sig);
        return g;
    }
    static const float c[] = {0.127414796f, -0.142248368f, 0.7107068705f, -0.7265760135f, 0.5307027145f};
    float t = 1.0f / fmaf(0.231641888f, fabsf(x), 1.0f), e = fmath_exp(-0.5f * (x * x)), p = c[4];
    for (int i = 3; i >= 0; i--) p = fmaf(p, t, c[i]);
    float share = x < 0 ? (p * t) * e : 1.0f - (p * t) * e;
    *slope = fmaf(x * 0.39894228f, e, share);
    return x * share;
}

ott_status reference_op_activate_forward(exec *cx, const activate_forward_args *a) {
    (void)cx;
    float slope;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            float f = activated_at(a->kind, at(a->gate, t, j), &slope);
            put(a->y, t, j, a->up ? f * at(a->up, t, j) : f);
        }
    reference_quantize_list(a->y, a->q);
    return OTT_OK;
}

ott_status reference_op_activate_backward(exec *cx, const activate_backward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->dy->rows; t++)
        for (int64_t j = 0; j < a->dy->columns; j++) {
            float slope, dy = at(a->dy, t, j), f = activated_at(a->kind, at(a->gate, t, j), &slope);
            float up = a->up ? at(a->up, t, j) : 0;
            if (a->dup) put(a->dup, t, j, dy * f);
            put(a->dgate, t, j, a->up ? (dy * up) * slope : dy * slope);
        }
    reference_quantize_list(a->dgate, a->q_gate);
    if (a->dup) reference_quantize_list(a->dup, a->q_up);
    return OTT_OK;
}

/* ---- loss ---- */

ott_status reference_op_softcap_forward(exec *cx, const softcap_forward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->y->rows; t++)
        for (int64_t j = 0; j < a->y->columns; j++)
            put(a->y, t, j, a->cap * fmath_tanh(at(a->x, t, j) / a->cap));
    return OTT_OK;
}

ott_status reference_op_softcap_backward(exec *cx, const softcap_backward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->dx->rows; t++)
        for (int64_t j = 0; j < a->dx->columns; j++) {
            float r = at(a->y, t, j) / a->cap;
            put(a->dx, t, j, at(a->dy, t, j) * fmaf(-r, r, 1.0f));
        }
    return OTT_OK;
}

static void ignored_row(const cross_entropy_args *a, int64_t t) {
    put(a->loss, 0, t, 0.0f);
    if (a->z) put(a->z, 0, t, 0.0f);
    for (int64_t j = 0; a->grad_scale && j < a->logits->columns; j++) put(a->logits, t, j, 0.0f);
}

/* Finds a row's largest element m and returns the sum of exp(x - m). */
static float sum_row(const tensor *logits, int64_t t, float *m) {
    float lane[16] = {0};
    *m = -INFINITY;
    for (int64_t j = 0; j < logits->columns; j++)
        if (at(logits, t, j) > *m) *m = at(logits, t, j);
    for (int64_t j = 0; j < logits->columns; j++) lane[j % 16] += fmath_exp(at(logits, t, j) - *m);
    return fold16(lane);
}

/* Computes a row's loss and gradient. m: its largest logit; sum: its sum of exp(logit - m). */
static void finish_row(const cross_entropy_args *a, int64_t t, float m, float sum, float at_target,
                       int64_t target) {
    float lse = m + fmath_log(sum), inverse = 1.0f / sum;
    put(a->loss, 0, t, lse - at_target);
    if (a->z) put(a->z, 0, t, lse * lse);
    if (a->z_weight != 0) inverse = inverse * fmaf(2.0f * a->z_weight, lse, 1.0f);
    for (int64_t j = 0; a->grad_scale && j < a->logits->columns; j++) {
        float p = fmath_exp(at(a->logits, t, j) - m) * inverse;
        put(a->logits, t, j, (p - (j == target ? 1.0f : 0.0f)) * at(a->grad_scale, 0, 0));
    }
}

static void cross_entropy_row(const cross_entropy_args *a, int64_t t, int64_t target) {
    float m, sum = sum_row(a->logits, t, &m);
    finish_row(a, t, m, sum, at(a->logits, t, target), target);
}

ott_status reference_op_cross_entropy(exec *cx, const cross_entropy_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->logits->rows; t++) {
        int64_t target = integer_at(a->target, t);
        if (target < 0)
            ignored_row(a, t);
        else
            cross_entropy_row(a, t, target);
    }
    reference_quantize_list(a->logits, a->q);
    return OTT_OK;
}

ott_status reference_op_cross_entropy_part(exec *cx, const cross_entropy_part_args *a) {
    (void)cx;
    int64_t columns = a->logits->columns;
    for (int64_t t = 0; t < a->logits->rows; t++) {
        int64_t target = integer_at(a->target, t) - a->before;
        float m, sum = sum_row(a->logits, t, &m);
        put(a->part, 0, t, m + 0.0f);
        put(a->part, 1, t, sum);
        put(a->part, 2, t, target >= 0 && target < columns ? at(a->logits, t, target) : 0.0f);
    }
    return OTT_OK;
}

static void finish_row_reference(const cross_entropy_finish_args *a, const cross_entropy_args *row, int64_t t,
                                 int64_t target) {
    float m = -INFINITY, sum = 0.0f, at_target = 0.0f;
    for (int64_t r = 0; r < a->parts->rows; r += 3)
        if (at(a->parts, r, t) > m) m = at(a->parts, r, t);
    for (int64_t r = 0; r < a->parts->rows; r += 3) {
        sum = fmaf(at(a->parts, r + 1, t), fmath_exp(at(a->parts, r, t) - m), sum);
        at_target += at(a->parts, r + 2, t);
    }
    finish_row(row, t, m, sum, at_target, target - a->before);
}

ott_status reference_op_cross_entropy_finish(exec *cx, const cross_entropy_finish_args *a) {
    (void)cx;
    const cross_entropy_args row = {.logits = a->logits,
                                    .grad_scale = a->grad_scale,
                                    .loss = a->loss,
                                    .z = a->z,
                                    .z_weight = a->z_weight};
    for (int64_t t = 0; t < a->logits->rows; t++) {
        int64_t target = integer_at(a->target, t);
        if (target < 0)
            ignored_row(&row, t);
        else
            finish_row_reference(a, &row, t, target);
    }
    reference_quantize_list(a->logits, a->q);
    return OTT_OK;
}
