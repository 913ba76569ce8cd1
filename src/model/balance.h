/*
 * model/balance: what the experts of a model's layers get in a step, what that costs, and the biases that even it out
 * (DeepSeek-V3, arXiv:2412.19437): nothing for a model without experts.
 */
#ifndef MODEL_BALANCE_H
#define MODEL_BALANCE_H

#include "tensor/exec.h"

typedef struct model model;

enum { BALANCE_LOSS, BALANCE_Z_LOSS, BALANCE_LOSSES };

typedef struct balance {
    int layers;      /* that are mixtures, of all stages of a pipeline */
    int64_t experts; /* E */
    /* fp32[layers, BALANCE_LOSSES + E]: each one's losses of a step's micro-batches added, then the choices of its experts */
    tensor sums;
    /* fp32[layers, E]: their part of the choices of late; layers whose biases move, else none */
    tensor loads;
    void *block; /* device memory of both; NULL: no layer is a mixture */
    float *host; /* [layers, BALANCE_LOSSES + E] */
} balance;

/* Once m's blocks are there: what its layers tell goes into m->balance. */
ott_status balance_open(model *m);
void balance_close(model *m);
/* Before the first micro-batch of a step; after its last: the sums of all ranks, those of data_ranks, which have other
   micro-batches, first. */
ott_status balance_begin(const model *m);
ott_status balance_reduce(exec *cx, const model *m, group *data_ranks);
/* Moves the biases, with the optimizer; state: the step's (tensor/step_state.h). */
ott_status balance_update(exec *cx, const model *m, const tensor *state);

/* Of a step of so many micro-batches: the losses, each the mean of them, and how uneven the choices were, over all layers: the
   mean of the largest part of an expert over the mean one, 1 being even, 0 where nobody counted. */
typedef struct balance_figures {
    double loss, z_loss, unevenness;
} balance_figures;
ott_status balance_read(const model *m, int64_t micro_batches, balance_figures *out);

#endif
