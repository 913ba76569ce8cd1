/*
 * folders/hf/frozen: copies the scales of FP8 weights from a Hugging Face folder to frozen parameters that
 * stay in FP8 (nn/linear/frozen.h). A scale of the folder may become several equal scales of the parameter.
 * Internal to src/folders.
 */
#ifndef FOLDERS_HF_FROZEN_H
#define FOLDERS_HF_FROZEN_H

#include "folders/hf/dequantize.h"
#include "folders/hf/places.h"

/* Checks that the parameter can keep the codes of tensor t for its rows `at`. OTT_ERR_UNSUPPORTED if they are
   not E4M3, or if elements that share a scale in the parameter have different scales in the folder. */
ott_status hf_frozen_check(const hf_place *at, const shard_tensor *t, const hf_dequantize *scales);
/* Copies the scales of the rows `at` to the parameter. OTT_ERR_UNSUPPORTED if the parameter has one scale for
   rows of several tensors, and these tensors have different scales. */
ott_status hf_frozen_take_scales(const hf_place *at, const hf_dequantize *scales);

#endif
