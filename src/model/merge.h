/* model/merge: takes the adapters of a model (nn/lora.h) into its weights. */
#ifndef MODEL_MERGE_H
#define MODEL_MERGE_H

#include "model/model.h"

/* weight += scale B A in every layer's master, rounded once; then no layer has an adapter. The model holds all of its
   parameters, and runs in inference only. OTT_ERR_UNSUPPORTED for a weight that is kept in FP8. */
ott_status merge_adapters(model *m);

#endif
