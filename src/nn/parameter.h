/*
 * nn/parameter: a parameter of the model: its master weights, its gradient and its optimizer state. They are
 * views: a parameter owns no memory. The data of gradient and state is NULL if the parameter is not trained.
 * Vectors are fp32. Matrices are fp32 or bf16; their state may also be FP8 in groups (tensor/rules/moment.h),
 * and frozen matrices may be FP8 codes (nn/linear/frozen.h). A gradient that is summed separately for each
 * micro-batch is fp32 until it is added to the step's gradient.
 *
 * A parameter has three extents. The full parameter is the one in files. The local part is what this rank's
 * layers compute with: the full parameter, or the rows or columns of it that tensor or expert parallelism
 * gives to this rank. The shard is the rows of the local part that this rank initializes, updates and saves.
 * parallel/store gathers the local part from the shards. On one rank, the three are the same memory.
 *
 * Vectors are split by elements: for a vector, "rows" below means elements.
 */
#ifndef NN_PARAMETER_H
#define NN_PARAMETER_H

#include "tensor/exec.h"

enum {
    PARAMETER_SLOTS = 3,   /* maximum number of optimizer state tensors per parameter */
    PARAMETER_RANKS = 3,   /* maximum number of dimensions */
    PARAMETER_SECTIONS = 3 /* maximum number of projections in one matrix: q, k, v */
};

/* The dimension along which tensor parallelism splits a parameter into equal parts. */
typedef enum parameter_split { PARAMETER_FULL, PARAMETER_ROWS, PARAMETER_COLUMNS } parameter_split;

/* A gap in a part: after the part's first `after` rows, `skipped` rows of the full parameter are left out. */
typedef struct parameter_gap {
    int64_t after, skipped;
} parameter_gap;

/* A part of the full parameter: rows x columns elements from (row, column) on. A vector has row 0 and rows 1.
   A part of a fused projection has some rows of each projection, for example q, k and v, and gaps between. */
typedef struct parameter_part {
    int64_t row, column, rows, columns;
    parameter_gap gap[PARAMETER_SECTIONS - 1];
} parameter_part;

/* This rank's shard: rows [first, first + rows of value) of the local part. */
typedef struct parameter_shard {
    int64_t first;
    int64_t *rows_per_rank;               /* [ranks] number of rows of each rank's shard; NULL: not sharded */
    tensor value, grad;                   /* the master and its gradient */
    tensor slot[PARAMETER_SLOTS];         /* optimizer state, in the order of optimizer_rule.slot */
    tensor group_scales[PARAMETER_SLOTS]; /* scales of FP8 slots; data NULL: the slot is not FP8 */
    qtensor quantized; /* the optimizer step's codes and scales, or just its amax (weight_fuse) */
} parameter_shard;

typedef struct parameter {
    const char *name;      /* "model.layers.0.self_attn.q_proj.weight"; borrowed from the model's arena */
    int rank;              /* number of axes in files; 1 for a vector of `columns`, 2 for a matrix */
    bool of_experts;       /* true: one matrix for each expert; rank is 3 */
    int64_t experts;       /* number of consecutive matrices of expert weights; else 1 */
    int64_t rows, columns; /* size of the full parameter; rows counts the rows of all experts */
    parameter_part local;  /* position and size of the local part */
    bool decay;            /* weight decay applies */
    bool is_hidden;        /* true: a matrix of a layer; false: a vector, an embedding or an output head */
    bool frozen;           /* true: never trained, has no gradient and no state */
    bool is_frozen_now;    /* true: not updated now, keeps gradient and state (train.freeze_schedule) */
    struct frozen_codes *codes; /* not NULL: `value` has FP8 codes, and there is no master (frozen.h) */
    int number;                 /* index among the trained parameters of all pipeline stages */
    bool repeated;           /* the last stage's copy of a tied embedding; not counted in the gradient norm */
    bool adds_often;         /* backward accumulates into the gradient more than once per micro-batch */
    tensor value, grad;      /* value and gradient of the local part */
    plan_buffer grad_buffer; /* holds grad while a micro-batch's gradient is summed separately */
    parameter_shard shard;
} parameter;

/* Returns a parameter that is not split, of shape [columns] or [rows, columns]. */
static inline parameter parameter_of_shape(int rank, const int64_t *shape) {
    parameter p = {.rank = rank, .experts = 1, .rows = rank > 1 ? shape[0] : 1, .columns = shape[rank - 1]};
    p.local = (parameter_part){.rows = p.rows, .columns = p.columns};
    p.decay = p.is_hidden = rank > 1;
    return p;
}

/* Returns weights of experts that are not split, of shape [experts, rows, columns]. */
static inline parameter parameter_of_experts(const int64_t shape[PARAMETER_RANKS]) {
    parameter p = parameter_of_shape(2, (const int64_t[]){shape[0] * shape[1], shape[2]});
    p.rank = 3;
    p.of_experts = true;
    p.experts = shape[0];
    return p;
}

/* Format of p's master, gradient or state: `format` for matrices, fp32 for vectors. */
static inline ott_dtype parameter_format(const parameter *p, ott_dtype format) {
    return p->rank > 1 ? format : OTT_F32;
}

/* Writes the shape that p has in files: p->rank entries. */
static inline void parameter_shape(const parameter *p, int64_t shape[PARAMETER_RANKS]) {
    if (p->of_experts) shape[0] = p->experts;
    if (p->rank > 1) shape[p->rank - 2] = p->rows / p->experts;
    shape[p->rank - 1] = p->columns;
}

/* Number of elements of the full parameter. */
static inline int64_t parameter_count(const parameter *p) {
    return p->rows * p->columns;
}

/* True if the local part is smaller than the full parameter. */
static inline bool parameter_is_split(const parameter *p) {
    return p->local.rows != p->rows || p->local.columns != p->columns;
}

/* Number of rows of the local part; for a vector, number of elements. */
static inline int64_t parameter_local_rows(const parameter *p) {
    return p->rank > 1 ? p->local.rows : p->local.columns;
}

/* A contiguous run of rows or elements of the full parameter. */
typedef struct parameter_run {
    int64_t first, count;
} parameter_run;

/* Returns the longest run of rows, from row `at` of the part on, that are adjacent in the part and in the
   full parameter. most: maximum count. run.first counts from the part's first row in the full parameter. */
parameter_run parameter_rows_at(const parameter_part *part, int64_t at, int64_t most);
/* Like parameter_rows_at, for elements in row-major order. columns: the full parameter's number of columns.
   run.first is an index in the full parameter. */
parameter_run parameter_run_at(const parameter_part *part, int64_t columns, int64_t at, int64_t most);

/* Sets p->local to the part of rank `rank` of `ranks` ranks: an equal share of the rows of each section, for
   example of q, k and v. section[i]: number of rows of section i; the sum is p's number of rows. */
void parameter_split_rows(parameter *p, const int64_t *section, int sections, int rank, int ranks);
/* Returns the shard as a part of the full parameter. */
parameter_part parameter_shard_part(const parameter *p);

/* Makes value and grad views of the shard, which must be this rank's full part. */
static inline void parameter_use_shard(parameter *p) {
    p->value = p->shard.value;
    p->grad = p->shard.grad;
}

#endif
