/*
 * model/parts: projections that may be one matrix or several: q, k and v, and gate and up. The rows of the
 * parts lie one below the other in the whole. How a model has them (options.fused_qkv, fused_gate_up) and how
 * a family's files have them need not agree; initial weights do not depend on it.
 */
#ifndef MODEL_PARTS_H
#define MODEL_PARTS_H

#include "model/model.h"

enum { PARTS_MOST = 3, PART_NAME_BYTES = 128 };

/* Rows [first, first + count) of a parameter; elements, when it is a vector. */
typedef struct parameter_part {
    char name[PART_NAME_BYTES]; /* "model.layers.0.self_attn.q_proj.weight" */
    int64_t first, count;
} parameter_part;

/* The parts of a parameter, in order; one that is never fused is its own only part. Returns how many. */
int model_parts_of(const model *m, const parameter *p, parameter_part part[PARTS_MOST]);

/* The whole that a part belongs to, "model.layers.0.self_attn.qkv_proj.weight", the part's first row in it
   and how many rows it has. False: the part belongs to none. */
bool model_whole_of(const model *m, const char *part, char whole[PART_NAME_BYTES], int64_t *first,
                    int64_t *rows);

#endif
