/* model/pack: packs a model's weights for inference, in the order of the device's GEMM (op_pack). */
#ifndef MODEL_PACK_H
#define MODEL_PACK_H

#include "model/model.h"

/* Packs every linear layer's weight from its master. Frees the masters, except a tied embedding's. Expert
   weights are not packed, but converted, or stay FP8 codes (weight_pack). The model must be converted and
   loaded. Afterwards it can only run forward, with the same bits; do not convert or save it. */
ott_status model_pack(model *m);

#endif
