/* cuda/kernels/optimizer: gradient norm and clipping, AdamW with quantization of the new parameters, and the
   amaxes and scales of delayed scaling. */
#include "cuda/kernels/kernels.h"
#include "cuda/list.h"
#include "cuda/kernels/ordered.h"
#include "cuda/rules.h"
#include "cuda/kernels/tile.h"
#include "fp8/history.h"

/* Updates the loss scale of fp16 training after a step (tensor/step_state.h). */
__device__ __forceinline__ void update_loss_scale(float *state, bool finite) {
    if (!finite) state[STEP_LOSS_SCALE] = fmaxf(state[STEP_LOSS_SCALE] * 0.5f, 1.0f);
    float good = finite ? state[STEP_GOOD_STEPS] + 1.0f : 0.0f, doubled = state[STEP_LOSS_SCALE] * 2.0f;
    bool grows = good >= (float)STEP_GROWTH_INTERVAL;
    if (grows && isfinite(doubled)) state[STEP_LOSS_SCALE] = doubled;
    state[STEP_GOOD_STEPS] = grows ? 0.0f : good;
}

/* The grid has one block. All threads load the sums of squares, and the first thread computes. */
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

extern "C" cudaError_t grad_norm_launch(const grad_norm_args *a, cudaStream_t stream) {
    const float *squares = (const float *)a->sum_squares->data;
    float *values = (float *)a->state->data;
    LAUNCH_BLOCKS(grad_norm_kernel, 1, ORDERED_THREADS, stream, squares, a->sum_squares->columns, values,
                  a->max_norm);
    return cudaGetLastError();
}

/* ---- AdamW ---- */

RULE(adamw, 2, STOCHASTIC_SUM, STOCHASTIC_AVERAGE);

static inline update_job<adamw_rule> job_of(const adamw_args &a) {
    return update_job_of<adamw_rule>(a, {a.param, a.grad, a.moment1, a.moment2},
                                     {a.beta1, a.beta2, a.epsilon, a.weight_decay, 0.0f, false});
}

/* Fills the jobs of calls that do not quantize the parameter. */
template <update_formats F> static int64_t fill_adamw(const adamw_args &a, update_job<adamw_rule> &j) {
    return a.q ? 0 : fill_rule<adamw_rule, F>(a, j);
}

/* A job of a call that also quantizes the parameter. */
struct adamw_quantize_job {
    update_job<adamw_rule> update;
    quantize_uses uses;
};

/* Returns a mask: bit k is 1 if tensor k is bf16. The template arguments make some bits constant. */
template <ott_dtype P, update_formats F> __device__ __forceinline__ unsigned narrow_of_job(unsigned narrow) {
    if constexpr (F == ALL_F32) return 0;
    return P == OTT_F32 ? narrow & ~(1u << UPDATE_PARAM) : narrow | 1u << UPDATE_PARAM;
}

/* Updates up to eight rows of eight elements. The rows are in a loop, which needs few registers. */
template <update_formats F>
__device__ __forceinline__ void update_rows(const update_job<adamw_rule> &j, int64_t row, int64_t column,
                                            int64_t left) {
    int rows = left < OWN_ROWS ? (int)left : OWN_ROWS;
    if constexpr (F == ALL_BF16) {
        int64_t columns = j.t[UPDATE_PARAM].columns - column;
        update_groups_bf16(shared_of(j), bf16_place_of(j, row, column), rows, columns < 8 ? (int)columns : 8,
                           0, [&](bf16_place<adamw_rule> &p) {
                               p.index += j.row_step;
#pragma unroll
                               for (int k = 0; k < adamw_rule::tensors; k++) p.at[k] += j.t[k].ld;
                           });
    } else {
#pragma unroll 1
        for (int i = 0; i < rows; i++)
            update_eight(j, narrow_of_job<OTT_BF16, F>(j.narrow), {row + i, column});
    }
}

/* Reads four arrays and writes three. Also writes the codes that need no amax of another tile. New fp32
   parameters stay in registers until the cast, because their memory may be on the host. bf16 parameters need
   too many registers: they are reloaded from the cache. P: the parameter's format. */
template <ott_dtype P, update_formats F>
__global__ void __launch_bounds__(TILE_THREADS, F == ALL_BF16 ? 2 : 1)
    adamw_tile_kernel(GRID_CONSTANT(job_list<adamw_quantize_job>) list) {
    list_place place = list_place_of(list);
    const adamw_quantize_job &job = list.job[place.job];
    const update_job<adamw_rule> &j = job.update;
    const view &param = j.t[UPDATE_PARAM];
    tile_place p = tile_place_of(place.block, param.columns);
    int64_t row = p.first_row + p.row, column = p.first_column + p.column;
    int64_t left = column < param.columns ? param.rows - row : 0;
    bool skips = j.state[STEP_SKIP] != 0.0f;
    if constexpr (P == OTT_F32) {
        held<P> own[OWN_ROWS] = {};
#pragma unroll
        for (int k = 0; k < OWN_ROWS; k++) {
            if (k >= left) continue;
            if (skips)
                own[k] = hold8<P>(param, row + k, column, param.columns);
            else
                own[k] = narrowed<P>(update_eight(j, narrow_of_job<P, F>(j.narrow), {row + k, column}));
        }
        quantize_tile(own, job.uses, p, param.rows, param.columns);
    } else {
        if (!skips) update_rows<F>(j, row, column, left);
        quantize_loaded<P>(param, job.uses, p);
    }
}

/* Returns 0 blocks if this kernel (P, F) is not for the call's formats. */
template <ott_dtype P, update_formats F>
static int64_t fill_adamw_quantize(const adamw_args &a, adamw_quantize_job &j) {
    if (!a.q || a.param->dtype != P) return 0;
    j = {job_of(a), quantize_by_tiles(a.q)};
    return formats_of(j.update) == F ? tile_blocks(a.param->rows, a.param->columns) : 0;
}

/* Sets the amaxes of groups that extend beyond a tile to 0, because atomicMax can only raise them. */
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

/* Describes the second pass over the new parameter: the quantization work that needs the amaxes of all
   tiles. */
template <ott_dtype P> static int64_t fill_rest(const adamw_args &a, pass_job &j) {
    if (!a.q || a.param->dtype != P) return 0;
    j = {view_of(a.param), quantize_after_tiles(a.q)};
    return j.uses.count > 0 ? tile_blocks(a.param->rows, a.param->columns) : 0;
}

/* Launches the calls for which `Fill` returns blocks. */
template <auto Kernel, int Threads, auto Fill>
static cudaError_t launch_those(const adamw_args *items, int64_t count, cudaStream_t stream) {
    return list_launch<Kernel>(Threads, Fill, items, count, stream);
}

template <ott_dtype P, update_formats F>
static cudaError_t launch_quantized(const adamw_args *items, int64_t count, cudaStream_t stream) {
    return launch_those<adamw_tile_kernel<P, F>, TILE_THREADS, fill_adamw_quantize<P, F>>(items, count,
                                                                                          stream);
}

extern "C" cudaError_t adamw_launch(const adamw_args *items, int64_t count, cudaStream_t stream) {
    static cudaError_t (*const launches[])(const adamw_args *, int64_t, cudaStream_t) = {
        launch_those<clear_kernel, ROW_THREADS, fill_clear>,
        launch_those<rule_kernel<adamw_rule, ALL_F32>, ROW_THREADS, fill_adamw<ALL_F32>>,
        launch_those<rule_kernel<adamw_rule, ALL_BF16>, ROW_THREADS, fill_adamw<ALL_BF16>>,
        launch_those<rule_kernel<adamw_rule, ANY_FORMATS>, ROW_THREADS, fill_adamw<ANY_FORMATS>>,
        launch_quantized<OTT_F32, ALL_F32>,
        launch_quantized<OTT_F32, ANY_FORMATS>,
        launch_quantized<OTT_BF16, ALL_BF16>,
        launch_quantized<OTT_BF16, ANY_FORMATS>,
        launch_those<pass_kernel<OTT_F32>, TILE_THREADS, fill_rest<OTT_F32>>,
        launch_those<pass_kernel<OTT_BF16>, TILE_THREADS, fill_rest<OTT_BF16>>};
    cudaError_t status = cudaSuccess;
    for (size_t i = 0; i < sizeof launches / sizeof *launches && status == cudaSuccess; i++)
        status = launches[i](items, count, stream);
    return status;
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

/* Returns to all threads of the warp the largest of `seen` and the amaxes in the history. Ignores NaN. */
__device__ __forceinline__ float largest_of_history(const history_job &j, float seen) {
    float most = seen;
    for (int64_t i = threadIdx.x; i < j.length - 1; i += 32) most = fmaxf(most, j.history[i]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    return most;
}

/* One warp computes history_update (fp8/history.h). All threads read entries before any is overwritten. */
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
