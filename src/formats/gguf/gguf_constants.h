/* formats/gguf/gguf_constants: numbers of the file format, for the reader and the writer. Source:
   docs/gguf.md and ggml.h of ggml. */
#ifndef FORMATS_GGUF_GGUF_CONSTANTS_H
#define FORMATS_GGUF_GGUF_CONSTANTS_H

enum {
    GGUF_MAX_RANK = 4,
    GGUF_ALIGNMENT = 32 /* alignment of each tensor's data in bytes, unless general.alignment is set */
};

/* Element types of tensors. */
typedef enum gguf_type {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q4_1 = 3,
    GGUF_Q5_0 = 6,
    GGUF_Q5_1 = 7,
    GGUF_Q8_0 = 8,
    GGUF_Q4_K = 12,
    GGUF_Q5_K = 13,
    GGUF_Q6_K = 14,
    GGUF_BF16 = 30
} gguf_type;

/* Types of metadata values. */
typedef enum gguf_value_type {
    GGUF_VALUE_U8,
    GGUF_VALUE_I8,
    GGUF_VALUE_U16,
    GGUF_VALUE_I16,
    GGUF_VALUE_U32,
    GGUF_VALUE_I32,
    GGUF_VALUE_F32,
    GGUF_VALUE_BOOL,
    GGUF_VALUE_TEXT,
    GGUF_VALUE_LIST,
    GGUF_VALUE_U64,
    GGUF_VALUE_I64,
    GGUF_VALUE_F64,
    GGUF_VALUE_TYPES
} gguf_value_type;

#endif
