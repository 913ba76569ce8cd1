/* fp8/dtype: facts about number formats. */
#ifndef FP8_DTYPE_H
#define FP8_DTYPE_H

#include "ottava/types.h"
#include <stdbool.h>
#include <stdint.h>

const char *dtype_name(ott_dtype d);             /* "bf16" */
const char *dtype_safetensors_name(ott_dtype d); /* "BF16" */
bool dtype_from_safetensors_name(const char *name, ott_dtype *out);
int dtype_bits(ott_dtype d);
int64_t dtype_bytes(ott_dtype d);          /* bytes of one element */
bool dtype_is_fp8(ott_dtype d);            /* E4M3 or E5M2 */
bool dtype_is_high_precision(ott_dtype d); /* F32, BF16 or F16 */
/* Largest finite value: 448 (E4M3), 57344 (E5M2), 65504 (F16), ... */
float dtype_max(ott_dtype d);

#endif
