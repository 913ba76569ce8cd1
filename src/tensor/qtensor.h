/*
 * tensor/qtensor: a quantized tensor: FP8 codes and scales for two uses (fp8/recipe.h): rowwise, contracted
 * along its rows, and columnwise, contracted along its columns. qtensor_lay_out decides the layout for all
 * code: where codes, amax and scales are stored, whether columnwise codes are transposed, and what the two
 * uses share.
 */
#ifndef TENSOR_QTENSOR_H
#define TENSOR_QTENSOR_H

#include "base/anywhere.h"
#include "fp8/recipe.h"
#include "tensor/backend.h"
#include "tensor/tensor.h"

/* One use of a quantized tensor, as mn x k (fp8/granularity.h): rows x columns for the rowwise use, columns x
   rows for the columnwise use. The arrays amax, scale and scale_inv have an entry for each scale block. With
   block = granularity_block, element (mn, k) has entry mn / block.mn * mn_step + k / block.k * k_step. All
   pointers are NULL if the use stays in high precision. */
typedef struct qdata {
    void *data; /* codes: row i, column j is at i * ld + j, or at j * ld + i if transposed */
    /* stride of rows, or of columns if transposed; larger than the tensor if it is a part of another one */
    int64_t ld;
    bool transposed;  /* columnwise only: the codes of a column are contiguous */
    float *amax;      /* largest magnitude of each block */
    float *scale;     /* multiplies values before the cast to FP8 */
    float *scale_inv; /* 1/scale: multiplies decoded values */
    int64_t mn_step, k_step;
    const float *next; /* AMAX_DELAYED: the scale that quantize uses; NULL: `scale` */
} qdata;

/* A quantized tensor with both uses. Owns nothing. Shared memory has the same pointers in both uses. */
typedef struct qtensor {
    int64_t rows, columns;
    /* groups of rows, each with separate scale blocks from its first row on; 0: not grouped */
    int64_t groups;
    quant_spec spec;
    qdata rowwise, columnwise;
} qtensor;

/* The memory of one use. */
typedef struct qblock {
    void *data; /* aligned for the backend; NULL: qtensor_lay_out only sets bytes */
    int64_t bytes;
} qblock;
/* The memory of both uses. Shared memory is in the columnwise block, which is kept for backward. */
typedef struct qblocks {
    qblock rowwise, columnwise;
} qblocks;

/* Sets the pointers of q (rows, columns, groups and spec are set) into the two blocks, and both `bytes`. Call
   it first without data for the bytes, then with the allocated blocks. The uses share scales if each element
   has the same scale in both (quant_spec_shares_scales). They then also share codes, except on backends with
   contiguous_contraction, where columnwise codes are transposed. OTT_ERR_SHAPE for invalid sizes. */
ott_status qtensor_lay_out(qtensor *q, const backend_capabilities *can, qblocks *blocks);

/* Index of the first block (of `block` rows) of group `group`, which begins with row `first`, counted over
   all groups. It does not depend on the sizes of the groups before, and never overlaps their blocks. A
   group's blocks are consecutive. */
ANYWHERE int64_t qtensor_group_block(int64_t group, int64_t first, int64_t block) {
    return block == 1 ? first : first / block + group;
}
/* Returns a view of group `group`, rows [first, first + count) of q. */
qtensor qtensor_group(const qtensor *q, int64_t group, int64_t first, int64_t count);

/* Sets the steps of a use: entries are [block along K][block along MN], contiguous along MN. */
static inline void qtensor_order(qdata *d, granularity g, int64_t mn) {
    d->mn_step = 1;
    d->k_step = granularity_mn_groups(g, mn);
}
/* The same for a use of q, which may be grouped. Returns the number of entries. */
int64_t qtensor_order_use(qdata *d, const qtensor *q, bool columnwise);
/* Returns the columnwise use that shares this rowwise use's codes and scales: MN and K are swapped. */
static inline qdata qtensor_shared_use(qdata rowwise) {
    int64_t mn_step = rowwise.mn_step;
    rowwise.mn_step = rowwise.k_step;
    rowwise.k_step = mn_step;
    return rowwise;
}
/* Index of the code of row i, column j. */
static inline int64_t qtensor_index(const qdata *d, int64_t i, int64_t j) {
    return d->transposed ? j * d->ld + i : i * d->ld + j;
}

/* True if both uses are FP8 and share scales; and if they also share codes. */
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
/* The quantized copies that an op makes of its output: one for each distinct spec of its consumers. */
typedef struct qlist {
    int count;
    qtensor item[QLIST_MAX];
} qlist;

#endif
