/* cuda/optimizer: the gradient norm with what follows from it, AdamW, and delayed scaling's amax and scales. */
#include "cuda/kernels.h"
#include "cuda/ordered.h"
#include "fp8/history.h"
#include "tensor/step_state.h"
#include "tensor/stochastic.h"

/* fp16's loss scale after a step (tensor/step_state.h). */
__device__ __forceinline__ void update_loss_scale(float *state, bool finite) {
    if (!finite) state[STEP_LOSS_SCALE] = fmaxf(state[STEP_LOSS_SCALE] * 0.5f, 1.0f);
    float good = finite ? state[STEP_GOOD_STEPS] + 1.0f : 0.0f, doubled = state[STEP_LOSS_SCALE] * 2.0f;
    bool grows = good >= (float)STEP_GROWTH_INTERVAL;
    if (grows && isfinite(doubled)) state[STEP_LOSS_SCALE] = doubled;
    state[STEP_GOOD_STEPS] = grows ? 0.0f : good;
}

/* One block; the first thread does it all but fetching. */
__global__ void __launch_bounds__(ORDERED_THREADS)
    grad_norm_kernel(const float *squares, int64_t count, float *state, float max_norm) {
    double total = ordered_sum(squares, 1, count);
    if (threadIdx.x != 0) return;
    float scale = state[STEP_LOSS_SCALE], norm = (float)(sqrt(total) / (double)scale);
    float clip = max_norm > 0.0f ? max_norm / (norm + 1e-6f) : 1.0f;
    bool finite = isfinite(norm) && isfinite(state[STEP_LOSS]);
    state[STEP_GRAD_NORM] = norm;
    state[STEP_CLIP] = (clip < 1.0f ? clip : 1.0f) / scale;
    state[STEP_SKIP] = finite ? 0.0f : 1.0f;
    if (state[STEP_LOSS_SCALING] != 0.0f) update_loss_scale(state, finite);
}

extern "C" cudaError_t grad_norm_launch(const tensor *sum_squares, const tensor *state, float max_norm,
                                        cudaStream_t stream) {
    const float *squares = (const float *)sum_squares->data;
    float *values = (float *)state->data;
    LAUNCH_BLOCKS(grad_norm_kernel, 1, ORDERED_THREADS, stream, squares, sum_squares->columns, values,
                  max_norm);
    return cudaGetLastError();
}

/* ---- AdamW ---- */

struct adamw_job {
    view param, grad, moment1, moment2;
    const float *state;
    float beta2, keep1, keep2, epsilon, weight_decay;
    adamw_draws draws;
};

/* x as D will store it, by number `which` of its draw. */
template <ott_dtype D> __device__ __forceinline__ void round_state(float &x, uint64_t draw, int which) {
    if constexpr (D == OTT_BF16) x = stochastic_bf16(x, draw, which);
}

/* Bytes moved: four arrays read, three written, once. */
template <ott_dtype P, ott_dtype G, ott_dtype M1, ott_dtype M2>
__global__ void __launch_bounds__(ROW_THREADS) adamw_kernel(adamw_job j) {
    row_place at = row_place_of(j.param.columns);
    if (at.column >= j.param.columns || j.state[STEP_SKIP] != 0.0f) return;
    float lr = j.state[STEP_LEARNING_RATE], decay = lr * j.weight_decay,
          step_size = lr / j.state[STEP_CORRECTION1];
    float clip = j.state[STEP_CLIP], correction = j.state[STEP_SQRT_CORRECTION2];
    uint64_t update = step_state_update(j.state);
    uint64_t first = (uint64_t)(j.draws.first + at.row * j.draws.row_step + at.column);
    rng_block block;
    eight p = load8<P>(j.param, at.row, at.column), g = load8<G>(j.grad, at.row, at.column);
    eight m = load8<M1>(j.moment1, at.row, at.column), v = load8<M2>(j.moment2, at.row, at.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float gradient = g.x[i] * clip;
        p.x[i] = p.x[i] - decay * p.x[i];
        m.x[i] = fmaf(gradient - m.x[i], j.keep1, m.x[i]);
        v.x[i] = fmaf(gradient * gradient, j.keep2, v.x[i] * j.beta2);
        p.x[i] = p.x[i] - step_size * (m.x[i] / (sqrtf(v.x[i]) / correction + j.epsilon));
        if constexpr (P == OTT_F32 && M1 == OTT_F32 && M2 == OTT_F32) continue;
        uint64_t index = first + i;
        if (i == 0 || index % 2 == 0) block = stochastic_block(j.draws.seed, update, index);
        uint64_t draw = stochastic_draw(block, index);
        round_state<P>(p.x[i], draw, STOCHASTIC_PARAM);
        round_state<M1>(m.x[i], draw, STOCHASTIC_MOMENT1);
        round_state<M2>(v.x[i], draw, STOCHASTIC_MOMENT2);
    }
    store8<P>(j.param, at.row, at.column, p);
    store8<M1>(j.moment1, at.row, at.column, m);
    store8<M2>(j.moment2, at.row, at.column, v);
}

extern "C" cudaError_t adamw_launch(const tensor *param, const tensor *grad, const tensor *moment1,
                                    const tensor *moment2, const tensor *state, const adamw_rates *rates,
                                    const adamw_draws *draws, cudaStream_t stream) {
    adamw_job j = {view_of(param),
                   view_of(grad),
                   view_of(moment1),
                   view_of(moment2),
                   (const float *)state->data,
                   rates->beta2,
                   1.0f - rates->beta1,
                   1.0f - rates->beta2,
                   rates->epsilon,
                   rates->weight_decay,
                   *draws};
    if (draws->row_step == param->columns) view_flatten(j.param, j.grad, j.moment1, j.moment2);
    int64_t blocks = j.param.rows * view_row_pieces(j.param.columns);
    WITH_STATE(param->dtype, P,
               WITH_STATE(grad->dtype, G,
                          WITH_STATE(moment1->dtype, M1,
                                     WITH_STATE(moment2->dtype, M2,
                                                LAUNCH_BLOCKS((adamw_kernel<P, G, M1, M2>), blocks,
                                                              ROW_THREADS, stream, j)))));
    return cudaGetLastError();
}

/* ---- delayed scaling ---- */

__global__ void amax_record_kernel(const float *amax, float *seen) {
    *seen = history_record(*seen, *amax);
}

extern "C" cudaError_t amax_record_launch(const float *amax, const tensor *seen, cudaStream_t stream) {
    float *to = (float *)seen->data;
    LAUNCH_BLOCKS(amax_record_kernel, 1, 1, stream, amax, to);
    return cudaGetLastError();
}

struct history_job {
    float *seen, *history, *scale;
    int64_t length;
    amax_algorithm algorithm;
    float max;
    int margin;
};

/* The largest of the history with `seen` in its last place, for all threads of the warp; a NaN is passed over. */
__device__ __forceinline__ float largest_of_history(const history_job &j, float seen) {
    float most = seen;
    for (int64_t i = threadIdx.x; i < j.length - 1; i += 32) most = fmaxf(most, j.history[i]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    return most;
}

/* history_update by one warp: barriers part the reading of a place from its writing. */
__global__ void __launch_bounds__(32) amax_update_kernel(history_job j) {
    float seen = *j.seen;
    if (seen == 0.0f) return;
    float amax = j.algorithm == AMAX_MAX ? largest_of_history(j, seen) : seen;
    __syncthreads();
    if (threadIdx.x == 0) {
        *j.scale = history_scale(j.max, j.margin, amax, *j.scale);
        *j.seen = 0.0f;
    }
    for (int64_t first = 0; first < j.length; first += 32) {
        int64_t i = first + threadIdx.x;
        float next = i + 2 < j.length ? j.history[i + 1] : i + 2 == j.length ? seen : 0.0f;
        __syncthreads();
        if (i < j.length) j.history[i] = next;
    }
}

extern "C" cudaError_t amax_update_launch(const tensor *seen, const tensor *history, const tensor *scale,
                                          amax_algorithm algorithm, float max, int margin,
                                          cudaStream_t stream) {
    history_job j = {(float *)seen->data,
                     (float *)history->data,
                     (float *)scale->data,
                     history->columns,
                     algorithm,
                     max,
                     margin};
    LAUNCH_BLOCKS(amax_update_kernel, 1, 32, stream, j);
    return cudaGetLastError();
}
