/*
 * nn/weight/sharded: the part of a weight that parallel/store needs: which tensors data-parallel ranks send,
 * how a rank casts its rows of the master, and how received values become the copies that GEMMs read.
 *
 * Shards may split scale blocks. So each rank computes the amaxes of its rows, the ranks reduce the amaxes
 * (maximum), and every rank computes the full weight's scales.
 */
#ifndef NN_WEIGHT_SHARDED_H
#define NN_WEIGHT_SHARDED_H

#include "nn/weight/weight.h"

/* Bits for the two uses of a weight: forward reads it rowwise, backward columnwise. A backward that
   recomputes GEMMs reads both. */
enum { WEIGHT_ROWWISE = 1, WEIGHT_COLUMNWISE = 2 };

typedef enum weight_content {
    WEIGHT_VALUES,          /* values in a high-precision format, or stored codes (nn/linear/frozen.h) */
    WEIGHT_MASTER,          /* the master, cast to codes after the gather */
    WEIGHT_CODES,           /* FP8 codes of the rowwise use, or of both uses if they share scales */
    WEIGHT_CODES_COLUMNWISE /* FP8 codes of the columnwise use, if it has separate scales */
} weight_content;

/* A tensor that ranks gather. */
typedef struct weight_part {
    parameter *p;
    weight_source *w; /* the source of p; NULL for norms, biases and tables: content is WEIGHT_VALUES */
    weight_content content;
    ott_dtype format;
    int uses;                              /* the uses that the tensor is gathered for */
    tensor *values;                        /* views the gathered values; NULL for codes */
    plan_buffer full, rowwise, columnwise; /* buffers of gathered values (full) and codes */
} weight_part;

enum { WEIGHT_PARTS = 3 };
/* Lists the tensors that ranks send of a weight; returns their number. masters: send weights with one scale
   as masters, which every rank casts. */
int weight_list_parts(weight_source *w, bool masters, weight_part parts[WEIGHT_PARTS]);

/* Writes this rank's elements of a part to `to`, in the part's format. */
ott_status weight_part_pack(exec *cx, const weight_part *part, void *to);
/* The elements [first, first + count) of a part, as a rank has sent them. */
typedef struct weight_shard {
    void *data;
    int64_t first, count;
} weight_shard;
enum { WEIGHT_SHARDS = 64 }; /* most shards that weight_part_fill takes at once */
/* Order of calls for a received part: weight_part_open, weight_part_fill for the shards of all ranks,
   weight_part_finish. weight_part_drop sets the pointers to the values to NULL. The
   caller then closes the part's buffers. uses: the uses that are gathered. */
ott_status weight_part_open(exec *cx, weight_part *part, int uses);
ott_status weight_part_fill(exec *cx, const weight_part *part, const weight_shard *shards, int count);
ott_status weight_part_finish(exec *cx, weight_part *part, int uses);
void weight_part_drop(const weight_part *part);

/* ---- scales: no effect for weights without FP8 codes that ranks cast ---- */

/* Memory for the scales of several weights. amax NULL: only `entries` and `bytes` are computed. */
typedef struct weight_scales {
    float *amax, *scale;
    char *scale_inv;
    int64_t entries, bytes; /* used entries of amax, and of scale; used bytes of scale_inv */
} weight_scales;
/* Assigns the next free memory to the weight's scales. */
void weight_place_scales(weight_source *w, weight_scales *memory);
/* True if the scales are not of cx->step. */
bool weight_needs_scales(const exec *cx, const weight_source *w);
/* True if the optimizer step has not computed the amaxes of this rank's rows. */
bool weight_needs_amax(const exec *cx, const weight_source *w);
/* Computes the amaxes of this rank's rows. */
ott_status weight_compute_amax(exec *cx, weight_source *w);
/* Computes the scales from the amaxes that data-parallel ranks have reduced. */
ott_status weight_compute_scales(exec *cx, weight_source *w);

#endif
