/* model/pack: packs a model's weights for inference, in the order of the device's GEMM (op_pack). */
#ifndef MODEL_PACK_H
#define MODEL_PACK_H

#include "model/model.h"

/* Packs the weight of every linear layer from its master and frees the masters, except a tied embedding's.
   Expert weights are converted instead, or stay FP8 codes (linear_pack). The model must be converted and
   loaded. Afterwards it only runs forward, with the same bits: it cannot be converted or saved again. */
ott_status model_pack(model *m);

#endif
