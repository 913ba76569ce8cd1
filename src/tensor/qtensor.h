/*
 * tensor/qtensor: a quantized tensor: FP8 codes and scales for two uses (fp8/recipe.h): rowwise, contracted
 * along its rows, and columnwise, contracted along its columns. qtensor_lay_out decides the layout: where
 * codes, scales and amaxes are stored, if columnwise codes are transposed, and what is shared.
 */
#ifndef TENSOR_QTENSOR_H
#define TENSOR_QTENSOR_H

#include "base/anywhere.h"
#include "fp8/recipe.h"
#include "tensor/backend.h"
#include "tensor/tensor.h"

/* One use of a quantized tensor as a GEMM operand mn x k (fp8/granularity.h). For the rowwise use mn are the
   rows and k the columns; for the columnwise use it is the reverse. amax, scale and scale_inv have an entry
   for each scale block. Element (mn, k) has entry mn / block.mn * mn_step + k / block.k * k_step, with block
   = granularity_block. E8M0 entries of scale_inv are stored in tiles instead (fp8/scale_tiles.h). If the use
   is in high precision, all pointers are NULL. */
typedef struct qdata {
    void *data; /* codes: row i, column j is at i * ld + j, or at j * ld + i if transposed */
    /* stride of rows, or of columns if transposed; in a view, the full tensor's stride */
    int64_t ld;
    bool transposed; /* columnwise only: the codes of a column are contiguous */
    void *scale_inv; /* 1/scale, the factor of decoded values, in the format granularity_scale_format */
    float *amax;     /* largest magnitude of each block; only for casting */
    float *scale;    /* factor of values before the cast to FP8; only for casting */
    int64_t mn_step, k_step;
    scale_tiles tiles; /* order of E8M0 entries of scale_inv */
    const float *next; /* AMAX_DELAYED: new scale; `quantize` copies it to scale[0] before casting */
} qdata;

/* A quantized tensor with both uses. It owns no memory. A shared array has one address in both uses. */
typedef struct qtensor {
    int64_t rows, columns;
    /* number of groups of rows, or 0; the first row of a group begins a new scale block */
    int64_t groups;
    quant_spec spec;
    qdata rowwise, columnwise;
} qtensor;

typedef struct qblock {
    void *data; /* memory, aligned for the backend; NULL: qtensor_lay_out sets only `bytes` */
    int64_t bytes;
} qblock;
/* The memory of both uses. The columnwise block has what is kept for backward: the columnwise codes and
   scale_inv, also if the rowwise use shares them. The rowwise block has the rest, including the amaxes and
   scales of both uses, which only casting needs. */
typedef struct qblocks {
    qblock rowwise, columnwise;
} qblocks;

/* Sets q's pointers into two blocks, rowwise and columnwise, and the `bytes` of both. Set q's rows, columns,
   groups and spec first. Call the function with data NULL to get the bytes, then with the allocated blocks.
   If each element has the same scale in both uses (quant_spec_shares_scales), the uses share the scales. They
   then share codes, too, unless a backend with contiguous_contraction needs transposed columnwise codes.
   OTT_ERR_SHAPE for invalid sizes. */
ott_status qtensor_lay_out(qtensor *q, const backend_capabilities *can, qblocks *blocks);

/* Returns the index of a group's first scale block. A block has `block` rows. first: the group's first row in
   the tensor. A group's blocks have consecutive indices, and no two groups have the same index. The formula
   does not need the sizes of earlier groups, and therefore may leave some indices unused. */
ANYWHERE int64_t qtensor_group_block(int64_t group, int64_t first, int64_t block) {
    return block == 1 ? first : first / block + group;
}
/* Returns a view of group `group`, rows [first, first + count) of q. */
qtensor qtensor_group(const qtensor *q, int64_t group, int64_t first, int64_t count);

/* Sets mn_step, k_step and tiles of a use with these numbers of scales. amax and scale then are matrices
   [grid.k][grid.mn]. */
static inline void qtensor_order(qdata *d, granularity g, scale_grid grid) {
    d->mn_step = 1;
    d->k_step = grid.mn;
    d->tiles = granularity_tiles(g, grid);
}
/* Sets mn_step, k_step and tiles of one use of q, which may have groups. Returns the numbers of scales. */
scale_grid qtensor_order_use(qdata *d, const qtensor *q, bool columnwise);
/* Returns the columnwise use that shares the arrays of `rowwise`: its MN and K are swapped. */
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

/* qtensor_shares_scales: both uses are FP8 and share scales. qtensor_shares_codes: they also share codes. */
static inline bool qtensor_shares_scales(const qtensor *q) {
    return cast_spec_is_fp8(&q->spec.rowwise) && cast_spec_is_fp8(&q->spec.columnwise) &&
           q->rowwise.scale_inv == q->columnwise.scale_inv;
}
static inline bool qtensor_shares_codes(const qtensor *q) {
    return qtensor_shares_scales(q) && q->rowwise.data == q->columnwise.data;
}
/* True if a use has memory for codes. */
static inline bool qtensor_has_codes(const qtensor *q) {
    return q->rowwise.data || q->columnwise.data;
}

#define QLIST_MAX 4
/* The quantized copies that an op makes of its output: one for each quant_spec that the readers need. */
typedef struct qlist {
    int count;
    qtensor item[QLIST_MAX];
} qlist;

#endif
