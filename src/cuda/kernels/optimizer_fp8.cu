/* cuda/kernels/optimizer_fp8: AdamW with FP8 moments (tensor/rules/moment.h). Each half warp has one group of
   elements that share scales. Each thread has eight of these elements. */
#include "cuda/kernels/codes.h"
#include "cuda/kernels/kernels.h"
#include "cuda/rules.h"
#include "tensor/rules/moment.h"

/* One FP8 moment of a parameter: codes, and the scales of groups of elements. */
struct moment_view {
    uint8_t *codes;
    float *group_scales;
    int64_t columns, ld, group_scales_ld;
    bool vectors; /* each row of codes is 8-byte aligned */
};

static inline moment_view moment_view_of(const tensor *codes, const tensor *group_scales) {
    return {(uint8_t *)codes->data, (float *)group_scales->data,
            codes->columns,         codes->ld,
            group_scales->ld,       view_is_aligned(codes->data, codes->rows == 1 ? 0 : codes->ld, 8)};
}

__device__ __forceinline__ float *group_scales_at(const moment_view &v, const row_place &at) {
    return v.group_scales + at.row * v.group_scales_ld + at.column / MOMENT_GROUP * MOMENT_SCALES;
}

/* moment_log_ratio of each code without sign. */
struct code_table {
    float log_ratio[128];
};

/* Loads the codes of eight elements of a moment: 0 beyond the row's end. */
__device__ __forceinline__ uint2 load_codes(const moment_view &v, const row_place &at) {
    const uint8_t *from = v.codes + at.row * v.ld + at.column;
    uint2 codes = make_uint2(0, 0);
    if (v.vectors && at.column + 8 <= v.columns) return *(const uint2 *)from;
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (at.column + i < v.columns) (i < 4 ? codes.x : codes.y) |= (uint32_t)from[i] << i % 4 * 8;
    return codes;
}

/* Decodes eight elements of a moment; elements beyond the row's end are 0. */
__device__ __forceinline__ eight decode_moment(const moment_view &v, const row_place &at, uint2 codes,
                                               const code_table &table) {
    eight e = eight_of(0.0f);
    if (at.column >= v.columns) return e;
    const float *group_scales = group_scales_at(v, at);
    float largest = group_scales[0], power = group_scales[1];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint8_t code = (uint8_t)((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
        e.x[i] = moment_decode_ratio(code, table.log_ratio[code & 0x7f], largest, power);
    }
    return e;
}

/* The largest magnitude of a group, and the smallest that is at least FLT_MIN, as bits. */
struct moment_range {
    uint32_t largest, smallest;
};

/* Finds the range of a half warp's group; each thread passes eight elements. */
__device__ __forceinline__ moment_range range_of_group(const eight &e) {
    uint32_t largest = 0, smallest = 0x7f7fffff;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t magnitude = fmath_bits(e.x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
        smallest = magnitude >= 0x00800000u && magnitude < smallest ? magnitude : smallest;
    }
#pragma unroll
    for (int step = 8; step > 0; step /= 2) {
        uint32_t more = __shfl_xor_sync(0xffffffffu, largest, step),
                 less = __shfl_xor_sync(0xffffffffu, smallest, step);
        largest = more > largest ? more : largest;
        smallest = less < smallest ? less : smallest;
    }
    return {largest, smallest};
}

/* Returns x of the thread of the group's other half. */
__device__ __forceinline__ float of_other(float x) {
    return __shfl_xor_sync(0xffffffffu, x, 8);
}

/* Computes the scales of both moments of a group. One half of the threads computes the scales of moment 1,
   the other half the scales of moment 2. */
__device__ __forceinline__ void scales_of_group(const eight &m, const eight &v, moment_scale &of_m,
                                                moment_scale &of_v) {
    moment_range first = range_of_group(m), second = range_of_group(v);
    bool is_second = threadIdx.x & 8;
    uint32_t largest = is_second ? second.largest : first.largest,
             smallest = is_second ? second.smallest : first.smallest;
    moment_scale own = moment_scale_of(fmath_from_bits(largest), fmath_from_bits(smallest));
    moment_scale other = {of_other(own.largest), of_other(own.power), of_other(own.log_largest),
                          of_other(own.expansion)};
    of_m = is_second ? other : own;
    of_v = is_second ? own : other;
}

__device__ __forceinline__ void store_moment(const moment_view &v, const row_place &at, const eight &e,
                                             const moment_scale &s) {
    uint8_t *to = v.codes + at.row * v.ld + at.column;
    int64_t left = v.columns - at.column;
    if (left <= 0) return;
    eight y;
#pragma unroll
    for (int i = 0; i < 8; i++)
        y.x[i] = moment_has_scales(s.largest) ? moment_expanded(e.x[i], &s) : s.largest == 0.0f ? 0.0f : NAN;
    store_codes8(to, codes8(y, OTT_E4M3, CAST_SATURATE), left, v.vectors && left >= 8);
    if (at.column % MOMENT_GROUP != 0) return;
    float *group_scales = group_scales_at(v, at);
    group_scales[0] = s.largest;
    group_scales[1] = s.power;
}

struct adamw_fp8_job {
    view param, grad;
    bool narrow_param, narrow_grad; /* true if the tensor is bf16 */
    moment_view moment1, moment2;
    const float *state;
    update_options o;
    uint64_t seed;
    int64_t first, row_step;
};

/* Computes number STOCHASTIC_SUM of the draws of eight elements. Aligned: index is a multiple of 8. */
template <bool Aligned>
__device__ __forceinline__ void sum_numbers(uint64_t seed, uint64_t update, uint64_t index,
                                            uint32_t (&number)[8]) {
    stochastic_blocks blocks = {};
    if (Aligned) blocks = stochastic_blocks_of(seed, update, index);
#pragma unroll
    for (int i = 0; i < 8; i++)
        number[i] = Aligned ? stochastic_number(stochastic_words_in(&blocks, i), update, i, STOCHASTIC_SUM)
                            : stochastic_number(next_words(blocks, seed, update, index, i), update, index + i,
                                                STOCHASTIC_SUM);
}

/* Reads the parameter, the gradient and two bytes of codes per element. Writes all of them except the
   gradient. Threads beyond the row compute with zeros. F: the formats of the parameter and the gradient. */
template <update_formats F>
__global__ void __launch_bounds__(ROW_THREADS) adamw_fp8_kernel(GRID_CONSTANT(job_list<adamw_fp8_job>) list) {
    SHARED(table, code_table);
    list_place place = list_place_of(list);
    const adamw_fp8_job &j = list.job[place.job];
    const bool narrow_param = F != ALL_F32 && (F == ALL_BF16 || j.narrow_param),
               narrow_grad = F != ALL_F32 && (F == ALL_BF16 || j.narrow_grad);
    row_place at = row_place_of(place.block, j.param.columns);
    if (j.state[STEP_SKIP] != 0.0f) return;
    update_constants c = update_constants_of(&j.o, j.state);
    uint64_t update = step_state_update(j.state);
    uint64_t index = (uint64_t)(j.first + at.row * j.row_step + at.column);
    held<OTT_F32> p = hold8_state(j.param, narrow_param, at), g = hold8_state(j.grad, narrow_grad, at);
    uint2 codes1 = load_codes(j.moment1, at), codes2 = load_codes(j.moment2, at);
    uint32_t rounding[8];
    if (threadIdx.x < 128) table.log_ratio[threadIdx.x] = moment_log_ratio((uint8_t)threadIdx.x);
    if (narrow_param) sum_numbers<F == ALL_BF16>(j.seed, update, index, rounding);
    __syncthreads();
    eight made, m = decode_moment(j.moment1, at, codes1, table),
                v = decode_moment(j.moment2, at, codes2, table);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        update_element e = {
            state_number(p, narrow_param, i), state_number(g, narrow_grad, i), {m.x[i], v.x[i]}};
        update_adamw(&c, &e);
        made.x[i] = narrow_param ? stochastic_bf16(e.p, rounding[i]) : e.p;
        m.x[i] = e.slot[0];
        v.x[i] = e.slot[1];
    }
    moment_scale scale1, scale2;
    scales_of_group(m, v, scale1, scale2);
    /* all threads of a group read its scales before one of them overwrites the scales */
    __syncthreads();
    store8_state(j.param, narrow_param, at, made);
    store_moment(j.moment1, at, m, scale1);
    store_moment(j.moment2, at, v, scale2);
}

/* Fills the job of a call. Returns 0 blocks if its formats are not F. */
template <update_formats F> static int64_t fill_adamw_fp8(const adamw_fp8_args &a, adamw_fp8_job &j) {
    const bool narrow_param = a.param->dtype == OTT_BF16, narrow_grad = a.grad->dtype == OTT_BF16;
    const bool aligned = a.first % 8 == 0 && a.row_step % 8 == 0;
    const update_formats formats = !narrow_param && !narrow_grad            ? ALL_F32
                                   : narrow_param && narrow_grad && aligned ? ALL_BF16
                                                                            : ANY_FORMATS;
    if (formats != F) return 0;
    j = {view_of(a.param),
         view_of(a.grad),
         narrow_param,
         narrow_grad,
         moment_view_of(a.moment1, a.group_scales1),
         moment_view_of(a.moment2, a.group_scales2),
         (const float *)a.state->data,
         {a.beta1, a.beta2, a.epsilon, a.weight_decay, 0.0f, false},
         a.seed,
         a.first,
         a.row_step};
    return j.param.rows * view_row_pieces(j.param.columns);
}

template <update_formats F>
static cudaError_t launch_formats(const adamw_fp8_args *items, int64_t count, cudaStream_t stream) {
    return list_launch<adamw_fp8_kernel<F>>(ROW_THREADS, fill_adamw_fp8<F>, items, count, stream);
}

extern "C" cudaError_t adamw_fp8_launch(const adamw_fp8_args *items, int64_t count, cudaStream_t stream) {
    cudaError_t status = launch_formats<ALL_F32>(items, count, stream);
    if (status == cudaSuccess) status = launch_formats<ALL_BF16>(items, count, stream);
    return status == cudaSuccess ? launch_formats<ANY_FORMATS>(items, count, stream) : status;
}
