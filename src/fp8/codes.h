/* fp8/codes: reads and writes codes of quantized values. Two 4-bit codes share a byte: the first code is in
   the lower bits. */
#ifndef FP8_CODES_H
#define FP8_CODES_H

#include "fp8/dtype.h"

/* Returns code `index` of an array of format d. */
ANYWHERE uint8_t codes_get(const void *codes, ott_dtype d, int64_t index) {
    int bits = dtype_bits(d);
    uint8_t byte = ((const uint8_t *)codes)[index * bits / 8];
    return bits == 8 ? byte : byte >> index % 2 * 4 & 0xfu;
}
/* Writes code `index`. Threads must not write codes of the same byte. */
ANYWHERE void codes_put(void *codes, ott_dtype d, int64_t index, uint8_t code) {
    int bits = dtype_bits(d), shift = bits == 8 ? 0 : (int)(index % 2 * 4), mask = (1 << bits) - 1;
    uint8_t *byte = (uint8_t *)codes + index * bits / 8;
    *byte = (uint8_t)((*byte & ~(mask << shift)) | code << shift);
}

#endif
