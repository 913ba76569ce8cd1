/*
 * tensor/qtensor: a tensor in FP8 for its two uses (fp8/recipe.h): rowwise, contracted along its rows, and columnwise,
 * contracted down its columns. Where codes, amax and scales lie, whether columnwise codes lie transposed and what both
 * uses share is decided here, once for every owner of one, from the spec and from what the backend wants.
 */
#ifndef TENSOR_QTENSOR_H
#define TENSOR_QTENSOR_H

#include "base/anywhere.h"
#include "fp8/recipe.h"
#include "tensor/backend.h"
#include "tensor/tensor.h"

/* One use of a quantized tensor, as mn x k (fp8/granularity.h): rows x columns of the rowwise use, columns x rows of the
   columnwise one. The arrays amax, scale and scale_inv have an entry for each block of the spec's granularity: that of
   element (mn, k), with block = granularity_block, is entry mn / block.mn * mn_step + k / block.k * k_step. All NULL when
   the use stays in high precision. */
typedef struct qdata {
    void *data; /* codes: that of row i, column j at i * ld + j, or, transposed, at j * ld + i */
    /* a row's elements; transposed: a column's, more than there are rows where q is some of them */
    int64_t ld;
    bool transposed;  /* columnwise only: the codes of a column lie side by side */
    float *amax;      /* largest magnitude of each group */
    float *scale;     /* multiplied on the way to FP8 */
    float *scale_inv; /* 1/scale: multiplied on the way back */
    int64_t mn_step, k_step;
    const float *next; /* AMAX_DELAYED: where quantize takes the scale from; NULL: it stands in `scale` */
} qdata;

/* A tensor in FP8 for both uses. Owns nothing. What the uses share are the same pointers in both. */
typedef struct qtensor {
    int64_t rows, columns;
    int64_t groups; /* of rows, each with scale blocks of its own, beginning with its first row; 0: none */
    quant_spec spec;
    qdata rowwise, columnwise;
} qtensor;

/* The memory of one use. */
typedef struct qblock {
    void *data; /* aligned for the backend; NULL: only count */
    int64_t bytes;
} qblock;
/* The memory of both. What they share lies in the columnwise block, the one that is kept for backward. */
typedef struct qblocks {
    qblock rowwise, columnwise;
} qblocks;

/* Lays q out, whose rows, columns and spec are given, in the two blocks; says in both `bytes` what they must hold. Call it
   with no data for the bytes, then with the blocks. Both uses share scales when each element has the same one in both
   (quant_spec_shares_scales), and then codes too, unless the backend wants the contraction contiguous: there columnwise
   codes lie transposed. OTT_ERR_SHAPE for sizes below 0 or beyond what can be counted. */
ott_status qtensor_lay_out(qtensor *q, const backend_capabilities *can, qblocks *blocks);

/* The first of group `group`'s blocks of `block` rows, counted over all groups, where its rows begin with `first`: at or behind the
   end of the blocks of the group before, and known without the sizes of those. The blocks of a group are neighbours. */
ANYWHERE int64_t qtensor_group_block(int64_t group, int64_t first, int64_t block) {
    return block == 1 ? first : first / block + group;
}
/* A group of q's rows, [first, first + count), as a tensor of its own. */
qtensor qtensor_group(const qtensor *q, int64_t group, int64_t first, int64_t count);

/* Entries lie [block of K][block of MN], so that the scales of neighbours along MN are neighbours. */
static inline void qtensor_order(qdata *d, granularity g, int64_t mn) {
    d->mn_step = 1;
    d->k_step = granularity_mn_groups(g, mn);
}
/* The same of a use of q, which may have groups; returns how many entries there are. */
int64_t qtensor_order_use(qdata *d, const qtensor *q, bool columnwise);
/* The columnwise use that shares codes and scales with this rowwise one: MN and K change places. */
static inline qdata qtensor_shared_use(qdata rowwise) {
    int64_t mn_step = rowwise.mn_step;
    rowwise.mn_step = rowwise.k_step;
    rowwise.k_step = mn_step;
    return rowwise;
}
/* Where the code of row i, column j is. */
static inline int64_t qtensor_index(const qdata *d, int64_t i, int64_t j) {
    return d->transposed ? j * d->ld + i : i * d->ld + j;
}

/* Are both uses FP8, with one array of scales; with one of codes? */
static inline bool qtensor_shares_scales(const qtensor *q) {
    return cast_spec_is_fp8(&q->spec.rowwise) && cast_spec_is_fp8(&q->spec.columnwise) &&
           q->rowwise.scale == q->columnwise.scale;
}
static inline bool qtensor_shares_codes(const qtensor *q) {
    return qtensor_shares_scales(q) && q->rowwise.data == q->columnwise.data;
}
/* Have the codes of a use a place? */
static inline bool qtensor_has_codes(const qtensor *q) {
    return q->rowwise.data || q->columnwise.data;
}

#define QLIST_MAX 4
/* The quantized forms a producer makes of its output: one for each distinct spec of its consumers. */
typedef struct qlist {
    int count;
    qtensor item[QLIST_MAX];
} qlist;

#endif
