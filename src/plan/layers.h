/* plan/layers: estimates for each kind of linear layer whether FP8 is faster: the time of its three GEMMs in
   high precision, and in FP8 with the casts that FP8 needs. */
#ifndef PLAN_LAYERS_H
#define PLAN_LAYERS_H

#include "plan/machine.h"
#include "train/trainer.h"

/* Layers of one kind, all converted to FP8 or none. */
typedef struct layer_row {
    char name[MODULES_NAME_BYTES]; /* names of the layers, "model.layers.*.mlp.up_proj" */
    int count;
    int64_t m, n, k;  /* tokens of a micro-batch, output features, input features */
    bool converted;   /* the layers run in FP8 */
    char kept[96];    /* why the layers stay in high precision; "" if they are in FP8 or the run has no FP8 */
    double high, fp8; /* seconds of one layer's GEMMs per micro-batch: high precision; FP8 with casts */
    double casts;     /* seconds of the casts; part of `fp8` */
} layer_row;

enum { LAYER_ROWS_MOST = 64 };

typedef struct layer_rows {
    const machine *machine;
    const recipe *recipe; /* recipe that FP8 is estimated with, also for unconverted layers */
    layer_row rows[LAYER_ROWS_MOST];
    int count;
} layer_rows;

/* Fills the layer_rows `rows` from the trainer of a dry run; the caller sets machine and recipe. */
ott_status layers_estimate(void *rows, trainer *t);
/* Smallest speedup that is worth FP8's error. */
#define LAYERS_PAYS 1.03
static inline double layers_speedup(const layer_row *r) {
    return r->high / r->fp8;
}

#endif
