/*
 * model/balance: load balancing of experts: counts each expert's tokens in a step, sums router losses, and
 * updates the balancing biases (DeepSeek-V3, arXiv:2412.19437). Without experts, all functions do nothing.
 */
#ifndef MODEL_BALANCE_H
#define MODEL_BALANCE_H

#include "tensor/exec.h"

typedef struct model model;

enum { BALANCE_LOSS, BALANCE_Z_LOSS, BALANCE_LOSSES };

typedef struct balance {
    int layers;      /* number of layers with experts, on all pipeline stages */
    int64_t experts; /* E, the number of experts */
    /* fp32[layers, BALANCE_LOSSES + E]: a step's sums of router losses, and of choices of each expert */
    tensor sums;
    /* fp32[layers, E]: moving average of each expert's share of choices; empty if routers have no bias */
    tensor loads;
    void *block; /* device memory of `sums` and `loads`; NULL: no layer has experts */
    float *host; /* [layers, BALANCE_LOSSES + E], host memory for copies of `sums` and `loads` */
} balance;

/* Allocates m->balance. Connects its sums with the MoE layers of m->blocks, which must be bound. */
ott_status balance_open(model *m);
void balance_close(model *m);
/* Sets the sums to 0. Call it before the first micro-batch of a step. */
ott_status balance_begin(const model *m);
/* Adds up the sums of all ranks. Call it after a step's last micro-batch. data_ranks: data-parallel ranks. */
ott_status balance_reduce(exec *cx, const model *m, group *data_ranks);
/* Updates loads and biases. Call it after the optimizer's update. state: tensor/step_state.h. */
ott_status balance_update(exec *cx, const model *m, const tensor *state);

/* Figures of a step. A loss is the mean over micro-batches, added up over layers. unevenness is the mean over
   layers of the largest expert's count divided by the mean count: 1 is even, 0 means no counts. */
typedef struct balance_figures {
    double loss, z_loss, unevenness;
} balance_figures;
/* micro_batches: number of micro-batches that the sums cover, on all ranks. Waits for the device. */
ott_status balance_read(const model *m, int64_t micro_batches, balance_figures *out);

#endif
