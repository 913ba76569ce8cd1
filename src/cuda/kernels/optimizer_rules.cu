/* cuda/kernels/optimizer_rules: the update rules of tensor/rules/update.h except AdamW, and the steps of Muon
   before and after its matrix products. Reads each tensor once and writes the changed tensors once. */
#include "cuda/kernels/kernels.h"
#include "cuda/rules.h"

RULE(lion, 1, STOCHASTIC_SUM, STOCHASTIC_AVERAGE);
RULE(sgd, 1, STOCHASTIC_SUM, STOCHASTIC_AVERAGE);
RULE(adam, 2, STOCHASTIC_SUM, STOCHASTIC_AVERAGE);
RULE(schedule_free, 3, STOCHASTIC_NONE, STOCHASTIC_SUM);
/* the rule's parameter is the momentum */
RULE(muon_momentum, 0, STOCHASTIC_AVERAGE, STOCHASTIC_NONE);

static inline update_job<lion_rule> job_of(const lion_args &a) {
    return update_job_of<lion_rule>(a, {a.param, a.grad, a.momentum},
                                    {a.beta1, a.beta2, 0.0f, a.weight_decay, 0.0f, false});
}
static inline update_job<sgd_rule> job_of(const sgd_args &a) {
    return update_job_of<sgd_rule>(a, {a.param, a.grad, a.momentum},
                                   {0.0f, 0.0f, 0.0f, a.weight_decay, a.factor, a.nesterov});
}
static inline update_job<adam_rule> job_of(const adam_args &a) {
    return update_job_of<adam_rule>(a, {a.param, a.grad, a.moment1, a.moment2},
                                    {a.beta1, a.beta2, a.epsilon, a.weight_decay, 0.0f, false});
}
static inline update_job<schedule_free_rule> job_of(const schedule_free_args &a) {
    return update_job_of<schedule_free_rule>(a, {a.param, a.grad, a.z, a.x, a.moment2},
                                             {a.beta1, a.beta2, a.epsilon, a.weight_decay, 0.0f, false});
}
static inline update_job<muon_momentum_rule> job_of(const muon_momentum_args &a) {
    return update_job_of<muon_momentum_rule>(a, {a.momentum, a.grad},
                                             {0.0f, 0.0f, 0.0f, 0.0f, a.factor, false});
}

template <class Rule, update_formats F, class Args>
static cudaError_t launch_formats(const Args *items, int64_t count, cudaStream_t stream) {
    return list_launch<rule_kernel<Rule, F>>(ROW_THREADS, fill_rule<Rule, F, Args>, items, count, stream);
}

template <class Rule, class Args>
static cudaError_t launch_rule(const Args *items, int64_t count, cudaStream_t stream) {
    cudaError_t status = launch_formats<Rule, ALL_F32>(items, count, stream);
    if (status == cudaSuccess) status = launch_formats<Rule, ALL_BF16>(items, count, stream);
    return status == cudaSuccess ? launch_formats<Rule, ANY_FORMATS>(items, count, stream) : status;
}

extern "C" cudaError_t lion_launch(const lion_args *items, int64_t count, cudaStream_t stream) {
    return launch_rule<lion_rule>(items, count, stream);
}
extern "C" cudaError_t sgd_launch(const sgd_args *items, int64_t count, cudaStream_t stream) {
    return launch_rule<sgd_rule>(items, count, stream);
}
extern "C" cudaError_t adam_launch(const adam_args *items, int64_t count, cudaStream_t stream) {
    return launch_rule<adam_rule>(items, count, stream);
}
extern "C" cudaError_t schedule_free_launch(const schedule_free_args *items, int64_t count,
                                            cudaStream_t stream) {
    return launch_rule<schedule_free_rule>(items, count, stream);
}
extern "C" cudaError_t muon_momentum_launch(const muon_momentum_args *a, cudaStream_t stream) {
    return launch_rule<muon_momentum_rule>(a, 1, stream);
}

static inline bool is_narrow(const tensor *t) {
    return t->dtype == OTT_BF16;
}

struct lerp_job {
    view from, to, y;
    bool narrow_from, narrow_to, narrow_y; /* true if the tensor is bf16 */
    float weight;
};

__global__ void __launch_bounds__(ROW_THREADS) lerp_kernel(lerp_job j) {
    row_place p = row_place_of(j.y.columns);
    if (p.column >= j.y.columns) return;
    held<OTT_F32> from = hold8_state(j.from, j.narrow_from, p), to = hold8_state(j.to, j.narrow_to, p);
    eight y;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float a = state_number(from, j.narrow_from, i), b = state_number(to, j.narrow_to, i);
        y.x[i] = fmaf(b - a, j.weight, a);
    }
    store8_state(j.y, j.narrow_y, p, y);
}

extern "C" cudaError_t lerp_launch(const lerp_args *a, cudaStream_t stream) {
    lerp_job j = {view_of(a->from), view_of(a->to),  view_of(a->y), is_narrow(a->from),
                  is_narrow(a->to), is_narrow(a->y), a->weight};
    view_flatten(j.from, j.to, j.y);
    LAUNCH_ROWS(lerp_kernel, j.y.rows, j.y.columns, stream, j);
    return cudaGetLastError();
}

/* ---- Muon ---- */

struct direction_job {
    view momentum, grad, y;
    bool narrow_momentum, narrow_grad, narrow_y; /* true if the tensor is bf16 */
    const float *state;
    float factor;
};

__global__ void __launch_bounds__(ROW_THREADS) muon_direction_kernel(direction_job j) {
    row_place p = row_place_of(j.y.columns);
    if (p.column >= j.y.columns) return;
    held<OTT_F32> momentum = hold8_state(j.momentum, j.narrow_momentum, p),
                  grad = hold8_state(j.grad, j.narrow_grad, p);
    eight y;
#pragma unroll
    for (int i = 0; i < 8; i++)
        y.x[i] = update_muon_direction(state_number(momentum, j.narrow_momentum, i), j.factor,
                                       state_number(grad, j.narrow_grad, i), j.state[STEP_CLIP]);
    store8_state(j.y, j.narrow_y, p, y);
}

extern "C" cudaError_t muon_direction_launch(const muon_direction_args *a, cudaStream_t stream) {
    direction_job j = {view_of(a->momentum),          view_of(a->grad),   view_of(a->y),
                       is_narrow(a->momentum),        is_narrow(a->grad), is_narrow(a->y),
                       (const float *)a->state->data, a->factor};
    view_flatten(j.momentum, j.grad, j.y);
    LAUNCH_ROWS(muon_direction_kernel, j.y.rows, j.y.columns, stream, j);
    return cudaGetLastError();
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS)
    muon_normalize_kernel(view x, bool narrow, const float *sum_squares, view y) {
    row_place p = row_place_of(x.columns);
    if (p.column >= x.columns) return;
    float norm = sqrtf(*sum_squares) + 1e-7f;
    held<OTT_F32> stored = hold8_state(x, narrow, p);
    eight a;
#pragma unroll
    for (int i = 0; i < 8; i++) a.x[i] = state_number(stored, narrow, i) / norm;
    store8<D>(y, p.row, p.column, a);
}

extern "C" cudaError_t muon_normalize_launch(const muon_normalize_args *a, cudaStream_t stream) {
    view x = view_of(a->x), y = view_of(a->y);
    const float *sum_squares = (const float *)a->sum_squares->data;
    view_flatten(x, y);
    WITH_DTYPE(
        a->y->dtype, D,
        LAUNCH_ROWS(muon_normalize_kernel<D>, x.rows, x.columns, stream, x, is_narrow(a->x), sum_squares, y));
    return cudaGetLastError();
}

struct muon_job {
    view param, update;
    bool narrow; /* true if param is bf16 */
    const float *state;
    float scale, weight_decay;
    uint64_t seed;
    int64_t first, row_step;
};

template <ott_dtype D> __global__ void __launch_bounds__(ROW_THREADS) muon_kernel(muon_job j) {
    row_place at = row_place_of(j.param.columns);
    if (at.column >= j.param.columns || j.state[STEP_SKIP] != 0.0f) return;
    float lr = j.state[STEP_LEARNING_RATE], decay = lr * j.weight_decay, size = lr * j.scale;
    uint64_t number = step_state_update(j.state);
    uint64_t index = (uint64_t)(j.first + at.row * j.row_step + at.column);
    stochastic_blocks blocks = {};
    held<OTT_F32> stored = hold8_state(j.param, j.narrow, at);
    eight p, u = load8<D>(j.update, at.row, at.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        p.x[i] = state_number(stored, j.narrow, i);
        p.x[i] = p.x[i] - decay * p.x[i];
        p.x[i] = p.x[i] - size * u.x[i];
        if (j.narrow)
            p.x[i] = stochastic_bf16(p.x[i], stochastic_number(next_words(blocks, j.seed, number, index, i),
                                                               number, index + i, STOCHASTIC_SUM));
    }
    store8_state(j.param, j.narrow, at, p);
}

extern "C" cudaError_t muon_launch(const muon_args *a, cudaStream_t stream) {
    muon_job j = {view_of(a->param),
                  view_of(a->update),
                  is_narrow(a->param),
                  (const float *)a->state->data,
                  a->scale,
                  a->weight_decay,
                  a->seed,
                  a->first,
                  a->row_step};
    if (a->row_step == a->param->columns) view_flatten(j.param, j.update);
    WITH_DTYPE(a->update->dtype, D, LAUNCH_ROWS(muon_kernel<D>, j.param.rows, j.param.columns, stream, j));
    return cudaGetLastError();
}
