/*
 * model/balance: load balancing of experts: counts of choices and router losses in a step, and the update of
 * the balancing biases (DeepSeek-V3, arXiv:2412.19437). All functions do nothing for a model without experts.
 */
#ifndef MODEL_BALANCE_H
#define MODEL_BALANCE_H

#include "tensor/exec.h"

typedef struct model model;

enum { BALANCE_LOSS, BALANCE_Z_LOSS, BALANCE_LOSSES };

typedef struct balance {
    int layers;      /* number of layers with experts, on all pipeline stages */
    int64_t experts; /* E, the number of experts */
    /* fp32[layers, BALANCE_LOSSES + E], sums of a step: the losses, then the choices of each expert */
    tensor sums;
    /* fp32[layers, E]: moving average of each expert's share of choices; empty without biases */
    tensor loads;
    void *block; /* device memory of `sums` and `loads`; NULL: no layer has experts */
    float *host; /* [layers, BALANCE_LOSSES + E], host memory for copies of `sums` and `loads` */
} balance;

/* Allocates m->balance, and gives the layers of m->blocks views of its sums. The layers must be bound. */
ott_status balance_open(model *m);
void balance_close(model *m);
/* Zeroes the sums. Call it before the first micro-batch of a step. */
ott_status balance_begin(const model *m);
/* Call it after the last micro-batch: adds up the sums of all ranks. data_ranks have other micro-batches. */
ott_status balance_reduce(exec *cx, const model *m, group *data_ranks);
/* Updates loads and biases. Call it after the optimizer's update. state: tensor/step_state.h. */
ott_status balance_update(exec *cx, const model *m, const tensor *state);

/* Figures of a step. The losses are sums over layers of means over micro-batches. unevenness is the mean over
   layers of the largest expert's count divided by the mean count: 1 is even, 0 means no counts. */
typedef struct balance_figures {
    double loss, z_loss, unevenness;
} balance_figures;
/* micro_batches: number of micro-batches that the sums cover, on all ranks. Waits for the device. */
ott_status balance_read(const model *m, int64_t micro_batches, balance_figures *out);

#endif
