/*
 * plan/layers: does FP8 pay, layer by layer? For each kind of linear layer the time of its three products in the run's high
 * precision, and in FP8 with the casts that only FP8 needs.
 */
#ifndef PLAN_LAYERS_H
#define PLAN_LAYERS_H

#include "plan/machine.h"
#include "train/trainer.h"

/* Layers of one kind that were treated alike. */
typedef struct layer_row {
    char name[MODULES_NAME_BYTES]; /* "model.layers.*.mlp.up_proj" */
    int count;
    int64_t m, n, k; /* tokens of a micro-batch, out, in */
    bool converted;  /* runs in FP8 */
    char kept[96];   /* why it does not; "": it does, or the run is not in FP8 */
    double high, fp8,
        casts; /* seconds of one layer's products in a micro-batch; of fp8 those that are casts */
} layer_row;

enum { LAYER_ROWS_MOST = 64 };

typedef struct layer_rows {
    const machine *machine;
    const recipe *recipe; /* that layers which stay in high precision are tried in */
    layer_row rows[LAYER_ROWS_MOST];
    int count;
} layer_rows;

/* Fills rows->of from the trainer of a dry run, on a machine whose rates are known. */
ott_status layers_estimate(layer_rows *rows, const trainer *t);
/* Below that FP8 does not pay: what it saves is not worth its error. */
#define LAYERS_PAYS 1.03
static inline double layers_speedup(const layer_row *r) {
    return r->high / r->fp8;
}

#endif
