/*
 * nn/frozen: a frozen matrix, or a stack of them, that is kept in FP8 and has no master: the parameter's value holds E4M3 codes,
 * and an element is its code times the scale_inv of its block. What codes and scales are never changes once they are read or
 * made. Blocks of a stack are those of its matrices, which share no scale.
 */
#ifndef NN_FROZEN_H
#define NN_FROZEN_H

#include "base/arena.h"
#include "nn/parameter.h"

/* Of a parameter (parameter.codes). Every rank has the scales of the whole, which are few. */
typedef struct frozen_codes {
    cast_spec cast; /* how values become codes: one scale, one a row, or one a block of 128x128 */
    int64_t rows;   /* of a matrix */
    int64_t block_rows, block_columns; /* elements that share a scale */
    int64_t scale_rows, scale_columns; /* blocks of the whole, of all its matrices */
    float *scale_inv;                  /* [scale_rows, scale_columns], on the host; NULL: another stage's */
    float *
        local; /* of the local part's blocks, on the device, in the order of tensor/qtensor; owned by the model */
} frozen_codes;

/* How a weight whose rowwise use is cast so is kept: with its blocks and its rule, where it is E4M3 with scales of a kind
   that can be kept; else with a power of two a row. */
cast_spec frozen_cast_for(const cast_spec *use);

/* Of blocks one below the other, that which a row of the whole is in. */
static inline int64_t frozen_block_at(const frozen_codes *c, int64_t row) {
    int64_t each = (c->rows + c->block_rows - 1) / c->block_rows;
    return row / c->rows * each + row % c->rows / c->block_rows;
}

/* Says of p, which is no vector, that its value is codes, before its shard is divided. is_here: on this rank's stage.
   OTT_ERR_CONFIG when its local part is not of whole blocks. */
ott_status frozen_open(parameter *p, const cast_spec *cast, bool is_here, arena *memory);
/* What `local` takes, and filling it from scale_inv. */
int64_t frozen_local_bytes(const parameter *p);
ott_status frozen_place_scales(const parameter *p, device *d);
/* Of the local part a matrix, 0 where it is no stack: its rowwise use and, where blocks are the same seen along rows and along
   columns, the columnwise one of the same codes. It is read only: amax and scale, which no operation looks at, are the scale_inv. */
qtensor frozen_quantized(const parameter *p, int64_t matrix);
/* Elements [first, first + count) of the whole, row by row: codes' values before, elements after. */
void frozen_multiply(const parameter *p, int64_t first, int64_t count, float *values);

/* The values of the local part of a stack, w[rows, columns]; of matrices that have no rows nothing, where the host can look at
   `end` (tensor/ops.def: grouped_gemm) without waiting. NULL: of all. */
ott_status frozen_stack_values(exec *cx, const parameter *p, const tensor *end, const tensor *w);

/* Making codes of values, piece by piece: all of the whole is measured, then scales are made, then pieces are encoded. */
typedef struct frozen_filling {
    mem *account;
    const parameter *p;
    float *scale; /* [scale_rows, scale_columns]: amax, then what elements are multiplied by */
} frozen_filling;

ott_status frozen_fill_open(mem *account, const parameter *p, frozen_filling *out);
void frozen_fill_close(frozen_filling *f); /* an all-zero one is allowed */
void frozen_fill_measure(const frozen_filling *f, int64_t first, int64_t count, const float *values);
/* OTT_ERR_FORMAT for a NaN or an infinity, which no scale holds. */
ott_status frozen_fill_scales(const frozen_filling *f, device *d);
void frozen_fill_encode(const frozen_filling *f, int64_t first, int64_t count, const float *values,
                        uint8_t *codes);

#endif
