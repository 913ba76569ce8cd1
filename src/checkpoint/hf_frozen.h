/*
 * checkpoint/hf_frozen: copies the scales of FP8 weights from a Hugging Face folder to frozen parameters that
 * stay in FP8 (nn/frozen.h). The parameter may have more scales than the folder. Internal to src/checkpoint.
 */
#ifndef CHECKPOINT_HF_FROZEN_H
#define CHECKPOINT_HF_FROZEN_H

#include "checkpoint/hf_dequantize.h"
#include "checkpoint/hf_places.h"

/* OTT_ERR_UNSUPPORTED if the codes of tensor t, which stores the rows `at`, cannot be kept: they are not
   E4M3, or the folder has more scales than the parameter. */
ott_status hf_frozen_check(const hf_place *at, const shard_tensor *t, const hf_dequantize *scales);
/* Copies the scales to the parameter, for the rows `at`. OTT_ERR_UNSUPPORTED if one block of the parameter
   spans several tensors with different scales. */
ott_status hf_frozen_take_scales(const hf_place *at, const hf_dequantize *scales);

#endif
