/*
 * nn/frozen: frozen matrices and frozen expert weights that are stored as FP8 codes without a master. The
 * parameter's value holds E4M3 codes; an element is its code times the scale_inv of its block. Codes and
 * scales never change after they were loaded or made. The matrices of expert weights share no scale block.
 */
#ifndef NN_FROZEN_H
#define NN_FROZEN_H

#include "base/arena.h"
#include "nn/parameter.h"

/* Format and scales of parameter.codes. Every rank of a stage has all scales of the full parameter. */
typedef struct frozen_codes {
    cast_spec cast;                    /* cast.grain: one scale, one per row, or one per 128x128 block */
    int64_t rows;                      /* rows of one matrix */
    int64_t block_rows, block_columns; /* size of a scale block */
    int64_t scale_rows, scale_columns; /* number of scale blocks; scale_rows: of all matrices */
    /* [scale_rows, scale_columns], on the host, in the arena of frozen_open; NULL on other pipeline stages */
    float *scale_inv;
    float *local; /* scale_inv of the local part, on the device, in qtensor.h's order; owned by the model */
} frozen_codes;

/* Returns the cast to store a weight with. *use: the recipe's cast of the rowwise use. Keeps the granularity
   and rule of *use if E4M3 and allowed (frozen_codes.cast); else one power-of-two scale per row. */
cast_spec frozen_cast_for(const cast_spec *use);

/* Index of the scale-block row that contains this row of the full parameter. */
static inline int64_t frozen_block_at(const frozen_codes *c, int64_t row) {
    int64_t each = (c->rows + c->block_rows - 1) / c->block_rows;
    return row / c->rows * each + row % c->rows / c->block_rows;
}

/* Declares that p, a matrix or expert weights, is stored as codes: sets p->codes, in `memory`. Call it when
   p->local is set, before store_divide. is_here: p belongs to this pipeline stage. OTT_ERR_CONFIG if tensor
   parallelism splits a scale block. */
ott_status frozen_open(parameter *p, const cast_spec *cast, bool is_here, arena *memory);
/* Bytes of frozen_codes.local: the caller allocates them and sets the pointer. */
int64_t frozen_local_bytes(const parameter *p);
/* Fills frozen_codes.local from scale_inv. */
ott_status frozen_place_scales(const parameter *p, device *d);
/* Returns matrix `matrix` of the local part (0 unless expert weights) as a view of codes and scales. The
   columnwise use has these codes and scales if the matrix has one scale or square blocks; else its format is
   OTT_F32. The view is read only. It has scale_inv, but no valid scale and amax. */
qtensor frozen_quantized(const parameter *p, int64_t matrix);
/* Dequantizes elements [first, first + count) of the full parameter, in row-major order: multiplies
   values[i], the value of a code, by the scale_inv of the code's block. */
void frozen_multiply(const parameter *p, int64_t first, int64_t count, float *values);

/* Dequantizes the local part of expert weights into w[rows, columns], in an activation format. end: as
   grouped_rows.end; NULL: writes all experts. If the host can read `end` without waiting (on the CPU),
   experts without rows are not written. */
ott_status frozen_expert_values(exec *cx, const parameter *p, const tensor *end, const tensor *w);

/* Makes codes from values piece by piece. Order: frozen_fill_open, frozen_fill_measure for all elements of
   the full parameter, frozen_fill_scales, frozen_fill_encode for the pieces to store, frozen_fill_close. */
typedef struct frozen_filling {
    mem *account;
    const parameter *p;
    float *scale; /* [scale_rows, scale_columns]: amax while measuring, then scale; owned */
} frozen_filling;

ott_status frozen_fill_open(mem *account, const parameter *p, frozen_filling *out);
void frozen_fill_close(frozen_filling *f); /* accepts an all-zero *f */
void frozen_fill_measure(const frozen_filling *f, int64_t first, int64_t count, const float *values);
/* Writes scale_inv and the memory of frozen_codes.local. OTT_ERR_FORMAT if a value was NaN or infinite. */
ott_status frozen_fill_scales(const frozen_filling *f, device *d);
void frozen_fill_encode(const frozen_filling *f, int64_t first, int64_t count, const float *values,
                        uint8_t *codes);

#endif
