/*
 * checkpoint/hf_frozen: the scales of weights that stay in FP8 (nn/frozen.h), from those of a Hugging Face folder: as they
 * are, for as many elements each or for some of them. Internal to this floor.
 */
#ifndef CHECKPOINT_HF_FROZEN_H
#define CHECKPOINT_HF_FROZEN_H

#include "checkpoint/hf_dequantize.h"
#include "checkpoint/hf_places.h"

/* Can the codes of a place's tensor t stay what they are? OTT_ERR_UNSUPPORTED when they are not E4M3, or the folder has more
   scales than the parameter keeps. */
ott_status hf_frozen_check(const hf_place *at, const shard_tensor *t, const hf_dequantize *scales);
/* Its scales become the parameter's, in the rows that the place is of it. OTT_ERR_UNSUPPORTED when elements that share one there
   have several, in several tensors. */
ott_status hf_frozen_take_scales(const hf_place *at, const hf_dequantize *scales);

#endif
