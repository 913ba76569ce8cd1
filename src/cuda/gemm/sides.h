/* cuda/gemm/sides: the operands, the result and the groups of a product, as kernels read them. */
#ifndef CUDA_GEMM_SIDES_H
#define CUDA_GEMM_SIDES_H

#include "base/fmath.h"
#include "cuda/gemm/gemm.h"
#include "cuda/view.h"
#include "fp8/narrow.h"
#include <cuda_fp16.h>

/* ---- operands ---- */

struct gemm_side {
    const void *data;
    int64_t mn_stride, k_stride; /* strides in elements */
    const void *scale_inv;
    int64_t block_mn, block_k, mn_step, k_step;
    scale_tiles tiles;
    ott_dtype format;
};

/* Same as granularity_block, which kernels' C++ sources cannot call. */
static scale_block block_of(granularity g) {
    static const scale_block blocks[] = {
#define X(constant, name, mn, k, scale, levels) {(mn) ? (mn) : INT64_MAX, (k) ? (k) : INT64_MAX},
        GRANULARITY_MAP(X)
#undef X
    };
    return blocks[g];
}

static gemm_side side_of(const operand *o) {
    scale_block block = block_of(o->grain);
    return {o->t.data,
            o->transposed ? 1 : o->t.ld,
            o->transposed ? o->t.ld : 1,
            o->scale_inv,
            block.mn,
            block.k,
            o->mn_step,
            o->k_step,
            o->tiles,
            o->t.dtype};
}

__device__ __forceinline__ float scale_at(const gemm_side &s, int64_t mn, int64_t k) {
    if (!s.scale_inv) return 1.0f;
    return scale_inv_at(s.scale_inv, s.mn_step, s.k_step, s.tiles, mn / s.block_mn, k / s.block_k);
}

struct gemm_result {
    void *data;
    int64_t rows, columns, ld;
    const float *bias; /* bias of each column; NULL: no bias */
    ott_dtype format;
    bool accumulate;
};

static gemm_result result_of(const tensor *c, const tensor *bias, bool accumulate) {
    const float *added = bias ? (const float *)bias->data : nullptr;
    return {c->data, c->rows, c->columns, c->ld, added, c->dtype, accumulate};
}

__device__ __forceinline__ float load_result(const gemm_result &c, int64_t at) {
    if (c.format == OTT_F32) return ((const float *)c.data)[at];
    if (c.format == OTT_BF16) return cast_from_bf16(((const uint16_t *)c.data)[at]);
    return __half2float(((const __half *)c.data)[at]);
}

/* Stores element (i, j) of c: the scaled sum `value`, plus the bias and the old c if used. */
__device__ __forceinline__ void store_result(const gemm_result &c, int64_t i, int64_t j, float value) {
    int64_t at = i * c.ld + j;
    if (c.bias) value += c.bias[j];
    if (c.accumulate) value += load_result(c, at);
    if (c.format == OTT_F32)
        ((float *)c.data)[at] = value;
    else if (c.format == OTT_BF16)
        ((uint16_t *)c.data)[at] = cast_to_bf16(value);
    else
        ((__half *)c.data)[at] = __float2half_rn(value);
}

/* ---- the product ---- */

struct gemm_job {
    gemm_side a, b;
    gemm_result c;
    int64_t k;
    scale_order order;
};

/* ---- groups ---- */

struct grouped_job {
    gemm_job product;
    const int32_t *end, *all; /* all: see grouped_gemm_weight_args; NULL: gradients are not balanced */
    int64_t groups;
    int64_t all_step, all_parts, all_groups, all_first;
    int64_t each; /* rows of one expert in the expert weights */
    bool deep;
};

__device__ __forceinline__ int64_t first_of(const grouped_job &j, int64_t group) {
    return group > 0 ? j.end[group - 1] : 0;
}

__device__ __forceinline__ float balance_of(const grouped_job &j, int64_t group) {
    return route_balance_factor(j.all, j.all_step, j.all_parts, j.all_groups, j.all_first + group);
}

/* Returns the operand that one group multiplies, as operand_group does (tensor/operand.h). first: where the
   group begins in the dimension that is divided into groups. */
__device__ __forceinline__ gemm_side side_of_group(gemm_side s, bool deep, int64_t group, int64_t first) {
    int64_t size = s.format == OTT_F32 ? 4 : s.format == OTT_BF16 || s.format == OTT_F16 ? 2 : 1;
    int64_t block = qtensor_group_block(group, first, deep ? s.block_k : s.block_mn);
    s.data = (const char *)s.data + first * (deep ? s.k_stride : s.mn_stride) * size;
    if (s.scale_inv)
        s.scale_inv =
            scale_inv_view(s.scale_inv, s.mn_step, s.k_step, &s.tiles, deep ? 0 : block, deep ? block : 0);
    return s;
}

/* The product of grouped_gemm. deep: see gemm_grouped_launch. */
static grouped_job grouped_job_of(const grouped_gemm_args *a, bool deep) {
    grouped_job j = {};
    j.product = {side_of(a->a), side_of(a->b), result_of(a->c, nullptr, a->accumulate), operand_k(a->a),
                 a->spec.order};
    j.end = (const int32_t *)a->end->data;
    j.groups = a->end->columns;
    j.each = deep ? j.product.k : a->c->columns;
    j.deep = deep;
    return j;
}

/* The product of grouped_gemm_weight. */
static grouped_job weight_job_of(const grouped_gemm_weight_args *a) {
    grouped_job j = {};
    j.product = {side_of(a->a), side_of(a->b), result_of(a->c, nullptr, true), operand_k(a->a),
                 a->spec.order};
    j.end = (const int32_t *)a->end->data;
    j.groups = a->end->columns;
    j.each = operand_mn(a->a);
    if (a->all) {
        j.all = (const int32_t *)a->all->data;
        j.all_step = a->all->ld;
        j.all_parts = a->all->rows;
        j.all_groups = a->all->columns;
        j.all_first = a->first;
    }
    return j;
}

#endif
