/* cuda/optimizer: the gradient norm with what follows from it, AdamW with the FP8 form of what it makes, and delayed scaling's amax and scales. */
#include "cuda/kernels.h"
#include "cuda/list.h"
#include "cuda/ordered.h"
#include "cuda/tile.h"
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
    uint64_t seed;
    int64_t first, row_step;
};

/* x as D will store it, by number `which` of its draw. */
template <ott_dtype D> __device__ __forceinline__ void round_state(float &x, uint64_t draw, int which) {
    if constexpr (D == OTT_BF16) x = stochastic_bf16(x, draw, which);
}

/* Eight neighbours; their new values as they are stored. */
template <ott_dtype P, ott_dtype G, ott_dtype M1, ott_dtype M2>
__device__ __forceinline__ held<P> update_eight(const adamw_job &j, const row_place &at) {
    float lr = j.state[STEP_LEARNING_RATE], decay = lr * j.weight_decay,
          step_size = lr / j.state[STEP_CORRECTION1];
    float clip = j.state[STEP_CLIP], correction = j.state[STEP_SQRT_CORRECTION2];
    uint64_t update = step_state_update(j.state);
    uint64_t first = (uint64_t)(j.first + at.row * j.row_step + at.column);
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
        if (i == 0 || index % 2 == 0) block = stochastic_block(j.seed, update, index);
        uint64_t draw = stochastic_draw(block, index);
        round_state<P>(p.x[i], draw, STOCHASTIC_PARAM);
        round_state<M1>(m.x[i], draw, STOCHASTIC_MOMENT1);
        round_state<M2>(v.x[i], draw, STOCHASTIC_MOMENT2);
    }
    store8<M1>(j.moment1, at.row, at.column, m);
    store8<M2>(j.moment2, at.row, at.column, v);
    held<P> made = narrowed<P>(p);
    store8<P>(j.param, at.row, at.column, j.param.columns, made);
    return made;
}

/* Bytes moved: four arrays read, three written, once. */
template <ott_dtype P, ott_dtype G, ott_dtype M1, ott_dtype M2>
__global__ void __launch_bounds__(ROW_THREADS) adamw_kernel(GRID_CONSTANT(job_list<adamw_job>) list) {
    list_place place = list_place_of(list);
    const adamw_job &j = list.job[place.job];
    row_place at = row_place_of(place.block, j.param.columns);
    if (at.column < j.param.columns && j.state[STEP_SKIP] == 0.0f) update_eight<P, G, M1, M2>(j, at);
}

/* With a form of the parameter. */
struct adamw_form_job {
    adamw_job update;
    quantize_uses uses;
};

/* Bytes moved: the same, and the codes of what does not wait for an amax beyond the tile. What is fp32, which may lie in the
   host's memory, stays in registers until it is cast; what is narrow, for whose updates there is no room beside it, comes
   back from the cache. */
template <ott_dtype P, ott_dtype G, ott_dtype M1, ott_dtype M2>
__global__ void __launch_bounds__(TILE_THREADS, P == OTT_F32 ? 1 : 2)
    adamw_tile_kernel(GRID_CONSTANT(job_list<adamw_form_job>) list) {
    list_place place = list_place_of(list);
    const adamw_job &j = list.job[place.job].update;
    tile_place p = tile_place_of(place.block, j.param.columns);
    int64_t row = p.first_row + p.row, column = p.first_column + p.column;
    int64_t left = column < j.param.columns ? j.param.rows - row : 0;
    bool skips = j.state[STEP_SKIP] != 0.0f;
    if constexpr (P == OTT_F32) {
        held<P> own[OWN_ROWS] = {};
#pragma unroll
        for (int k = 0; k < OWN_ROWS; k++) {
            if (k >= left) continue;
            if (skips)
                own[k] = hold8<P>(j.param, row + k, column, j.param.columns);
            else
                own[k] = update_eight<P, G, M1, M2>(j, {row + k, column});
        }
        quantize_tile(own, list.job[place.job].uses, p, j.param.rows, j.param.columns);
    } else {
#pragma unroll 1
        for (int k = 0; k < OWN_ROWS; k++)
            if (k < left && !skips) update_eight<P, G, M1, M2>(j, {row + k, column});
        list_place again = list_place_of(list, block_again());
        const adamw_form_job &same = list.job[again.job];
        quantize_loaded<P>(same.update.param, same.uses,
                           tile_place_of(again.block, same.update.param.columns));
    }
}

/* What the uses of a form have of groups that reach beyond a tile is raised from 0. */
struct clear_job {
    float *amax[2];
    int64_t groups[2];
};
__global__ void __launch_bounds__(ROW_THREADS) clear_kernel(GRID_CONSTANT(job_list<clear_job>) list) {
    list_place place = list_place_of(list);
    const clear_job &j = list.job[place.job];
    int64_t group = place.block * ROW_THREADS + threadIdx.x;
    for (int i = 0; i < 2; i++)
        if (group < j.groups[i]) j.amax[i][group] = 0.0f;
}

/* Moments of two formats in one call are for tests: no kernel takes them with a form. */
static inline bool makes_form(const adamw_args &a) {
    return a.q && a.moment1->dtype == a.moment2->dtype;
}

static int64_t fill_clear(const adamw_args &a, clear_job &j) {
    int64_t most = 0;
    j = {};
    if (!a.q) return 0;
    quantize_uses uses = quantize_by_tiles(a.q);
    for (int i = 0; i < uses.count; i++) {
        const quantize_use &u = uses.use[i];
        if (quantize_is_local(&u)) continue;
        j.amax[i] = u.amax;
        j.groups[i] = u.groups;
        if (u.groups > most) most = u.groups;
    }
    return (most + ROW_THREADS - 1) / ROW_THREADS;
}

/* Of a parameter that is in memory: the form of one that no kernel takes with it; what had to wait for an amax. */
template <ott_dtype P> static int64_t fill_form(const adamw_args &a, pass_job &j) {
    if (!a.q || makes_form(a) || a.param->dtype != P) return 0;
    j = {view_of(a.param), quantize_by_tiles(a.q)};
    return tile_blocks(a.param->rows, a.param->columns);
}
template <ott_dtype P> static int64_t fill_rest(const adamw_args &a, pass_job &j) {
    if (!a.q || a.param->dtype != P) return 0;
    j = {view_of(a.param), quantize_after_tiles(a.q)};
    return j.uses.count > 0 ? tile_blocks(a.param->rows, a.param->columns) : 0;
}
template <ott_dtype P>
static cudaError_t launch_passes(const adamw_args *items, int64_t count, cudaStream_t stream) {
    cudaError_t status = list_launch<pass_kernel<P>>(TILE_THREADS, fill_form<P>, items, count, stream);
    return status == cudaSuccess
               ? list_launch<pass_kernel<P>>(TILE_THREADS, fill_rest<P>, items, count, stream)
               : status;
}

template <ott_dtype P, ott_dtype G, ott_dtype M1, ott_dtype M2>
static inline bool has_formats(const adamw_args &a) {
    return a.param->dtype == P && a.grad->dtype == G && a.moment1->dtype == M1 && a.moment2->dtype == M2;
}

static inline adamw_job job_of(const adamw_args &a) {
    return {view_of(a.param),
            view_of(a.grad),
            view_of(a.moment1),
            view_of(a.moment2),
            (const float *)a.state->data,
            a.beta2,
            1.0f - a.beta1,
            1.0f - a.beta2,
            a.epsilon,
            a.weight_decay,
            a.seed,
            a.first,
            a.row_step};
}

/* No blocks for a call in other formats, which another launch is for. */
template <ott_dtype P, ott_dtype G, ott_dtype M1, ott_dtype M2>
static int64_t fill_adamw(const adamw_args &a, adamw_job &j) {
    if (!has_formats<P, G, M1, M2>(a) || makes_form(a)) return 0;
    j = job_of(a);
    if (a.row_step == a.param->columns) view_flatten(j.param, j.grad, j.moment1, j.moment2);
    return j.param.rows * view_row_pieces(j.param.columns);
}

template <ott_dtype P, ott_dtype G, ott_dtype M>
static int64_t fill_adamw_form(const adamw_args &a, adamw_form_job &j) {
    if (!has_formats<P, G, M, M>(a) || !makes_form(a)) return 0;
    j = {job_of(a), quantize_by_tiles(a.q)};
    return tile_blocks(a.param->rows, a.param->columns);
}

static inline bool has_formats_of(const adamw_args &a, const adamw_args &b) {
    return a.param->dtype == b.param->dtype && a.grad->dtype == b.grad->dtype &&
           a.moment1->dtype == b.moment1->dtype && a.moment2->dtype == b.moment2->dtype;
}

/* The calls with these formats. */
template <ott_dtype P, ott_dtype G, ott_dtype M1, ott_dtype M2>
static cudaError_t launch_adamw(const adamw_args *items, int64_t count, cudaStream_t stream) {
    cudaError_t status =
        list_launch<adamw_kernel<P, G, M1, M2>>(ROW_THREADS, fill_adamw<P, G, M1, M2>, items, count, stream);
    if constexpr (M1 == M2)
        if (status == cudaSuccess)
            status = list_launch<adamw_tile_kernel<P, G, M1, M1>>(TILE_THREADS, fill_adamw_form<P, G, M1>,
                                                                  items, count, stream);
    return status;
}

/* A launch of the list for each combination of formats that is in it: matrices' and vectors' differ. */
extern "C" cudaError_t adamw_launch(const adamw_args *items, int64_t count, cudaStream_t stream) {
    cudaError_t status = list_launch<clear_kernel>(ROW_THREADS, fill_clear, items, count, stream);
    for (int64_t i = 0; i < count && status == cudaSuccess; i++) {
        int64_t before = 0;
        while (!has_formats_of(items[before], items[i])) before++;
        if (before < i) continue;
        WITH_STATE(
            items[i].param->dtype, P,
            WITH_STATE(items[i].grad->dtype, G,
                       WITH_STATE(items[i].moment1->dtype, M1,
                                  WITH_STATE(items[i].moment2->dtype, M2,
                                             status = launch_adamw<P, G, M1, M2>(items, count, stream)))));
    }
    if (status == cudaSuccess) status = launch_passes<OTT_F32>(items, count, stream);
    return status == cudaSuccess ? launch_passes<OTT_BF16>(items, count, stream) : status;
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
__global__ void __launch_bounds__(32) amax_update_kernel(GRID_CONSTANT(job_list<history_job>) list) {
    const history_job &j = list.job[list_place_of(list).job];
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

static int64_t fill_history(const amax_update_args &a, history_job &j) {
    j = {
        (float *)a.seen->data, (float *)a.amax_history->data, (float *)a.scale->data, a.amax_history->columns,
        a.spec.algorithm,      dtype_max(a.spec.format),      a.spec.scale.margin};
    return 1;
}

extern "C" cudaError_t amax_update_launch(const amax_update_args *items, int64_t count, cudaStream_t stream) {
    return list_launch<amax_update_kernel>(32, fill_history, items, count, stream);
}
