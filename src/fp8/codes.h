/* fp8/codes: reads and writes codes of quantized values. Two 4-bit codes share a byte: the first code is in
   the lower bits. */
#ifndef FP8_CODES_H
#define FP8_CODES_H

#include "fp8/dtype.h"

/* Returns code `index` of an array of format d. */
ANYWHERE uint8_t codes_get(const void *codes, ott_dtype d, int64_t index) {
    const uint8_t *bytes = (const uint8_t *)codes;
    if (dtype_bits(d) == 8) return bytes[index];
    return (uint8_t)(bytes[index / 2] >> index % 2 * 4 & 0xf);
}
/* Writes code `index`. Threads must not write codes of the same byte. */
ANYWHERE void codes_put(void *codes, ott_dtype d, int64_t index, uint8_t code) {
    uint8_t *bytes = (uint8_t *)codes;
    if (dtype_bits(d) == 8) {
        bytes[index] = code;
        return;
    }
    int shift = (int)(index % 2 * 4);
    bytes[index / 2] = (uint8_t)((bytes[index / 2] & ~(0xf << shift)) | code << shift);
}

#endif
