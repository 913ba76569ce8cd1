/* model/pack: packs a model's weights for inference, in the order of the device's GEMM (op_pack). */
#ifndef MODEL_PACK_H
#define MODEL_PACK_H

#include "model/model.h"

/* Packs the weight of every linear layer from its master. Frees the masters, except a tied embedding's.
   Expert weights are converted instead, or stay FP8 codes (linear_pack). The model must be converted and
   loaded. Afterwards the model only runs forward, with the same bits. It cannot be converted or saved. */
ott_status model_pack(model *m);

#endif
