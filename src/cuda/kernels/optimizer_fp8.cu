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

/* Loads eight elements of a moment; elements beyond the row's end are 0. */
__device__ __forceinline__ eight load_moment(const moment_view &v, const row_place &at) {
    const uint8_t *from = v.codes + at.row * v.ld + at.column;
    eight e = eight_of(0.0f);
    uint2 codes = make_uint2(0, 0);
    if (at.column >= v.columns) return e;
    if (v.vectors && at.column + 8 <= v.columns) {
        codes = *(const uint2 *)from;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (at.column + i < v.columns) (i < 4 ? codes.x : codes.y) |= (uint32_t)from[i] << i % 4 * 8;
    }
    const float *group_scales = group_scales_at(v, at);
    float largest = group_scales[0], power = group_scales[1];
#pragma unroll
    for (int i = 0; i < 8; i++)
        e.x[i] = moment_decode((uint8_t)((i < 4 ? codes.x : codes.y) >> i % 4 * 8), largest, power);
    return e;
}

/* Computes the scales of a half warp's group; each thread passes eight elements. */
__device__ __forceinline__ moment_scale scale_of_group(const eight &e) {
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
    return moment_scale_of(fmath_from_bits(largest), fmath_from_bits(smallest));
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

/* Reads the parameter, the gradient and two bytes of codes per element. Writes all of them except the
   gradient. Threads beyond the row compute with zeros. Mixed: the parameter or the gradient is bf16. */
template <bool Mixed>
__global__ void __launch_bounds__(ROW_THREADS) adamw_fp8_kernel(GRID_CONSTANT(job_list<adamw_fp8_job>) list) {
    list_place place = list_place_of(list);
    const adamw_fp8_job &j = list.job[place.job];
    const bool narrow_param = Mixed && j.narrow_param, narrow_grad = Mixed && j.narrow_grad;
    row_place at = row_place_of(place.block, j.param.columns);
    if (j.state[STEP_SKIP] != 0.0f) return;
    update_constants c = update_constants_of(&j.o, j.state);
    uint64_t update = step_state_update(j.state);
    uint64_t index = (uint64_t)(j.first + at.row * j.row_step + at.column);
    stochastic_blocks blocks = {};
    held<OTT_F32> p = hold8_state(j.param, narrow_param, at), g = hold8_state(j.grad, narrow_grad, at);
    eight made, m = load_moment(j.moment1, at), v = load_moment(j.moment2, at);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        update_element e = {
            state_number(p, narrow_param, i), state_number(g, narrow_grad, i), {m.x[i], v.x[i]}};
        update_adamw(&c, &e);
        made.x[i] = e.p;
        m.x[i] = e.slot[0];
        v.x[i] = e.slot[1];
        if (narrow_param)
            made.x[i] = stochastic_bf16(e.p, stochastic_number(next_words(blocks, j.seed, update, index, i),
                                                               update, index + i, STOCHASTIC_SUM));
    }
    moment_scale scale1 = scale_of_group(m), scale2 = scale_of_group(v);
    /* all threads of a group read its scales before one of them overwrites the scales */
    __syncthreads();
    store8_state(j.param, narrow_param, at, made);
    store_moment(j.moment1, at, m, scale1);
    store_moment(j.moment2, at, v, scale2);
}

/* Fills the job of a call. Returns 0 blocks if `Mixed` is wrong: true means that param or grad is bf16. */
template <bool Mixed> static int64_t fill_adamw_fp8(const adamw_fp8_args &a, adamw_fp8_job &j) {
    const bool narrow_param = a.param->dtype == OTT_BF16, narrow_grad = a.grad->dtype == OTT_BF16;
    if ((narrow_param || narrow_grad) != Mixed) return 0;
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

extern "C" cudaError_t adamw_fp8_launch(const adamw_fp8_args *items, int64_t count, cudaStream_t stream) {
    cudaError_t status =
        list_launch<adamw_fp8_kernel<false>>(ROW_THREADS, fill_adamw_fp8<false>, items, count, stream);
    return status == cudaSuccess
               ? list_launch<adamw_fp8_kernel<true>>(ROW_THREADS, fill_adamw_fp8<true>, items, count, stream)
               : status;
}
