/*
 * model/pack: a model's weights as inference reads them: each once, in the order in which the device's
 * matrix product takes it (op_pack), a byte a weight in FP8.
 */
#ifndef MODEL_PACK_H
#define MODEL_PACK_H

#include "model/model.h"

/* Packs the weight of every linear layer from its master, and lets go of the masters that nothing else reads:
   those of the embedding, norms and biases stay. The model must be converted and its weights be loaded; from
   then on it only runs forward, with the same bits; model_convert refuses it, and it is not saved again. */
ott_status model_pack(model *m);

#endif
