/* formats/gguf/gguf_blocks: element formats of GGUF tensors, and their values. A block format stores a fixed
   number of consecutive elements of a row together: scales, and a code of 4 to 8 bits per element. Values
   equal ggml's dequantize_row functions bit for bit. */
#ifndef FORMATS_GGUF_GGUF_BLOCKS_H
#define FORMATS_GGUF_GGUF_BLOCKS_H

#include "formats/gguf/gguf_constants.h"
#include "fp8/dtype.h"
#include <stdint.h>

enum { GGUF_BLOCK_MOST = 256, GGUF_BLOCK_BYTES_MOST = 210 }; /* elements and bytes of the largest block */

typedef struct gguf_format {
    const char *name; /* ggml's name, "Q4_K" */
    gguf_type type;
    int elements, bytes;
    ott_dtype dtype; /* OTT_DTYPE_COUNT for block formats */
    /* Writes the values of one block; NULL for a format with one element per block. */
    void (*decode)(const uint8_t *block, float *out);
} gguf_format;

enum { GGUF_FORMAT_COUNT = 11 };
extern const gguf_format gguf_formats[GGUF_FORMAT_COUNT];
const gguf_format *gguf_format_find(uint32_t type); /* NULL: unknown or not supported */
#define GGUF_FORMATS "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K"

#endif
