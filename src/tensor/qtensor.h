/*
 * tensor/qtensor: a quantized tensor: FP8 codes and scales for two uses (fp8/recipe.h): rowwise, contracted
 * along its rows, and columnwise, contracted along its columns. qtensor_lay_out decides the layout: where
 * codes, amax and scales are stored, if columnwise codes are transposed, and what is shared.
 */
#ifndef TENSOR_QTENSOR_H
#define TENSOR_QTENSOR_H

#include "base/anywhere.h"
#include "fp8/recipe.h"
#include "tensor/backend.h"
#include "tensor/tensor.h"

/* One use of a quantized tensor, as a GEMM operand mn x k (fp8/granularity.h): rows x columns for the rowwise
   use, columns x rows for the columnwise use. The arrays amax, scale and scale_inv have an entry for each
   scale block. With block = granularity_block, element (mn, k) has entry mn / block.mn * mn_step + k /
   block.k * k_step. All pointers are NULL if this use is in high precision. */
typedef struct qdata {
    void *data; /* codes: row i, column j is at i * ld + j, or at j * ld + i if transposed */
    /* stride of rows, or of columns if transposed; in a view, the full tensor's stride */
    int64_t ld;
    bool transposed;  /* columnwise only: the codes of a column are contiguous */
    float *amax;      /* largest magnitude of each block */
    float *scale;     /* factor of values before the cast to FP8 */
    float *scale_inv; /* 1/scale, the factor of decoded values */
    int64_t mn_step, k_step;
    const float *next; /* AMAX_DELAYED: `quantize` first copies next[0] to scale[0], unless `next` is NULL */
} qdata;

/* A quantized tensor with both uses. Owns nothing. A shared array has one address in both uses. */
typedef struct qtensor {
    int64_t rows, columns;
    /* number of groups of rows; each group's scale blocks begin with its first row; 0: not grouped */
    int64_t groups;
    quant_spec spec;
    qdata rowwise, columnwise;
} qtensor;

typedef struct qblock {
    void *data; /* aligned for the backend; NULL: qtensor_lay_out sets only `bytes` */
    int64_t bytes;
} qblock;
/* The memory of both uses. Arrays that the uses share are in the columnwise block, which backward needs. */
typedef struct qblocks {
    qblock rowwise, columnwise;
} qblocks;

/* Sets q's pointers into the two blocks, and the `bytes` of the blocks. The caller has set q's rows, columns,
   groups and spec. Call the function first with data NULL to get the bytes, then with the allocated blocks.
   The uses share scales if each element has the same scale in both (quant_spec_shares_scales). They then also
   share codes, except on backends with contiguous_contraction, where columnwise codes are transposed.
   OTT_ERR_SHAPE for invalid sizes. */
ott_status qtensor_lay_out(qtensor *q, const backend_capabilities *can, qblocks *blocks);

/* Returns the index of the first scale block (of `block` rows) of group `group`, which begins with row
   `first` of the tensor. Blocks are counted over all groups; a group's blocks are consecutive. The formula
   needs no sizes of earlier groups: it may skip indices, but the blocks of two groups are always distinct. */
ANYWHERE int64_t qtensor_group_block(int64_t group, int64_t first, int64_t block) {
    return block == 1 ? first : first / block + group;
}
/* Returns a view of group `group`, rows [first, first + count) of q. */
qtensor qtensor_group(const qtensor *q, int64_t group, int64_t first, int64_t count);

/* Sets mn_step and k_step of a use: entries are [block along K][block along MN]. */
static inline void qtensor_order(qdata *d, granularity g, int64_t mn) {
    d->mn_step = 1;
    d->k_step = granularity_mn_groups(g, mn);
}
/* Sets mn_step and k_step of a use of q, which may have groups. Returns the number of entries. */
int64_t qtensor_order_use(qdata *d, const qtensor *q, bool columnwise);
/* Returns the columnwise use that shares this rowwise use's codes and scales: MN and K are swapped. */
static inline qdata qtensor_shared_use(qdata rowwise) {
    int64_t mn_step = rowwise.mn_step;
    rowwise.mn_step = rowwise.k_step;
    rowwise.k_step = mn_step;
    return rowwise;
}
/* Returns the index in d->data of the code of row i, column j. */
static inline int64_t qtensor_index(const qdata *d, int64_t i, int64_t j) {
    return d->transposed ? j * d->ld + i : i * d->ld + j;
}

/* True if both uses are FP8 and share scales. qtensor_shares_codes: true if they also share codes. */
static inline bool qtensor_shares_scales(const qtensor *q) {
    return cast_spec_is_fp8(&q->spec.rowwise) && cast_spec_is_fp8(&q->spec.columnwise) &&
           q->rowwise.scale == q->columnwise.scale;
}
static inline bool qtensor_shares_codes(const qtensor *q) {
    return qtensor_shares_scales(q) && q->rowwise.data == q->columnwise.data;
}
/* True if a use has memory for codes. */
static inline bool qtensor_has_codes(const qtensor *q) {
    return q->rowwise.data || q->columnwise.data;
}

#define QLIST_MAX 4
/* The quantized copies that an op makes of its output: one for each distinct quant_spec of its readers. */
typedef struct qlist {
    int count;
    qtensor item[QLIST_MAX];
} qlist;

#endif
