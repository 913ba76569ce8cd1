/*
 * nn/linear/frozen: frozen matrices and frozen expert weights that are stored as FP8 codes without a master.
 * The parameter's value holds E4M3 codes; an element is its code times the scale_inv of its block. Codes and
 * scales never change after they were loaded or made. The matrices of expert weights share no scale block.
 */
#ifndef NN_LINEAR_FROZEN_H
#define NN_LINEAR_FROZEN_H

#include "base/arena.h"
#include "nn/parameter.h"

/* Cast and scales of a parameter's codes. Each rank of a pipeline stage has all scales of the parameter. */
typedef struct frozen_codes {
    cast_spec cast;                    /* cast.grain: one scale, one per row, or one per 128x128 block */
    int64_t rows;                      /* rows of one matrix */
    int64_t block_rows, block_columns; /* size of a scale block */
    int64_t scale_rows, scale_columns; /* number of scale blocks; scale_rows: of all matrices */
    /* [scale_rows, scale_columns] on the host; NULL if the parameter is on another pipeline stage */
    float *scale_inv;
    float *local; /* this rank's scale_inv, on the device, in the order of qtensor.h; owned by the model */
} frozen_codes;

/* Returns the cast that stores a weight in FP8. *use is the recipe's rowwise cast. Its granularity and scale
   rule are kept if it is E4M3 and allowed (frozen_codes.cast). If not: a power-of-two scale per row. */
cast_spec frozen_cast_for(const cast_spec *use);

/* Returns the index of the row of scale blocks that contains this row of the full parameter. */
static inline int64_t frozen_block_at(const frozen_codes *c, int64_t row) {
    int64_t each = (c->rows + c->block_rows - 1) / c->block_rows;
    return row / c->rows * each + row % c->rows / c->block_rows;
}

/* Declares that p, a matrix or expert weights, is stored as FP8 codes: sets p->codes, in `memory`. Call it
   after p->local is set and before store_divide. is_here: p is on this pipeline stage. OTT_ERR_CONFIG if
   tensor parallelism splits a scale block. */
ott_status frozen_open(parameter *p, const cast_spec *cast, bool is_here, arena *memory);
/* Size of frozen_codes.local in bytes. The caller allocates this memory and sets the pointer. */
int64_t frozen_local_bytes(const parameter *p);
/* Fills frozen_codes.local from scale_inv. */
ott_status frozen_place_scales(const parameter *p, device *d);
/* Returns this rank's matrix `matrix` (0 if p is one matrix) as a read-only view of codes and scales. The
   view also has a columnwise use if the matrix has one scale or square scale blocks. If not, the format of
   the columnwise use is OTT_F32. amax and scale are NULL. */
qtensor frozen_quantized(const parameter *p, int64_t matrix);
/* Dequantizes elements [first, first + count), in row-major order of the full parameter. values[i] is the
   value of a code; it is multiplied by the scale_inv of the code's block. */
void frozen_multiply(const parameter *p, int64_t first, int64_t count, float *values);

/* Dequantizes this rank's expert weights into w[rows, columns], in an activation format. end:
   grouped_rows.end, or NULL for all experts. If the host can read `end` without waiting (on the CPU), experts
   without rows are skipped. */
ott_status frozen_expert_values(exec *cx, const parameter *p, const tensor *end, const tensor *w);

/* Makes codes from values in pieces. Order of calls: frozen_fill_open, frozen_fill_measure for all elements
   of the full parameter, frozen_fill_scales, frozen_fill_encode for pieces to store, frozen_fill_close. */
typedef struct frozen_filling {
    mem *account;
    const parameter *p;
    float *scale; /* [scale_rows, scale_columns]: amax while measuring, then scale; owned */
} frozen_filling;

ott_status frozen_fill_open(mem *account, const parameter *p, frozen_filling *out);
void frozen_fill_close(frozen_filling *f); /* accepts an all-zero *f */
void frozen_fill_measure(const frozen_filling *f, int64_t first, int64_t count, const float *values);
/* Computes frozen_codes.scale_inv and fills frozen_codes.local. OTT_ERR_FORMAT if a value is not finite. */
ott_status frozen_fill_scales(const frozen_filling *f, device *d);
void frozen_fill_encode(const frozen_filling *f, int64_t first, int64_t count, const float *values,
                        uint8_t *codes);

#endif
