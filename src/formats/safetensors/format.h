/* formats/safetensors/format: the element formats of safetensors, shared by its reader and its writer. */
#ifndef FORMATS_SAFETENSORS_FORMAT_H
#define FORMATS_SAFETENSORS_FORMAT_H

typedef struct safetensors_format {
    const char *name;
    int bits; /* bits per element; some formats pack several elements into a byte */
} safetensors_format;

/* Element formats in the order of Hugging Face's safetensors library, which stores the last ones first. */
static const safetensors_format safetensors_formats[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

enum { SAFETENSORS_FORMATS = sizeof safetensors_formats / sizeof *safetensors_formats };

/* Index of the format `name` in safetensors_formats; -1 if it is unknown. */
int safetensors_format_find(const char *name);

#endif
